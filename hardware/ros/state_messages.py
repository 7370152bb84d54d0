"""Measurements of a robot as standard messages, and back.

| topic | message | fields of `RobotState` | frame |
|---|---|---|---|
| `joint_states` | sensor_msgs/JointState | joint_position, joint_velocity, joint_effort, by name | base_link |
| `imu/data` | sensor_msgs/Imu | orientation_w, angular_velocity_b, linear_acceleration_b | imu_link |
| `odom` | nav_msgs/Odometry | position_w, linear_velocity_w (sent in body axes) | odom, child base_link |
| `ee_pose` | geometry_msgs/PoseStamped | end_effector_position_b, end_effector_orientation_b | base_link |
| `wrench` | geometry_msgs/WrenchStamped | wrench_ee | end_effector |
| `foot_forces` | sensor_msgs/JointState | foot_force as effort, by the name of the foot | base_link |
| `gripper_state` | sensor_msgs/JointState | gripper_opening as position of "gripper" | base_link |

Axes: x forward, y left, z up (REP-103). Frames are those of REP-105 and of the robot's URDF, behind
the namespace of the sender: `go2/base_link`. Nobody here looks at the frames of what is received.
Quaternions are wxyz here and xyzw there. Every header's stamp is the time of the measurement.
"""  # noqa: E501 - a table

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np

from hardware.ros.message_parts import (
    Fields,
    NamedValues,
    get_quaternion,
    get_vector,
    put_quaternion,
    put_stamp,
    put_vector,
    to_nanoseconds,
)
from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.quaternion import rotate, rotate_inverse
from robot_rl.core.robot import RobotSpec

BASE_FRAME, IMU_FRAME, ODOM_FRAME, TIP_FRAME = "base_link", "imu_link", "odom", "end_effector"
GRIPPER = "gripper"
"""Name of the gripper in messages: its opening is a fraction of the largest."""


@dataclass(frozen=True, kw_only=True)
class StateTopic:
    """One topic of measurements."""

    name: str
    """Relative to the robot's namespace."""
    package: str
    message: str
    fields: tuple[str, ...]
    """Fields of this robot that it carries."""
    encode: Callable[[Fields, Any], None]
    """Writes fields into a message."""
    decode: Callable[[Any, Fields], None]
    """Writes a message into fields; raises SpecMismatchError where names do not fit."""
    frame: str
    """Frame of the header."""
    frame_prefix: str = ""
    """Namespace of the sender before the names of frames, such as `go2/`."""

    def pack(self, fields: Fields, message: Any, stamp: int) -> None:
        """Write fields, measured at a time [ns], into an empty message."""
        put_stamp(message.header, stamp)
        message.header.frame_id = self.frame_prefix + self.frame
        if self.frame == ODOM_FRAME:
            message.child_frame_id = self.frame_prefix + BASE_FRAME
        self.encode(fields, message)

    def unpack(self, message: Any, fields: Fields) -> int:
        """Write a message into fields; returns when it was measured [ns].

        Raises:
            SpecMismatchError: It is refused; nothing of it is in the fields then.
        """
        read = {name: fields[name].copy() for name in self.fields}
        self.decode(message, read)
        for name, value in read.items():
            fields[name][:] = value
        return to_nanoseconds(message.header.stamp)


def state_topics(robot: RobotSpec) -> list[StateTopic]:
    """The topics that a robot's declared sensors need."""
    measured = robot.state_widths
    topics = []
    for name, package, message, fields, frame, make in _KINDS:
        here = tuple(field for field in fields if field in measured)
        if here:
            encode, decode = make(robot, here)
            topic = StateTopic(
                name=name, package=package, message=message, fields=here, encode=encode,
                decode=decode, frame=frame,
            )  # fmt: skip
            topics.append(topic)
    return topics


Codec: TypeAlias = tuple[Callable[[Fields, Any], None], Callable[[Any, Fields], None]]


def _joints(robot: RobotSpec, fields: tuple[str, ...]) -> Codec:
    lists = {"joint_position": "position", "joint_velocity": "velocity", "joint_effort": "effort"}
    return _named(
        NamedValues("joint", robot.joint_names), {field: lists[field] for field in fields}
    )


def _named(values: NamedValues, lists: Mapping[str, str]) -> Codec:
    def encode(state: Fields, message: Any) -> None:
        message.name = [*values.names]
        for field, entry in lists.items():
            setattr(message, entry, values.write(state[field]))

    def decode(message: Any, state: Fields) -> None:
        for field, entry in lists.items():
            if not len(found := getattr(message, entry)):  # read as zeros it would say "at rest"
                raise SpecMismatchError(
                    f"a message of {values.what}s has no {entry}, and {field} is measured by this "
                    "robot; publish it, or leave it out of the robot's spec.sensors"
                )
            values.read(message.name, found, state[field])

    return encode, decode


def _imu(robot: RobotSpec, fields: tuple[str, ...]) -> Codec:
    names = {
        "orientation_w": "orientation",
        "angular_velocity_b": "angular_velocity",
        "linear_acceleration_b": "linear_acceleration",
    }
    encode_vectors, decode_vectors = _vectors(**names)(robot, fields)
    unknown = "orientation_w" not in fields
    declared = {field: attrgetter(f"{names[field]}_covariance") for field in fields}

    def encode(state: Fields, message: Any) -> None:
        encode_vectors(state, message)
        if unknown:
            message.orientation_covariance[0] = -1.0  # sensor_msgs/Imu: there is none

    def decode(message: Any, state: Fields) -> None:
        decode_vectors(message, state)
        for field, covariance in declared.items():
            if covariance(message)[0] == -1:  # sensor_msgs/Imu: the element is no estimate
                raise SpecMismatchError(
                    f"a message of the IMU says that its {names[field]} is no estimate "
                    f"(covariance -1), and {field} is measured by this robot; let a filter "
                    "estimate it, or leave it out of the robot's spec.sensors"
                )

    return encode, decode


def _vectors(**paths: str) -> Callable[[RobotSpec, tuple[str, ...]], Codec]:
    """Fields that are vectors or quaternions somewhere inside a message."""

    def make(robot: RobotSpec, fields: tuple[str, ...]) -> Codec:
        del robot
        places = {field: attrgetter(paths[field]) for field in fields}

        def encode(state: Fields, message: Any) -> None:
            for field, place in places.items():
                put = put_quaternion if state[field].shape[-1] == 4 else put_vector
                put(place(message), state[field])

        def decode(message: Any, state: Fields) -> None:
            for field, place in places.items():
                get = get_quaternion if state[field].shape[-1] == 4 else get_vector
                get(place(message), state[field])

        return encode, decode

    return make


def _odom(robot: RobotSpec, fields: tuple[str, ...]) -> Codec:
    """Velocities travel in body axes, as the message says, and are turned by its own attitude.

    A robot without an attitude sensor sends world axes with a level attitude, which is the same.
    """
    turned = "orientation_w" in robot.state_widths

    def encode(state: Fields, message: Any) -> None:
        if "position_w" in fields:
            put_vector(message.pose.pose.position, state["position_w"])
        if turned:
            put_quaternion(message.pose.pose.orientation, state["orientation_w"])
        if "linear_velocity_w" in fields:
            velocity = state["linear_velocity_w"]
            if turned:
                velocity = rotate_inverse(state["orientation_w"], velocity)
            put_vector(message.twist.twist.linear, velocity)

    def decode(message: Any, state: Fields) -> None:
        if "position_w" in fields:
            get_vector(message.pose.pose.position, state["position_w"])
        if "linear_velocity_w" in fields:
            velocity = np.zeros((1, 3))
            get_vector(message.twist.twist.linear, velocity)
            attitude = np.zeros((1, 4))
            get_quaternion(message.pose.pose.orientation, attitude)
            state["linear_velocity_w"][:] = rotate(attitude, velocity)

    return encode, decode


def _wrench(robot: RobotSpec, fields: tuple[str, ...]) -> Codec:
    del robot, fields

    def encode(state: Fields, message: Any) -> None:
        put_vector(message.wrench.force, state["wrench_ee"][:, :3])
        put_vector(message.wrench.torque, state["wrench_ee"][:, 3:])

    def decode(message: Any, state: Fields) -> None:
        get_vector(message.wrench.force, state["wrench_ee"][:, :3])
        get_vector(message.wrench.torque, state["wrench_ee"][:, 3:])

    return encode, decode


_KINDS: tuple[tuple[str, str, str, tuple[str, ...], str, Callable[..., Codec]], ...] = (
    ("joint_states", "sensor_msgs", "JointState",
     ("joint_position", "joint_velocity", "joint_effort"), BASE_FRAME, _joints),
    ("imu/data", "sensor_msgs", "Imu",
     ("orientation_w", "angular_velocity_b", "linear_acceleration_b"), IMU_FRAME, _imu),
    ("odom", "nav_msgs", "Odometry", ("position_w", "linear_velocity_w"), ODOM_FRAME, _odom),
    ("ee_pose", "geometry_msgs", "PoseStamped",
     ("end_effector_position_b", "end_effector_orientation_b"), BASE_FRAME,
     _vectors(end_effector_position_b="pose.position",
              end_effector_orientation_b="pose.orientation")),
    ("wrench", "geometry_msgs", "WrenchStamped", ("wrench_ee",), TIP_FRAME, _wrench),
    ("foot_forces", "sensor_msgs", "JointState", ("foot_force",), BASE_FRAME,
     lambda robot, _: _named(NamedValues("foot", robot.feet), {"foot_force": "effort"})),
    ("gripper_state", "sensor_msgs", "JointState", ("gripper_opening",), BASE_FRAME,
     lambda *_: _named(NamedValues("gripper", [GRIPPER]), {"gripper_opening": "position"})),
)  # fmt: skip
