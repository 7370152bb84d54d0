"""Topics of somebody else's node: what cannot be meant is refused in words."""

from dataclasses import replace

import pytest

from hardware.ros.foreign_commands import Wiring
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import RobotSpec
from tests.compositions import composed

_TASKS = {"go2": "velocity", "panda": "lift", "crazyflie": "hover"}


def robot_named(name: str) -> RobotSpec:
    return composed([f"task={_TASKS[name]}", f"robot={name}"]).config.robot.spec


@pytest.mark.parametrize(
    ("robot", "wiring", "told"),
    [
        ("go2", {"form": "trajectori"}, r"form of commands 'trajectori' is unknown .*'trajectory'"),
        ("go2", {"topics": {"joints": "x"}}, r"topic 'joints' is unknown .*'joint_states'"),
        ("go2", {"source": "/go2"}, "/go2/joint_states was given .* choose another namespace="),
        ("go2", {"source": "a b"}, "topic '/a b/joint_states' is no name in ROS"),
        ("go2", {"topics": {"imu/data": "/2nd"}}, "topic '/2nd' is no name in ROS"),
        ("go2", {"topics": {"imu/data": "joint_states"}}, "were both given the name /joint_states"),
        ("go2", {"topics": {"command": "joint_states"}}, "'joint_states' and 'command' were both"),
        ("go2", {"order": ["elbow"]}, "joint 'elbow' is unknown"),
        ("go2", {"order": ["FL_hip_joint"]}, "must name each of .* missing: .'FL_thigh_joint'"),
        ("panda", {"form": "positions"}, "missing: .'gripper'"),
        ("panda", {"form": "efforts"}, "torques do not say how far the gripper of robot 'panda'"),
        ("crazyflie", {"form": "positions"}, "known: native"),
    ],
)
def test_wiring_that_cannot_be_meant_is_refused(robot, wiring, told):
    spec = robot_named(robot)
    with pytest.raises(ConfigError, match=told):
        Wiring(**wiring).check(spec, f"/{robot}")


@pytest.mark.parametrize("source", ["/arm", "arm", "arm/"])
def test_names_lie_below_the_source_and_messages_of_one_kind_may_share_one(source):
    topics = {"foot_forces": "joint_states", "imu/data": "/imu"}
    found = Wiring(source=source, topics=topics).check(robot_named("go2"), "/go2").topics
    expected = {"joint_states": "/arm/joint_states", "foot_forces": "/arm/joint_states"}
    assert found == {**expected, "imu/data": "/imu", "command": "/arm/joint_command"}


def test_torques_need_a_measured_speed():
    spec = robot_named("go2")
    sensors = {name: s for name, s in spec.sensors.items() if name != "joint_velocity"}
    with pytest.raises(ConfigError, match=r"\['joint_velocity'\], which robot 'go2' does not"):
        Wiring(form="efforts").check(replace(spec, sensors=sensors), "/go2")
