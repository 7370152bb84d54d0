"""A robot's description survives JSON and tells robots apart; the command that holds it safe."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.observation import STATE_FIELDS, RobotState
from robot_rl.core.robot import GripperSpec, JointSpec, RobotSpec, SensorSpec
from robot_rl.core.robot_command import BodyRateCommand, CommandKind, JointCommand, RotorCommand
from robot_rl.core.robot_driver import safe_command

HAND = GripperSpec(joints=["finger"])


def arm(**changes: Any) -> RobotSpec:
    values: dict[str, Any] = {
        "name": "arm",
        "joints": [JointSpec(name="a", effort_limit=5.0), JointSpec(name="b")],
        "sensors": {"joint_position": SensorSpec(noise=0.01), "orientation_w": SensorSpec()},
        "command": CommandKind.joint,
    }
    return RobotSpec(**(values | changes))


def test_description_survives_strict_json_even_without_limits():
    free = JointSpec(name="free", position_limit=[-math.inf, math.inf], armature=0.1)
    hand = GripperSpec(joints=["inf_finger"], speed=math.inf, force_limit=70.0)
    spec = arm(joints=[free, JointSpec(name="inf")], gripper=hand)
    again = RobotSpec.from_dict(json.loads(json.dumps(spec.to_dict(), allow_nan=False)))
    assert again == spec
    assert again.joints[0].velocity_limit == math.inf


def test_a_description_written_before_motors_feet_and_grippers_can_be_read():
    written = arm().to_dict()
    del written["feet"], written["gripper"]
    old = ("name", "position_limit", "velocity_limit", "effort_limit", "default_position",
           "stiffness", "damping")  # fmt: skip
    written["joints"] = [{key: joint[key] for key in old} for joint in written["joints"]]
    written["sensors"] = {
        name: {key: sensor[key] for key in ("rate_hz", "noise", "latency")}
        for name, sensor in written["sensors"].items()
    }
    assert RobotSpec.from_dict(written) == arm()


def test_state_widths_follow_sensors_and_joints():
    assert arm().state_widths == {"joint_position": 2, "orientation_w": 4}
    everything = RobotSpec(
        name="x", feet=["left", "right"], sensors={name: SensorSpec() for name in STATE_FIELDS}
    )
    assert list(everything.state_widths.values()) == [3, 4, 3, 3, 3, 3, 4, 1, 0, 0, 0, 2, 6]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"version": 2}, "version 1, but the robot at hand has version 2"),
        ({"joints": [JointSpec(name="b"), JointSpec(name="a")]}, "joint order"),
        ({"feet": ["f"]}, "foot order"),
        ({"gripper": None}, r"gripper \['finger'\], but the robot at hand has gripper \[\]"),
        ({"command": CommandKind.pose}, "command joint, but the robot at hand has command pose"),
        ({"sensors": {"joint_position": SensorSpec()}}, r"reads \['orientation_w'\]"),
    ],
)
def test_another_robot_is_told_apart(changes, sentence):
    with pytest.raises(SpecMismatchError, match=sentence):
        arm(gripper=HAND).check_compatible(arm(**({"gripper": HAND} | changes)))


def test_a_robot_that_measures_more_or_has_a_gripper_is_compatible():
    arm().check_compatible(arm(gripper=HAND))
    arm().check_compatible(arm(sensors=arm().sensors | {"joint_velocity": SensorSpec()}))


@pytest.mark.parametrize(
    ("make", "values", "sentence"),
    [
        (JointSpec, {"actuator_delay": math.inf}, "joint 'a': actuator_delay must be >= 0"),
        (JointSpec, {"no_load_speed": 9.0}, "stall_torque > 0 or a finite effort_limit, got inf"),
        (JointSpec, {"static_friction": 1.0}, "needs a stribeck_velocity > 0"),
        (
            JointSpec,
            {"static_friction": 1.0, "stribeck_velocity": 0.1, "friction": 2.0},
            "not be below",
        ),
        (arm, {"sensors": {"positon_w": SensorSpec()}}, "did you mean 'position_w'"),
        (arm, {"joints": [JointSpec(name="a"), JointSpec(name="a")]}, "distinct names"),
        (SensorSpec, {"latency": math.nan}, "latency"),
        (SensorSpec, {"dropout": 1.0}, "dropout"),
        (GripperSpec, {"joints": ["a", "a"]}, "distinct finger joints"),
    ],
)
def test_what_no_robot_has_is_refused(make, values, sentence):
    named = {"name": "a", **values} if make is JointSpec else values
    with pytest.raises(ConfigError, match=sentence):
        make(**named)


def test_state_has_only_what_was_measured():
    state = RobotState({"position_w": np.zeros((1, 3))})
    assert state.position_w.shape == (1, 3)
    with pytest.raises(SpecMismatchError, match=r"'joint_velocity' .* only \['position_w'\]"):
        _ = state.joint_velocity
    with pytest.raises(SpecMismatchError, match="did you mean 'position_w'"):
        RobotState({"position": np.zeros((1, 3))})


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
    with pytest.raises(ConfigError, match=r"'drone' takes 'pose' commands, .* known: joint, rot"):
        safe_command(replace(DRONE, command=CommandKind.pose))
