"""Motors of robots with joints: gripper, ramped targets, gains, limits, delays and friction."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch.testing import assert_close

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot import GripperSpec
from robot_rl.core.robot_command import JointCommand
from sim.robots.joint_motors import Gripper, TargetRamp
from sim.robots.joint_robot import JointRandomization
from sim.robots.joint_simulation import MujocoSimulation
from tests.sim.arms import arms, begin, hold, panda
from tests.sim.levers import DT, command, levers, place, torque

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
    assert_allclose(target, [[0.038]])
    for _ in range(20):  # held at 4 cm: 70 N / 5000 N/m = 14 mm ahead, and one step
        target = hand.move(None) / SPEC.stiffness
    assert_allclose(target, [[0.04 - 0.014 - 0.002]])


def test_openings_are_fractions_of_the_stroke() -> None:
    position = torch.tensor([[0.01, 0.01], [0.04, 0.02]])
    hand = Gripper(SPEC, position, control_dt=0.04)
    hand.look()
    assert_close(hand.opening, torch.tensor([[0.25], [0.75]]))
    begun = hand.joint_position(torch.tensor([[0.25], [1.0]]))
    assert_allclose(begun, [[0.01], [0.04]])
    rows = EnvSelection(torch.tensor([False, True]))
    assert_allclose(hand.begin(rows, begun[1:]), 5000 * begun[1:])


def test_fingers_close_together_at_the_published_speed_and_open_again_or_stay_without_a_word():
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
    assert_close(simulation.true_state.gripper_opening, torch.tensor([[0.25]]), atol=0.01, rtol=0)
    simulation = arms(2)
    for _ in range(5):
        simulation.step(told(simulation, None))
    assert_close(simulation.measured.gripper_opening, torch.ones(2, 1), atol=1e-3, rtol=0)


def test_fingers_that_the_model_lacks_are_refused_by_name() -> None:
    robot = panda()
    hand = robot.spec.gripper
    assert hand is not None
    for gripper, told in (
        (replace(hand, joints=["thumb", "finger_joint2"]), r"lacks \['thumb'\]"),
        (replace(hand, open=0.08), r"'finger_joint1' goes from 0.0 to 0.08 .*, beyond"),
        (None, "has them in another order or more of them"),
    ):
        with pytest.raises(SpecMismatchError, match=told):
            arms(1, robot=replace(robot, spec=replace(robot.spec, gripper=gripper)))


FAST, SLOW = 2.61 * 0.005, 2.175 * 0.005
"""Way of the last three and of the first four joints in a physics step [rad]."""


def leap(simulation: MujocoSimulation, way: float) -> JointCommand:
    """A command of all joints, so far from where they began [rad]."""
    held = hold(simulation)
    return replace(held, q=held.q + way)


def asked(simulation: MujocoSimulation, control: np.ndarray) -> np.ndarray:
    """Distance of the targets that controls ask for from their start, (..., 7)."""
    joints = simulation.robot.joints
    begun = [joint.default_position for joint in joints]
    return control[..., :7] / [joint.stiffness for joint in joints] - begun


def test_targets_move_by_the_velocity_limit_and_stop_at_the_goal_by_hand() -> None:
    simulation = arms(2, robot=panda(noise=False))
    ramp = TargetRamp(simulation.robot, simulation.engine)
    joints = simulation.robot.joints
    begun = torch.tensor([[joint.default_position for joint in joints]] * 2).double()
    stiffness = torch.tensor([[joint.stiffness for joint in joints]] * 2)
    ramp.begin(EnvSelection(torch.ones(2, dtype=torch.bool)), begun)
    control = simulation.engine.control
    for way, before in ((0.05, 0.0), (-1.0, 0.05)):
        control[:, :7] = stiffness * (begun + way)
        ramp.draw((begun + way).float(), stiffness)
        drawn = simulation.engine.ramp
        targets = asked(simulation, drawn[0].numpy())
        assert targets.shape == (8, 7)  # steps, joints
        assert torch.equal(control, drawn[:, -1])
        for joint, step in ((0, SLOW), (6, FAST)):
            rising = before + np.sign(way) * step * np.arange(1, 9)
            expected = np.minimum(rising, way) if way > 0 else np.maximum(rising, way)
            assert_allclose(targets[:, joint], expected, atol=1e-6)
    assert (drawn[..., 7:] == drawn[:, :1, 7:]).all(), "fingers stay"


def test_an_episode_begins_with_the_target_where_the_joints_are() -> None:
    simulation, fresh = arms(2), arms(2)
    for _ in range(5):
        simulation.step(leap(simulation, 1.0))
    begin(simulation, torch.tensor([True, False]))
    for each in (simulation, fresh):
        each.step(leap(each, 0.3))
    position = simulation.true_state.joint_position
    assert_close(position[0], fresh.true_state.joint_position[0])
    assert (position[1] - position[0]).abs().max() > 0.1


@pytest.mark.parametrize("limit", [float("inf"), 0.0])
def test_a_joint_without_a_limit_is_at_its_goal_at_once_and_one_that_may_not_move_stays(limit):
    robot = panda(noise=False)
    joints = [replace(joint, velocity_limit=limit) for joint in robot.spec.joints]
    simulation = arms(2, robot=robot)
    ramp = TargetRamp(replace(robot.spec, joints=joints), simulation.engine)
    begun = torch.zeros(2, 7)
    ramp.begin(EnvSelection(torch.ones(2, dtype=torch.bool)), begun)
    simulation.engine.control[:, :7] = 0.5
    ramp.draw(begun + 0.5, torch.ones(2, 7))
    drawn = simulation.engine.ramp[..., :7]
    assert_allclose(drawn, 0.5 if limit else 0.0, atol=1e-6)


LINE: dict[str, Any] = {"effort_limit": 15.0, "stall_torque": 20.0, "no_load_speed": 10.0}
STUCK: dict[str, Any] = {"friction": 1.0, "static_friction": 1.5, "stribeck_velocity": 0.05}
CREEP = 5e-3
"""Speed that MuJoCo's soft friction lets a held lever creep with at most [rad/s]."""


@pytest.mark.parametrize(
    ("speed", "most", "least"),
    [
        (0.0, 15.0, -15.0),  # 20 at the line, 15 at the limit
        (2.5, 15.0, -15.0),  # where the line meets the limit
        (5.0, 10.0, -15.0),  # half the speed, half the stall torque
        (9.0, 2.0, -15.0),
        (10.0, 0.0, -15.0),  # nothing left to accelerate with; braking is limited by the effort
        (12.0, -4.0, -15.0),  # driven beyond it, the motor brakes whatever it is told
        (-5.0, 15.0, -10.0),
    ],
)
def test_the_torque_falls_along_the_line_from_stall_to_no_load_speed(tmp_path, speed, most, least):
    simulation = levers(tmp_path, **LINE)
    for tau, expected in ((1000.0, most), (-1000.0, least)):
        assert float(torque(simulation, speed, tau=tau)) == pytest.approx(expected, abs=1e-5)


def test_the_stall_torque_is_the_effort_limit_unless_given_and_either_bounds_alone(tmp_path):
    simulation = levers(tmp_path, effort_limit=15.0, no_load_speed=10.0)
    assert float(torque(simulation, 0.0, tau=99.0)) == pytest.approx(15.0)
    assert float(torque(simulation, 4.0, tau=99.0)) == pytest.approx(9.0, abs=1e-5)
    simulation = levers(tmp_path, stall_torque=20.0, no_load_speed=10.0)
    assert float(torque(simulation, 0.0, tau=99.0)) == pytest.approx(20.0)
    assert float(torque(simulation, -10.0, tau=99.0)) == pytest.approx(40.0, abs=1e-5)  # braking


def test_both_kinds_of_motor_keep_the_law_of_the_joint_command(tmp_path: Path) -> None:
    values = {"q": 0.1, "dq": 0.5, "tau": 0.3, "kp": 20.0, "kd": 2.0}
    expected = 20 * 0.1 + 2 * (0.5 - 1.5) + 0.3
    for joint in ({}, LINE):
        got = torque(levers(tmp_path, **joint), 1.5, **values)
        assert float(got) == pytest.approx(expected, abs=1e-5)


def test_stiff_gains_settle_alike_with_and_without_the_line() -> None:
    """The integrator's derivative of the motor's force keeps 5 ms stable with both kinds."""
    plain = panda(noise=False)
    joints = [
        replace(joint, no_load_speed=2 * joint.velocity_limit, stall_torque=2 * joint.effort_limit)
        for joint in plain.spec.joints
    ]
    lined = replace(plain, spec=replace(plain.spec, joints=joints))
    both = [arms(1, robot=robot) for robot in (plain, lined)]
    for simulation in both:
        moved = replace(hold(simulation), q=hold(simulation).q + 0.05)
        for _ in range(50):
            simulation.step(moved)
    one, two = (simulation.true_state for simulation in both)
    assert float(one.joint_velocity.abs().max()) < 0.01
    assert_close(one.joint_position, two.joint_position, atol=1e-5, rtol=0)


def test_strength_scales_limit_and_stall_torque_and_not_the_speed(tmp_path):
    weak = JointRandomization(motor_strength=[0.5, 0.5])
    simulation = levers(tmp_path, ranges=weak, **LINE)
    assert float(torque(simulation, 0.0, tau=99.0)) == pytest.approx(7.5)
    assert float(torque(simulation, 5.0, tau=99.0)) == pytest.approx(5.0, abs=1e-5)
    assert float(torque(simulation, 10.0, tau=99.0)) == pytest.approx(0.0, abs=1e-5)
    plain = levers(tmp_path, ranges=weak, effort_limit=15.0)
    assert float(torque(plain, 0.0, tau=99.0)) == pytest.approx(7.5)
    with pytest.raises(ConfigError, match=r"motor_strength.*'lever' has none.*effort_limit"):
        levers(tmp_path, ranges=JointRandomization(motor_strength=[0.5, 1.0]))


@pytest.mark.parametrize("joint", [{}, LINE], ids=["plain", "with line"])
def test_drawn_gains_multiply_what_is_commanded(tmp_path: Path, joint: dict[str, Any]) -> None:
    ranges = JointRandomization(stiffness=0.5, damping=0.5)
    simulation = levers(tmp_path, 3, ranges=ranges, **joint)
    stiff = torque(simulation, 0.0, q=0.1, kp=20.0) / 2.0
    drawn = simulation.drawn_parameters()["stiffness"][:, 0]
    assert_close(stiff.double(), drawn, atol=1e-5, rtol=0)
    damped = torque(simulation, -0.5, kd=4.0) / 2.0  # another beginning draws other motors
    drawn = simulation.drawn_parameters()["damping"][:, 0]
    assert_close(damped.double(), drawn, atol=1e-5, rtol=0)
    assert len(set(stiff.tolist())) == 3


def test_gains_overwritten_in_place_and_gains_after_a_restart_are_obeyed(tmp_path: Path) -> None:
    simulation = levers(tmp_path, 2)
    asked = command(simulation, q=0.1, kp=20.0)
    state = simulation.state_dict()
    simulation.step(asked)
    asked.kp.fill_(40.0)
    speed = simulation.engine.qvel.clone()
    simulation.step(asked)
    change = (simulation.engine.qvel - speed)[:, 0] / DT
    assert change.tolist() == pytest.approx([4.0, 4.0], rel=1e-3)  # 40 N m/rad over 0.1 rad
    simulation.load_state_dict(state)  # the engine has the gains of the spec again
    simulation.step(asked)
    assert simulation.engine.qvel[:, 0].tolist() == pytest.approx([4.0 * DT] * 2, rel=1e-3)


@pytest.mark.parametrize("joint", [{}, LINE], ids=["plain", "with line"])
@pytest.mark.parametrize(("delay", "steps"), [(0.0, 0), (0.001, 1), (0.0034, 3), (0.004, 4)])
def test_a_command_reaches_the_motor_after_its_delay_in_whole_physics_steps(
    tmp_path, joint, delay, steps
):
    simulation = levers(tmp_path, actuator_delay=delay, **joint)
    speeds = []
    for _ in range(steps + 2):
        simulation.step(command(simulation, tau=2.0))
        speeds.append(round(float(simulation.true_state.joint_velocity) / (2.0 * DT)))
    assert speeds == [0] * steps + [1, 2]


def test_a_drawn_delay_adds_to_that_of_the_joint(tmp_path: Path) -> None:
    ranges = JointRandomization(actuator_delay=[0.0, 0.003])
    simulation = levers(tmp_path, 40, ranges=ranges, actuator_delay=0.001)
    waited = torch.zeros(40)
    for _ in range(6):
        simulation.step(command(simulation, tau=2.0))
        waited += simulation.true_state.joint_velocity[:, 0] == 0
    drawn = simulation.drawn_parameters()["actuator_delay"][:, 0]
    assert_close(waited.double(), ((0.001 + drawn) / DT).round())
    assert sorted(set(waited.tolist())) == [1, 2, 3, 4]


def test_a_new_episode_obeys_no_command_of_the_last_one(tmp_path: Path) -> None:
    simulation = levers(tmp_path, 2, actuator_delay=0.003)
    for _ in range(4):
        simulation.step(command(simulation, tau=2.0))
    place(simulation, torch.tensor([True, False]))
    simulation.step(command(simulation, tau=0.0))
    moving = simulation.true_state.joint_velocity[:, 0] != 0
    assert moving.tolist() == [False, True]


def test_a_delayed_arm_with_other_gains_than_declared_begins_at_rest() -> None:
    """The torque at a start is the spec's torque at rest under the episode's own gains."""
    robot = panda(noise=False)
    for joint in robot.spec.joints:
        joint.actuator_delay = 0.02
    simulation = arms(4, robot=robot, randomization=JointRandomization(stiffness=0.3, damping=0.3))
    simulation.step(hold(simulation))
    assert float(simulation.true_state.joint_velocity.abs().max()) < 1e-3


def test_stribeck_friction_follows_its_curve_by_hand(tmp_path: Path) -> None:
    simulation = levers(tmp_path, **STUCK)
    for speed in (0.0, 0.05, 0.1):
        place(simulation, torch.tensor([True]), speed=speed)
        simulation.step(command(simulation))
        friction = float(simulation.engine.model_field("dof_frictionloss")[0, 0])
        assert friction == pytest.approx(1 + 0.5 * math.exp(-((speed / 0.05) ** 2)), rel=1e-5)


def test_drawn_coulomb_friction_keeps_the_excess_at_rest(tmp_path: Path) -> None:
    simulation = levers(tmp_path, ranges=JointRandomization(joint_friction=[2.0, 2.0]), **STUCK)
    for tau, stays in ((2.4, True), (2.6, False)):
        place(simulation, torch.tensor([True]))
        for _ in range(100):
            simulation.step(command(simulation, tau=tau))
        assert (float(simulation.true_state.joint_velocity.abs()) < CREEP) == stays


@pytest.mark.slow
def test_armature_and_viscous_friction_are_those_of_the_spec(tmp_path: Path) -> None:
    heavy = levers(tmp_path, armature=3.0)
    thick = levers(tmp_path, viscous_friction=4.0)
    for simulation in (heavy, thick):
        for _ in range(2000):
            simulation.step(command(simulation, tau=2.0))
    assert float(heavy.true_state.joint_velocity) == pytest.approx(2.0 * 2.0 / 4.0, rel=1e-4)
    assert float(thick.true_state.joint_velocity) == pytest.approx(2.0 / 4.0, rel=1e-3)
