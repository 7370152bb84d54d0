"""Lift: where cubes begin, what is rewarded, and what counts as lifted."""

from typing import Any

import pytest
import torch

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import RobotState
from sim.tasks.arms.lift import GOAL, HALF_EDGE, LiftConfig, LiftTask
from tests.sim.arms import panda
from tests.sim.hands import hand_worlds
from tests.sim.stepping import context, terms_of

DT = 0.1


def task(worlds: int, **changes: Any) -> tuple[LiftTask, torch.Tensor]:
    """A second in ten steps, judged over its last half; and the cube's position, to be written."""
    cube = torch.zeros(worlds, 3)
    config = LiftConfig(**{"episode_length": 1.0, "success_window": 0.5, **changes})
    made = LiftTask(
        config, context(worlds, DT, robot=panda().spec, sensors={"cube_position": cube})
    )
    made.start(EnvSelection(torch.ones(worlds, dtype=torch.bool)), torch.Generator().manual_seed(0))
    return made, cube


def evaluate(made: LiftTask, cube: torch.Tensor, step: int, *, beside: float = 0.0) -> Any:
    """The hand is at the cube, or beside it, with the gripper a quarter open."""
    count = len(cube)
    hand = cube + torch.tensor([beside, 0.0, 0.0])
    true_state = RobotState({
        "end_effector_position_b": hand,
        "joint_velocity": torch.zeros(count, 7),
        "gripper_opening": torch.full((count, 1), 0.25),
    })  # fmt: skip
    still = torch.zeros(count, 8)
    return made.evaluate(true_state, still, still, torch.full((count,), step))


def test_success_is_a_cube_that_is_held_near_its_goal_through_the_window() -> None:
    made, cube = task(4)
    goal = made.goal[GOAL]
    verdict: Any = None
    for step in range(1, 11):
        cube[:] = goal  # world 0: there all the time
        cube[1] += torch.tensor([0.06, 0.0, 0.0])  # held, but 6 cm away
        cube[2] += torch.tensor([0.03 if step != 7 else 0.04, 0.0, 0.0])
        if step == 8:
            cube[3, 2] = 0.09  # one step below the line
        verdict = evaluate(made, cube, step)
    assert verdict.success.tolist() == [True, False, True, False]
    assert float(verdict.metrics["mean_distance"][2]) == pytest.approx(0.032, abs=1e-6)


def test_a_cube_at_its_goal_that_nobody_holds_is_no_success() -> None:
    made, cube = task(1)
    verdict: Any = None
    for step in range(1, 11):
        cube[:] = made.goal[GOAL]
        verdict = evaluate(made, cube, step, beside=0.031)
    assert not bool(verdict.success)
    assert float(verdict.metrics["held"]) == 0.0


def test_reward_terms_by_hand() -> None:
    made, cube = task(1, close=0.05, line=0.1225)
    cube[:] = torch.tensor([made.goal[GOAL][0, 0], made.goal[GOAL][0, 1], HALF_EDGE + 0.05])
    terms = terms_of(evaluate(made, cube, 1, beside=0.025))
    # Half way between floor and line, so not held yet; 25 mm are a half of `close`.
    assert terms == pytest.approx({
        "alive": 1.0, "approach": 0.8, "grasp": 0.75, "lift": 0.5, "hold": 0.0,
        "speed": 0.0, "overspeed": 0.0, "smoothness": 0.0,
    }, abs=1e-5)  # fmt: skip
    cube[:] = made.goal[GOAL] + torch.tensor([0.0, 0.05, 0.0])
    terms = terms_of(evaluate(made, cube, 1))
    assert terms["lift"] == 1.0
    assert terms["hold"] == pytest.approx(0.5)


def test_a_lost_cube_and_a_hand_in_the_floor_end_the_episode() -> None:
    made, cube = task(3, farthest=0.3, lowest_height=0.004)
    cube[:] = torch.tensor([[0.47, 0.29, 0.02], [0.47, -0.31, 0.02], [0.47, 0.0, 0.003]])
    assert evaluate(made, cube, 1).terminated.tolist() == [False, True, True]


@pytest.mark.slow
def test_cubes_lie_still_on_the_floor_within_their_rectangle() -> None:
    env = hand_worlds("lift", 200)
    env.reset(seed=0)
    cube, axis = env.simulation.sensors["cube_position"], env.simulation.sensors["cube_axis"]
    config = env.task.config
    for i in (0, 1):
        assert config.cube_low[i] - 1e-6 <= float(cube[:, i].min()) < config.cube_low[i] + 0.01
        assert config.cube_high[i] - 0.01 < float(cube[:, i].max()) <= config.cube_high[i] + 1e-6
    torch.testing.assert_close(cube[:, 2], torch.full((200,), HALF_EDGE))
    yaw = torch.atan2(axis[:, 1], axis[:, 0])
    assert 0.75 < float(yaw.abs().max()) <= torch.pi / 4 + 1e-6
    before = cube.clone()
    for _ in range(10):
        env.step(torch.zeros(200, 8))
    torch.testing.assert_close(cube, before, atol=2e-4, rtol=0)
