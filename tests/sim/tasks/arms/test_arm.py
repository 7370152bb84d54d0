"""What tasks of an arm share: poses, costs, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.observation import RobotState
from sim.robots.joint_robot import JointActionConfig
from sim.tasks.arms.arm import Arm, ArmTaskConfig, standing
from sim.tasks.arms.reach import ReachConfig, ReachTask
from tests.sim.arms import panda
from tests.sim.stepping import context

POSE = [0.1, 0.0, -0.2, -2.0, 0.0, 2.0, 0.5]


def test_arms_begin_around_the_tasks_pose_within_limits_and_with_the_asked_opening() -> None:
    config = ArmTaskConfig(start_position=0.3, action=JointActionConfig(pose=POSE))
    state = Arm(config, context(1, 0.1, robot=panda().spec)).start(
        500, torch.Generator().manual_seed(0), 0.25
    )
    offset = state.joint_position - torch.tensor(POSE)
    assert 0.29 < float(offset.abs().max()) <= 0.3 + 1e-6
    assert not state.joint_velocity.any()
    assert (state.gripper_opening == 0.25).all()


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


def test_upright_poses_by_hand() -> None:
    pose = standing(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[torch.pi / 2]]))
    half = 0.5**0.5
    torch.testing.assert_close(pose, torch.tensor([[1.0, 2.0, 3.0, half, 0.0, 0.0, half]]))


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
    blind = replace(spec, gripper=None, sensors={})
    with pytest.raises(SpecMismatchError, match=r"'panda'.*end_effector_position_b"):
        ReachTask(ReachConfig(), context(1, 0.1, robot=blind))
    with pytest.raises(SpecMismatchError, match="it has no gripper"):
        Arm(ArmTaskConfig(), context(1, 0.1, robot=bare))
    blind = replace(spec, sensors={})
    with pytest.raises(SpecMismatchError, match=r"a sensor 'end_effector_position_b'; it has a gr"):
        Arm(ArmTaskConfig(), context(1, 0.1, robot=blind))
