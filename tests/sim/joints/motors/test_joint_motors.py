"""Motors by hand: the torque-speed line, strength, gains, delay and friction of a lever."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from robot_rl.core.errors import ConfigError
from sim.robots.joint_robot import JointRandomization
from tests.sim.arms import arms, hold, panda
from tests.sim.levers import DT, command, levers, place, torque

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
def test_the_torque_falls_along_the_line_from_stall_to_no_load_speed(
    tmp_path: Path, speed: float, most: float, least: float
) -> None:
    simulation = levers(tmp_path, **LINE)
    for tau, expected in ((1000.0, most), (-1000.0, least)):
        assert float(torque(simulation, speed, tau=tau)) == pytest.approx(expected, abs=1e-5)


def test_the_stall_torque_is_the_effort_limit_unless_it_is_given(tmp_path: Path) -> None:
    simulation = levers(tmp_path, effort_limit=15.0, no_load_speed=10.0)
    assert float(torque(simulation, 0.0, tau=99.0)) == pytest.approx(15.0)
    assert float(torque(simulation, 4.0, tau=99.0)) == pytest.approx(9.0, abs=1e-5)


def test_a_motor_without_effort_limit_is_bound_by_its_line_alone(tmp_path: Path) -> None:
    simulation = levers(tmp_path, stall_torque=20.0, no_load_speed=10.0)
    assert float(torque(simulation, 0.0, tau=99.0)) == pytest.approx(20.0)
    assert float(torque(simulation, -10.0, tau=99.0)) == pytest.approx(40.0, abs=1e-5)  # braking


def test_both_kinds_of_motor_keep_the_law_of_the_joint_command(tmp_path: Path) -> None:
    values = {"q": 0.1, "dq": 0.5, "tau": 0.3, "kp": 20.0, "kd": 2.0}
    expected = 20 * 0.1 + 2 * (0.5 - 1.5) + 0.3
    for joint in ({}, LINE):
        got = torque(levers(tmp_path, **joint), 1.5, **values)
        assert float(got) == pytest.approx(expected, abs=1e-5)


def test_a_lever_under_full_torque_runs_up_to_the_no_load_speed_and_no_further(
    tmp_path: Path,
) -> None:
    simulation = levers(tmp_path, stall_torque=20.0, no_load_speed=10.0)
    for step in range(1, 3001):
        simulation.step(command(simulation, tau=1e6))
        if step in (250, 500, 3000):  # w0 (1 - exp(-t stall / (w0 I))), a time constant of 0.5 s
            expected = 10 * (1 - math.exp(-step * DT / 0.5))
            speed = float(simulation.true_state.joint_velocity)
            assert speed == pytest.approx(expected, rel=2e-3)  # backward Euler at 1/500 of it
            assert speed <= 10.0


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
    torch.testing.assert_close(one.joint_position, two.joint_position, atol=1e-5, rtol=0)


def test_a_line_keeps_an_arm_below_its_no_load_speed() -> None:
    """A motor without a line runs past the published speed limit: 1.9 times in a trained reach."""
    plain = panda(noise=False, limit_target_speed=False)
    joints = [replace(joint, no_load_speed=joint.velocity_limit) for joint in plain.spec.joints]
    lined = replace(plain, spec=replace(plain.spec, joints=joints))
    fastest = []
    for robot in (plain, lined):
        simulation = arms(1, robot=robot)
        speeds = []
        for _ in range(6):
            far = hold(simulation).q.clone()
            far[:, 0] += 2.5
            simulation.step(replace(hold(simulation), q=far))
            speeds.append(float(simulation.true_state.joint_velocity[0, 0]))
        fastest.append(max(speeds))
    limit = plain.spec.joints[0].velocity_limit
    assert fastest[0] > 1.2 * limit
    assert fastest[1] < limit


def test_strength_scales_limit_and_stall_torque_and_not_the_speed(tmp_path: Path) -> None:
    weak = JointRandomization(motor_strength=[0.5, 0.5])
    simulation = levers(tmp_path, ranges=weak, **LINE)
    assert float(torque(simulation, 0.0, tau=99.0)) == pytest.approx(7.5)
    assert float(torque(simulation, 5.0, tau=99.0)) == pytest.approx(5.0, abs=1e-5)
    assert float(torque(simulation, 10.0, tau=99.0)) == pytest.approx(0.0, abs=1e-5)
    plain = levers(tmp_path, ranges=weak, effort_limit=15.0)
    assert float(torque(plain, 0.0, tau=99.0)) == pytest.approx(7.5)


def test_strength_without_any_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"motor_strength.*'lever' has none.*effort_limit"):
        levers(tmp_path, ranges=JointRandomization(motor_strength=[0.5, 1.0]))


@pytest.mark.parametrize("joint", [{}, LINE], ids=["plain", "with line"])
def test_drawn_gains_multiply_what_is_commanded(tmp_path: Path, joint: dict[str, Any]) -> None:
    ranges = JointRandomization(stiffness=0.5, damping=0.5)
    simulation = levers(tmp_path, 3, ranges=ranges, **joint)
    stiff = torque(simulation, 0.0, q=0.1, kp=20.0) / 2.0
    drawn = simulation.drawn_parameters()["stiffness"][:, 0]
    torch.testing.assert_close(stiff.double(), drawn, atol=1e-5, rtol=0)
    damped = torque(simulation, -0.5, kd=4.0) / 2.0  # another beginning draws other motors
    drawn = simulation.drawn_parameters()["damping"][:, 0]
    torch.testing.assert_close(damped.double(), drawn, atol=1e-5, rtol=0)
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
    tmp_path: Path, joint: dict[str, Any], delay: float, steps: int
) -> None:
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
    torch.testing.assert_close(waited.double(), ((0.001 + drawn) / DT).round())
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
    """What waits at a start is the spec's torque at rest under the episode's own gains."""
    robot = panda(noise=False)
    for joint in robot.spec.joints:
        joint.actuator_delay = 0.02
    simulation = arms(4, robot=robot, randomization=JointRandomization(stiffness=0.3, damping=0.3))
    simulation.step(hold(simulation))
    assert float(simulation.true_state.joint_velocity.abs().max()) < 1e-3


def test_coulomb_friction_holds_and_then_slows(tmp_path: Path) -> None:
    simulation = levers(tmp_path, friction=1.0)
    for tau, speed in ((0.9, 0.0), (3.0, 2.0 * 0.1)):
        place(simulation, torch.tensor([True]))
        for _ in range(100):
            simulation.step(command(simulation, tau=tau))
        assert float(simulation.true_state.joint_velocity) == pytest.approx(speed, abs=2e-3)


def test_static_friction_holds_longer_than_it_slows(tmp_path: Path) -> None:
    simulation = levers(tmp_path, **STUCK)
    for _ in range(200):
        simulation.step(command(simulation, tau=1.4))
    assert float(simulation.true_state.joint_velocity.abs()) < CREEP
    for _ in range(1000):
        simulation.step(command(simulation, tau=2.0))
    before = float(simulation.true_state.joint_velocity)
    assert before > 0.5  # ten times the Stribeck speed: only Coulomb's friction is left
    for _ in range(100):
        simulation.step(command(simulation, tau=2.0))
    assert float(simulation.true_state.joint_velocity) - before == pytest.approx(0.1, abs=1e-3)


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


def test_armature_and_viscous_friction_are_those_of_the_spec(tmp_path: Path) -> None:
    heavy = levers(tmp_path, armature=3.0)
    thick = levers(tmp_path, viscous_friction=4.0)
    for simulation in (heavy, thick):
        for _ in range(2000):
            simulation.step(command(simulation, tau=2.0))
    assert float(heavy.true_state.joint_velocity) == pytest.approx(2.0 * 2.0 / 4.0, rel=1e-4)
    assert float(thick.true_state.joint_velocity) == pytest.approx(2.0 / 4.0, rel=1e-3)
