"""Reach: where episodes begin, what is rewarded, and what counts as reached."""

from typing import Any

import pytest
import torch

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec
from sim.tasks.arms.reach import GOAL, ReachConfig, ReachTask
from tests.sim.arms import arm_worlds, panda
from tests.sim.stepping import context, terms_of

WORLDS = 3
DT = 0.1


def task(config: ReachConfig | None = None, *, worlds: int = WORLDS) -> ReachTask:
    """A second in ten steps, judged over its last half."""
    made = ReachTask(
        config or ReachConfig(episode_length=1.0, success_window=0.5),
        context(worlds, DT, robot=panda().spec),
    )  # fmt: skip
    everyone = EnvSelection(torch.ones(worlds, dtype=torch.bool))
    made.start(everyone, torch.Generator().manual_seed(0))
    return made


def state(task: ReachTask, distance: list[float], speed: float = 0.0) -> RobotState:
    """End effectors beside their goals, along y."""
    away = torch.zeros(len(distance), 3)
    away[:, 1] = torch.tensor(distance)
    return RobotState({
        GOAL: task.goal[GOAL] + away,
        "joint_velocity": torch.full((len(distance), 7), speed),
    })  # fmt: skip


def evaluate(task: ReachTask, step: int, distance: list[float]) -> Any:
    still = torch.zeros(len(distance), 7)
    return task.evaluate(state(task, distance), still, still, torch.full((len(distance),), step))


def test_success_is_the_mean_distance_over_the_window_at_the_end() -> None:
    made = task()
    for step in range(1, 6):
        evaluate(made, step, [1.0, 0.0, 0.0])  # before the window: does not count
    for step in range(6, 10):
        evaluate(made, step, [0.019, 0.021, 0.0])
    verdict = evaluate(made, 10, [0.019, 0.021, 0.09])  # a jump at the last step: mean 0.018
    assert verdict.success.tolist() == [True, False, True]
    assert verdict.metrics["mean_distance"].tolist() == pytest.approx([0.019, 0.021, 0.018])


def test_a_new_episode_forgets_the_last_ones_distance_and_gets_another_goal():
    made = task()
    evaluate(made, 6, [1.0, 1.0, 1.0])
    made.start(EnvSelection(torch.tensor([True, False, True])), torch.Generator().manual_seed(1))
    verdict = evaluate(made, 10, [0.0, 0.0, 0.0])
    assert verdict.success.tolist() == [True, False, True]
    made = task()
    before = made.goal[GOAL].clone()
    made.start(EnvSelection(torch.tensor([False, True, False])), torch.Generator().manual_seed(9))
    assert (made.goal[GOAL] != before).any(-1).tolist() == [False, True, False]


def test_reward_terms_and_speed_beyond_the_joints_limits_by_hand():
    made = task(ReachConfig(close=0.05), worlds=1)
    action, last = torch.full((1, 7), 0.3), torch.full((1, 7), 0.1)
    verdict = made.evaluate(state(made, [0.1], speed=2.0), action, last, torch.ones(1))
    terms = terms_of(verdict)
    assert terms == pytest.approx({
        "alive": 1.0, "closeness": 1 / (1 + 4), "distance": 0.1, "speed": 7 * 4.0,
        "overspeed": 0.0, "smoothness": 7 * 0.04,
    }, rel=1e-5)  # fmt: skip
    made = task(worlds=1)
    true_state = state(made, [0.0])
    # Limits 2.175 and 2.61 rad/s: half too fast, exactly at the limit, three times too fast.
    true_state.joint_velocity[0, :2] = torch.tensor([1.5 * 2.175, -2.175])
    true_state.joint_velocity[0, 6] = -3 * 2.61
    still = torch.zeros(1, 7)
    verdict = made.evaluate(true_state, still, still, torch.ones(1))
    assert terms_of(verdict)["overspeed"] == pytest.approx(0.5 + 0.0 + 1.0, abs=1e-5)
    assert float(verdict.metrics["overspeed"]) == 1.0


def test_an_end_effector_near_the_floor_ends_the_episode() -> None:
    made = task(ReachConfig(lowest_height=0.1))
    true_state = state(made, [0.0] * WORLDS)
    true_state.end_effector_position_b[:, 2] = torch.tensor([0.09, 0.11, -0.2])
    still = torch.zeros(WORLDS, 7)
    verdict = made.evaluate(true_state, still, still, torch.ones(WORLDS))
    assert verdict.terminated.tolist() == [True, False, True]


def test_goals_fill_their_box_and_starts_stay_around_the_default_pose_within_limits() -> None:
    config = ReachConfig(start_position=3.0)
    made = task(config, worlds=2000)
    everyone = EnvSelection(torch.ones(2000, dtype=torch.bool))
    start = made.start(everyone, torch.Generator().manual_seed(3)).robot
    goal = made.goal[GOAL]
    for axis, (low, high) in enumerate(zip(config.goal_low, config.goal_high, strict=True)):
        assert low <= float(goal[:, axis].min()) < low + 0.01
        assert high - 0.01 < float(goal[:, axis].max()) <= high
    for i, joint in enumerate(panda().spec.joints):
        column = start.joint_position[:, i]
        assert float(column.min()) >= joint.position_limit[0] - 1e-6  # float32
        assert float(column.max()) <= joint.position_limit[1] + 1e-6
    assert not start.joint_velocity.any()


def test_the_actor_sees_the_way_from_the_goal_of_a_robot_that_knows_its_end_effector():
    env = arm_worlds(4, noise=False)
    obs = env.reset(seed=0)
    error = obs["actor"][:, 14:17]  # joint_position 7, joint_velocity 7
    true_state = env.simulation.true_state.end_effector_position_b - env.task.goal[GOAL]
    torch.testing.assert_close(error, true_state)
    with pytest.raises(SpecMismatchError, match=r"'blind'.*end_effector_position_b"):
        ReachTask(ReachConfig(), context(1, DT, robot=RobotSpec(name="blind")))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"success_window": 9.0}, "longer than the episode"),
        ({"success_distance": 0.0}, "success_distance must be > 0"),
        ({"start_position": -1.0}, "start_position must be >= 0"),
        ({"goal_low": [0.0, 0.0]}, "points"),
        ({"goal_low": [0.9, 0.0, 0.0]}, "low <= high"),
    ],
)
def test_tasks_that_cannot_be_judged_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ReachConfig(**changes)
