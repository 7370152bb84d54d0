"""Reorient: where cubes begin, which goals follow each other, what is rewarded, what is dropped."""

import math
from typing import Any

import pytest
import torch

from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.observation import RobotState
from sim.tasks.hands.reorient import ReorientConfig, ReorientTask
from tests.compositions import composed
from tests.sim.joint_robots import joint_robot
from tests.sim.stepping import context, everyone, terms_of

PLACE = (-0.003, 0.0, 0.25)


def task(count: int, **changes: Any) -> tuple[ReorientTask, dict[str, torch.Tensor]]:
    """The task by itself with cubes at their places, and its sensors, to be written."""
    sensors = {
        name: torch.zeros(count, 3)
        for name in ("palm_position", "cube_position", "cube_x_axis", "cube_y_axis")
    }
    robot = joint_robot("allegro", "reorient").spec
    made = ReorientTask(ReorientConfig(**changes), context(count, 0.05, robot=robot,
                                                           sensors=sensors))  # fmt: skip
    made.start(everyone(count), torch.Generator().manual_seed(0))
    sensors["cube_position"][:] = torch.tensor(PLACE)
    return made, sensors


def turn(sensors: dict[str, torch.Tensor], heading: torch.Tensor) -> None:
    """Stand the cubes upright with a heading (N,) [rad]."""
    none = torch.zeros_like(heading)
    sensors["cube_x_axis"][:] = torch.stack([heading.cos(), heading.sin(), none], -1)
    sensors["cube_y_axis"][:] = torch.stack([-heading.sin(), heading.cos(), none], -1)


def goal_heading(made: ReorientTask) -> torch.Tensor:
    x = made.goal["cube_x_axis"]
    return torch.atan2(x[:, 1], x[:, 0])


def evaluate(made: ReorientTask, count: int) -> Any:
    """The fingers rest in the task's pose."""
    pose = torch.tensor(made.config.action.middle(joint_robot("allegro", "reorient").spec))
    still = torch.zeros(count, 16)
    true_state = RobotState({
        "joint_position": pose.expand(count, 16), "joint_velocity": still, "joint_effort": still,
    })  # fmt: skip
    return made.evaluate(true_state, still, still, torch.ones(count, dtype=torch.int64))


def test_cubes_begin_upright_with_every_side_ahead_and_the_first_goal_is_a_turn_away() -> None:
    made, _ = task(400, cube_yaw=0.2, turn=[0.8, 1.6])
    start = made.start(everyone(400), torch.Generator().manual_seed(1)).scene["cube"]
    assert torch.allclose(start[:, 3:].norm(dim=-1), torch.ones(400))
    assert not start[:, 4:6].any()  # no tilt
    yaw = 2 * torch.atan2(start[:, 6], start[:, 3])
    quarters = torch.round(yaw / (math.pi / 2))
    assert (yaw - quarters * math.pi / 2).abs().max() <= 0.2001
    assert set((quarters % 4).int().tolist()) == {0, 1, 2, 3}
    ahead = (goal_heading(made) - yaw) % (2 * math.pi)
    assert ((ahead > 0.7999) & (ahead < 1.6001)).all()
    assert (start[:, :3] - torch.tensor(PLACE)).abs().max() <= 0.00501


def test_a_reached_goal_is_paid_once_and_the_next_one_is_a_turn_further() -> None:
    made, sensors = task(2, success_angle=0.2)
    first = goal_heading(made)
    turn(sensors, first - torch.tensor([0.19, 0.21]))
    verdict = evaluate(made, 2)
    assert verdict.reward_terms["reached"].tolist() == [1.0, 0.0]
    assert verdict.metrics["goals_reached"].tolist() == [1.0, 0.0]
    way = (goal_heading(made) - first) % (2 * math.pi)
    assert 0.8 <= float(way[0]) <= 1.6
    assert float(way[1]) == 0.0
    again = evaluate(made, 2)
    assert not again.reward_terms["reached"].any()
    assert again.reward_terms["turning"].tolist() == [0.0, 0.0]  # nobody moved, whatever the goal


def test_turning_is_paid_by_its_speed_up_to_the_fastest_and_costs_the_other_way() -> None:
    made, sensors = task(4, fastest=1.0)
    goal = goal_heading(made)
    turn(sensors, goal - 0.7)
    first = evaluate(made, 4)
    assert not first.reward_terms["turning"].any()  # nothing is known of the step before
    turn(sensors, goal - 0.7 + torch.tensor([0.01, 0.2, -0.02, -0.3]))
    turned = evaluate(made, 4).reward_terms["turning"]
    assert turned.tolist() == pytest.approx([0.2, 1.0, -0.4, -1.0], abs=1e-4)


def test_the_angle_is_that_of_the_whole_rotation_a_tilt_counts() -> None:
    made, sensors = task(1)
    turn(sensors, goal_heading(made))
    tilt = 0.5  # about the goal's own x axis
    up = torch.tensor([0.0, 0.0, 1.0])
    sensors["cube_y_axis"][0] = math.cos(tilt) * sensors["cube_y_axis"][0] + math.sin(tilt) * up
    assert float(evaluate(made, 1).metrics["angle"][0]) == pytest.approx(tilt, abs=1e-4)


def test_reward_terms_by_hand() -> None:
    made, sensors = task(1, close_angle=0.4, close=0.03)
    turn(sensors, goal_heading(made) - 0.4)
    sensors["cube_position"][0] += torch.tensor([0.0, 0.03, 0.0])
    terms = terms_of(evaluate(made, 1))
    expected = {
        "alive": 1.0, "turning": 0.0, "aligned": 0.5, "reached": 0.0, "centred": 0.5,
        "dropped": 0.0, "pose": 0.0, "speed": 0.0, "overspeed": 0.0,
        "effort": 0.0, "smoothness": 0.0,
    }  # fmt: skip
    assert terms == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("way", [(0.0, 0.0, -0.036), (0.05, 0.05, 0.0)])
def test_a_cube_that_leaves_the_palm_is_dropped(way: tuple[float, float, float]) -> None:
    made, sensors = task(2, lowest=0.215, farthest=0.07)
    sensors["cube_position"][1] += torch.tensor(way)
    verdict = evaluate(made, 2)
    assert verdict.terminated.tolist() == [False, True]
    assert verdict.reward_terms["dropped"].tolist() == [0.0, 1.0]


def test_an_episode_succeeds_with_enough_goals() -> None:
    made, sensors = task(2, goals=2)
    for reached in (1, 2):
        heading = goal_heading(made)
        heading[1] -= 0.5
        turn(sensors, heading)
        assert evaluate(made, 2).success.tolist() == [reached == 2, False]


def test_goals_of_a_saved_state_are_asked_for_again() -> None:
    made, sensors = task(3)
    turn(sensors, goal_heading(made))
    evaluate(made, 3)
    saved = made.state_dict()
    goals = []
    for _ in range(2):
        made.load_state_dict(saved)
        for _ in range(3):
            turn(sensors, goal_heading(made))
            evaluate(made, 3)
        goals.append(goal_heading(made).clone())
    assert torch.equal(*goals)


def test_goals_that_a_cube_may_reach_at_once_and_cubes_that_are_dropped_at_once_are_refused():
    with pytest.raises(ConfigError, match=r"2 success_angle = 0.4 < low <= high"):
        ReorientConfig(turn=[0.39, 1.0])
    with pytest.raises(ConfigError, match="turn must be"):
        ReorientConfig(turn=[1.0, 0.5])
    with pytest.raises(ConfigError, match="every cube is dropped at once"):
        ReorientConfig(lowest=0.26)


def test_turns_to_both_sides_are_as_likely_and_as_long() -> None:
    made, _ = task(400, turn=[0.8, 1.6], both_ways=True)
    turns = made.state_dict()["turns"]
    assert ((turns.abs() >= 0.8) & (turns.abs() <= 1.6)).all()
    assert 0.48 < float((turns < 0).float().mean()) < 0.52


@pytest.mark.parametrize("robot", ["panda", "go2"])
def test_a_robot_that_is_no_hand_is_refused(robot: str) -> None:
    from configs.schema import make_env

    config = composed(["task=reorient", f"robot={robot}", "task.action.pose=[]"]).config
    with pytest.raises(SpecMismatchError, match=f"'{robot}', and is .* a hand .* robot=allegro"):
        make_env(config, num_envs=1, device=torch.device("cpu"), seed=0, evaluation=True)


def test_a_scene_without_a_cube_is_refused() -> None:
    robot = joint_robot("allegro", "reorient").spec
    sensors = {"palm_position": torch.zeros(1, 3)}
    with pytest.raises(SpecMismatchError, match=r"asks the scene for .* task.scene.file=hand_cube"):
        ReorientTask(ReorientConfig(), context(1, 0.05, robot=robot, sensors=sensors))


def test_a_hand_in_its_default_pose_holds_the_cube_for_a_whole_episode() -> None:
    from configs.schema import make_env  # the simulation, only here

    config = composed(["task=reorient"]).config
    env = make_env(config, num_envs=16, device=torch.device("cpu"), seed=0, evaluation=True)
    env.reset(seed=0)
    still = torch.zeros(16, env.spec.action_size)
    step = env.step(still)
    ends = step.terminated.clone()
    for _ in range(199):
        step = env.step(still)
        ends |= step.terminated
    assert not ends.any()
    assert step.metrics["goals_reached"].max() == 0
