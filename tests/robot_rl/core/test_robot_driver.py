"""The command that holds a robot safe."""

from dataclasses import replace

import numpy as np
import pytest

from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import JointSpec, RobotSpec
from robot_rl.core.robot_command import BodyRateCommand, CommandKind, JointCommand, RotorCommand
from robot_rl.core.robot_driver import safe_command

DRONE = RobotSpec(name="drone", command=CommandKind.rotors, rotors=["a", "b", "c"])


def test_joints_are_damped_and_nothing_else():
    joints = [
        JointSpec(
            name=name, position_limit=[-1, 1], velocity_limit=1, effort_limit=1,
            stiffness=9, damping=damping,
        )
        for name, damping in (("hip", 0.5), ("knee", 2.0))
    ]  # fmt: skip
    told = safe_command(RobotSpec(name="leg", command=CommandKind.joint, joints=joints))
    assert isinstance(told, JointCommand)
    np.testing.assert_array_equal(told.kd, [[0.5, 2.0]])
    for value in (told.q, told.dq, told.tau, told.kp):
        np.testing.assert_array_equal(value, np.zeros((1, 2)))


def test_rotors_stand_still_and_a_robot_that_takes_something_else_is_named():
    told = safe_command(DRONE)
    assert isinstance(told, RotorCommand)
    np.testing.assert_array_equal(told.speed, np.zeros((1, 3)))
    told = safe_command(replace(DRONE, command=CommandKind.body_rates))
    assert isinstance(told, BodyRateCommand)
    assert not told.rates_b.any()
    assert not told.thrust.any()
    with pytest.raises(ConfigError, match=r"'drone' takes 'twist' commands, .* known: joint, rot"):
        safe_command(replace(DRONE, command=CommandKind.twist))
