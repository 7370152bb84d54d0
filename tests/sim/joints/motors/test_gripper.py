"""Fingers: how fast they move, how hard they press, and what a command that is silent means."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.robot import GripperSpec
from robot_rl.core.robot_command import JointCommand
from sim.robots.joint_motors import Gripper
from sim.robots.joint_simulation import MujocoSimulation
from tests.sim.arms import arms, panda

SPEC = GripperSpec(
    joints=["a", "b"], closed=0.0, open=0.04, force_limit=70, speed=0.05, stiffness=5000
)


def told(simulation: MujocoSimulation, opening: float | None) -> JointCommand:
    """Stay where the arm is, with the gripper told an opening."""
    count, joints = simulation.num_worlds, simulation.robot.joints
    q = torch.tensor([[joint.default_position for joint in joints]]).repeat(count, 1)
    kp = torch.tensor([[joint.stiffness for joint in joints]]).expand(count, -1)
    kd = torch.tensor([[joint.damping for joint in joints]]).expand(count, -1)
    asked = None if opening is None else torch.full((count, 1), opening)
    return JointCommand(q=q, dq=0 * q, tau=0 * q, kp=kp, kd=kd, gripper=asked)


def test_targets_move_by_the_speed_and_lead_by_the_force_by_hand() -> None:
    hand = Gripper(SPEC, torch.full((1, 2), 0.04), control_dt=0.04)
    # 0.05 m/s * 0.04 s = 2 mm a step.
    target = hand.move(torch.tensor([[0.0]])) / SPEC.stiffness
    np.testing.assert_allclose(target, [[0.038]])
    for _ in range(20):  # held at 4 cm: 70 N / 5000 N/m = 14 mm ahead, and one step
        target = hand.move(None) / SPEC.stiffness
    np.testing.assert_allclose(target, [[0.04 - 0.014 - 0.002]])


def test_openings_are_fractions_of_the_stroke() -> None:
    position = torch.tensor([[0.01, 0.01], [0.04, 0.02]])
    hand = Gripper(SPEC, position, control_dt=0.04)
    hand.look()
    torch.testing.assert_close(hand.opening, torch.tensor([[0.25], [0.75]]))
    begun = hand.joint_position(torch.tensor([[0.25], [1.0]]))
    np.testing.assert_allclose(begun, [[0.01], [0.04]])
    rows = EnvSelection(torch.tensor([False, True]))
    np.testing.assert_allclose(hand.begin(rows, begun[1:]), 5000 * begun[1:])


def test_fingers_close_together_at_the_published_speed_and_open_again() -> None:
    simulation = arms(1)
    assert float(simulation.true_state.gripper_opening) == 1.0
    for _ in range(10):  # 0.4 s at 50 mm/s: half of 40 mm, less the lag of the position loop
        simulation.step(told(simulation, 0.0))
    assert 0.5 < float(simulation.true_state.gripper_opening) < 0.58
    for _ in range(25):
        simulation.step(told(simulation, None))  # says nothing new: they go on closing
    fingers = simulation.engine.qpos[0, simulation.layout.fingers]
    assert fingers.abs().max() < 1e-3
    for _ in range(30):
        simulation.step(told(simulation, 0.25))
    torch.testing.assert_close(
        simulation.true_state.gripper_opening, torch.tensor([[0.25]]), atol=0.01, rtol=0
    )


def test_an_arm_whose_command_is_silent_keeps_its_gripper_open_and_measures_it() -> None:
    simulation = arms(2)
    for _ in range(5):
        simulation.step(told(simulation, None))
    torch.testing.assert_close(
        simulation.measured.gripper_opening, torch.ones(2, 1), atol=1e-3, rtol=0
    )


def test_fingers_that_the_model_lacks_are_refused_by_name() -> None:
    robot = panda()
    hand = robot.spec.gripper
    assert hand is not None
    strange = replace(hand, joints=["thumb", "finger_joint2"])
    with pytest.raises(SpecMismatchError, match=r"lacks \['thumb'\]"):
        arms(1, robot=replace(robot, spec=replace(robot.spec, gripper=strange)))
    wide = replace(hand, open=0.08)
    with pytest.raises(
        SpecMismatchError, match=r"'finger_joint1' goes from 0.0 to 0.08 .*, beyond"
    ):
        arms(1, robot=replace(robot, spec=replace(robot.spec, gripper=wide)))
    with pytest.raises(SpecMismatchError, match="has them in another order or more of them"):
        arms(1, robot=replace(robot, spec=replace(robot.spec, gripper=None)))
