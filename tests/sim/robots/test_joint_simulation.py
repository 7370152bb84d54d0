"""Simulated arms: motors, drawn parameters, what is measured, and what is refused."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robot_rl.core.errors import ConfigError, DeviceError, SpecMismatchError
from robot_rl.core.robot import JointSpec, SensorSpec
from sim.physics.mujoco_model import ROBOTS
from sim.robots.joint_robot import JointRandomization, JointRobotConfig
from sim.robots.joint_simulation import MujocoSimulation
from tests.sim.arms import CPU, arms, begin, hold, panda


def test_an_arm_at_rest_stays_there_and_a_payload_is_not_compensated():
    simulation = arms(2)
    before = simulation.true_state.joint_position.clone()
    for _ in range(25):
        simulation.step(hold(simulation))
    torch.testing.assert_close(simulation.true_state.joint_position, before, atol=1e-5, rtol=0)
    simulation = arms(2, randomization=JointRandomization(payload=[2.0, 2.0]))
    height = simulation.true_state.end_effector_position_b[:, 2].clone()
    for _ in range(25):
        simulation.step(hold(simulation))
    sag = height - simulation.true_state.end_effector_position_b[:, 2]
    # The shoulder alone bends by m g r / k = 2 * 9.81 * 0.31 / 600 = 0.01 rad, at 0.31 m: 3 mm.
    assert ((sag > 0.002) & (sag < 0.02)).all()


def test_a_world_at_fault_is_flagged_and_begins_anew(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings into the working directory
    simulation = arms(3)
    simulation.engine.qvel[1, 0] = float("nan")
    simulation.step(hold(simulation))
    assert simulation.fault.tolist() == [False, True, False]
    assert all(value.isfinite().all() for value in simulation.true_state.fields.values())
    begin(simulation, torch.tensor([False, True, False]))
    assert not simulation.fault.any()


def build(robot: JointRobotConfig, **ranges: Any) -> MujocoSimulation:
    drawn = JointRandomization(**ranges)
    return MujocoSimulation(robot, drawn, num_worlds=2, device=CPU, seed=0)


def test_sensors_and_joints_that_differ_from_the_model_are_refused_by_name():
    robot = panda()
    robot.spec.sensors["linear_velocity_w"] = SensorSpec(rate_hz=1000)
    with pytest.raises(SpecMismatchError, match=r"'panda'.*'linear_velocity_w'.*panda\.xml"):
        build(robot)
    robot = panda()
    joints = robot.spec.joints
    swapped = replace(robot, spec=replace(robot.spec, joints=[joints[1], joints[0], *joints[2:]]))
    with pytest.raises(SpecMismatchError, match="another order"):
        build(swapped)
    strange = [*joints[:6], JointSpec(name="joint8")]
    with pytest.raises(SpecMismatchError, match=r"lacks \['joint8'\]"):
        build(replace(robot, spec=replace(robot.spec, joints=strange)))
    degrees = replace(joints[3], position_limit=[-176.0, -4.0])
    wrong = [*joints[:3], degrees, *joints[4:]]
    with pytest.raises(SpecMismatchError, match=r"'joint4'.*-176.*radians: is the spec in degrees"):
        build(replace(robot, spec=replace(robot.spec, joints=wrong)))


def test_limits_are_those_of_the_compiled_file_whatever_unit_it_is_written_in(tmp_path):
    text = (ROBOTS / "panda.xml").read_text()
    limits = [joint.position_limit for joint in panda().spec.joints]
    path = tmp_path / "panda.xml"
    path.write_text(text.replace('angle="radian"', 'angle="degree"'))
    with pytest.raises(SpecMismatchError, match=r"'joint1'.*0\.05.*take radians for degrees\?"):
        build(panda(model=str(path)))

    def in_degrees(match: re.Match[str]) -> str:
        numbers = [float(value) for value in match[1].split()]
        if numbers not in limits:
            return match[0]  # a finger's, which slides
        low, high = map(math.degrees, numbers)
        return f'range="{low!r} {high!r}"'

    turned = re.sub(r'range="([^"]*)"', in_degrees, text)
    path.write_text(turned)
    with pytest.raises(SpecMismatchError, match=r"'joint1'.*-166.*take degrees for radians"):
        build(panda(model=str(path)))
    path.write_text(turned.replace('angle="radian"', 'angle="degree"'))
    there, here = (build(panda(model=model)).engine.model for model in (str(path), "panda.xml"))
    np.testing.assert_allclose(there.jnt_range, here.jnt_range, rtol=1e-12)


@pytest.mark.parametrize(("dt", "gain"), [(0.1, 10.0), (0.005, 1e4)])
def test_an_unstable_step_is_refused_with_its_joint(dt, gain, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    robot = panda(physics_dt=dt)
    for joint in robot.spec.joints:
        joint.stiffness *= gain
        joint.effort_limit = float("inf")
    with pytest.raises(ConfigError, match=r"'panda' does not come to rest.*joint.*physics_dt"):
        build(robot)


def test_model_files_that_cannot_be_read_and_other_devices_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no model file .*pandda\.xml .did you mean .panda\.xml"):
        build(panda(model="pandda.xml"))
    broken = tmp_path / "broken.xml"
    broken.write_text("<mujoco><worldbody><body></mujoco>")
    with pytest.raises(ConfigError, match=r"'panda': MuJoCo refuses broken\.xml"):
        build(panda(model=str(broken)))
    loose = tmp_path / "loose.xml"
    text = (ROBOTS / "panda.xml").read_text()
    ball = '<body name="ball"><freejoint name="rolls"/><geom size="0.1"/></body></worldbody>'
    loose.write_text(text.replace("</worldbody>", ball))
    with pytest.raises(SpecMismatchError, match=r"\['rolls'\].*only the first joint may be free"):
        build(panda(model=str(loose)))
    with pytest.raises(DeviceError, match="on the CPU only"):
        MujocoSimulation(
            panda(), JointRandomization(), num_worlds=1, device=torch.device("cuda"), seed=0
        )
