"""What tasks of an arm share, and reach: poses, costs, goals, rewards, success."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.observation import RobotState
from sim.robots.joint_robot import JointActionConfig
from sim.tasks.arms.arm import Arm, ArmTaskConfig, standing
from sim.tasks.arms.reach import GOAL, ReachConfig, ReachTask
from tests.sim.arms import panda
from tests.sim.stepping import context, everyone, terms_of

POSE = [0.1, 0.0, -0.2, -2.0, 0.0, 2.0, 0.5]


def test_costs_by_hand() -> None:
    arm = Arm(ArmTaskConfig(), context(1, 0.1, robot=panda().spec))
    rates = torch.zeros(1, 7)
    # Half too fast, exactly at the limit, three times too fast.
    rates[0, 0], rates[0, 1], rates[0, 6] = 1.5 * 2.175, -2.175, -3 * 2.61
    action, last = torch.full((1, 7), 0.3), torch.full((1, 7), 0.1)
    costs = arm.costs(RobotState({"joint_velocity": rates}), action, last)
    assert float(costs["speed"]) == pytest.approx(3.25 * 2.175**2 + (3 * 2.61) ** 2)
    assert float(costs["overspeed"]) == pytest.approx(0.5 + 1.0)
    assert float(costs["smoothness"]) == pytest.approx(7 * 0.04)
    effort = torch.zeros(1, 7)
    effort[0, 1], effort[0, 6] = 87.0, -6.0  # all that the joint has, and half
    exertion = arm.exertion(RobotState({"joint_effort": effort}))
    assert exertion.tolist() == [pytest.approx([0, 1.0, 0, 0, 0, 0, -0.5])]


def test_things_stand_upright_at_their_height_and_are_turned_to_both_sides() -> None:
    pose = standing(500, [1.0, 2.0], [1.0, 2.0], 0.5, 3.0, torch.Generator().manual_seed(0))
    assert (pose[:, :3] == torch.tensor([1.0, 2.0, 3.0])).all()
    assert not pose[:, 4:6].any()
    yaw = 2 * torch.atan2(pose[:, 6], pose[:, 3])
    assert -0.5 <= float(yaw.min()) < -0.49
    assert 0.49 < float(yaw.max()) <= 0.5


def test_an_action_of_zero_is_the_pose_and_its_scale_the_tasks() -> None:
    robot = panda()
    made = JointActionConfig(pose=POSE, scale=0.4, gripper=True).action_map(robot.spec, 1.0)
    command: Any = made.to_command(torch.tensor([[0.0] * 7 + [1.0], [1.0] + [0.0] * 6 + [-1.0]]))
    torch.testing.assert_close(command.q[0], torch.tensor(POSE))
    assert float(command.q[1, 0]) == pytest.approx(0.5)
    assert command.gripper[:, 0].tolist() == [1.0, 0.0]
    plain = JointActionConfig().action_map(robot.spec, robot.action_scale)
    default = torch.tensor([joint.default_position for joint in robot.spec.joints])
    command = plain.to_command(torch.zeros(1, 7))
    torch.testing.assert_close(command.q[0], default)


def test_robots_that_do_not_fit_are_refused_in_words() -> None:
    spec = panda().spec
    with pytest.raises(SpecMismatchError, match="has 2 entries, but robot 'panda' has 7 joints"):
        JointActionConfig(pose=[0.0, 0.0]).action_map(spec, 1.0)
    bare = replace(spec, gripper=None)
    with pytest.raises(SpecMismatchError, match=r"moves a gripper .* robot 'panda' has none"):
        JointActionConfig(gripper=True).action_map(bare, 1.0)
    for config in (ReachConfig(), ArmTaskConfig()):
        with pytest.raises(SpecMismatchError, match="whose end effector is measured; choose robot"):
            config.robot_kind.check("arm", replace(spec, sensors={}))
    ReachConfig().robot_kind.check("reach", bare)
    with pytest.raises(SpecMismatchError, match="an arm with a gripper"):
        ArmTaskConfig().robot_kind.check("arm", bare)


def task(config: ReachConfig | None = None, *, count: int = 3) -> ReachTask:
    """A second in ten steps, judged over its last half."""
    made = ReachTask(
        config or ReachConfig(episode_length=1.0, success_window=0.5),
        context(count, 0.1, robot=panda().spec),
    )  # fmt: skip
    made.start(everyone(count), torch.Generator().manual_seed(0))
    return made


def beside(task: ReachTask, distance: list[float], speed: float = 0.0) -> RobotState:
    """End effectors beside their goals, along y."""
    away = torch.zeros(len(distance), 3)
    away[:, 1] = torch.tensor(distance)
    return RobotState({
        GOAL: task.goal[GOAL] + away,
        "joint_velocity": torch.full((len(distance), 7), speed),
    })  # fmt: skip


def evaluate(task: ReachTask, step: int, distance: list[float]) -> Any:
    still = torch.zeros(len(distance), 7)
    return task.evaluate(beside(task, distance), still, still, torch.full((len(distance),), step))


def test_success_is_the_mean_distance_over_the_window_at_the_end() -> None:
    made = task()
    for step in range(1, 6):
        evaluate(made, step, [1.0, 0.0, 0.0])  # before the window: does not count
    for step in range(6, 10):
        evaluate(made, step, [0.019, 0.021, 0.0])
    verdict = evaluate(made, 10, [0.019, 0.021, 0.09])  # a jump at the last step: mean 0.018
    assert verdict.success.tolist() == [True, False, True]
    assert verdict.metrics["mean_distance"].tolist() == pytest.approx([0.019, 0.021, 0.018])


def test_reward_terms_of_reach_by_hand():
    made = task(ReachConfig(close=0.05), count=1)
    action, last = torch.full((1, 7), 0.3), torch.full((1, 7), 0.1)
    verdict = made.evaluate(beside(made, [0.1], speed=2.0), action, last, torch.ones(1))
    terms = terms_of(verdict)
    assert terms == pytest.approx({
        "alive": 1.0, "closeness": 1 / (1 + 4), "distance": 0.1, "speed": 7 * 4.0,
        "overspeed": 0.0, "smoothness": 7 * 0.04,
    }, rel=1e-5)  # fmt: skip


def test_an_end_effector_near_the_floor_ends_the_episode() -> None:
    made = task(ReachConfig(lowest_height=0.1))
    true_state = beside(made, [0.0] * 3)
    true_state.end_effector_position_b[:, 2] = torch.tensor([0.09, 0.11, -0.2])
    still = torch.zeros(3, 7)
    verdict = made.evaluate(true_state, still, still, torch.ones(3))
    assert verdict.terminated.tolist() == [True, False, True]


def test_goals_fill_their_box_and_starts_stay_around_the_default_pose_within_limits() -> None:
    config = ReachConfig(start_position=3.0)
    made = task(config, count=2000)
    start = made.start(everyone(2000), torch.Generator().manual_seed(3)).robot
    goal = made.goal[GOAL]
    for axis, (low, high) in enumerate(zip(config.goal_low, config.goal_high, strict=True)):
        assert low <= float(goal[:, axis].min()) < low + 0.01
        assert high - 0.01 < float(goal[:, axis].max()) <= high
    for i, joint in enumerate(panda().spec.joints):
        column = start.joint_position[:, i]
        assert float(column.min()) >= joint.position_limit[0] - 1e-6  # float32
        assert float(column.max()) <= joint.position_limit[1] + 1e-6
    assert not start.joint_velocity.any()
