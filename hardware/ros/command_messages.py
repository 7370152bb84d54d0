"""Commands to a robot as standard messages, and back.

| topic | message | what it carries |
|---|---|---|
| `joint_command` | sensor_msgs/JointState | q, dq, tau by the name of the joint |
| `rotor_command` | sensor_msgs/JointState | position: fraction of the largest speed, by name |
| `rates_thrust_setpoint` | geometry_msgs/TwistStamped | angular: rates; linear.z: thrust fraction |
| `pose_command` | geometry_msgs/PoseStamped | target of the end effector, axes of the base |

A header's stamp is that of the state which the command answers; `frame_id` names the gain set: a
command and its gains come as one message or not at all, and no standard one has a place for both.
Gains travel as names, because a message that carries numbers for them can turn any robot into
another one: sets are agreed on beforehand, and an unknown name is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hardware.ros.message_parts import (
    NamedValues,
    get_quaternion,
    get_vector,
    put_quaternion,
    put_stamp,
    put_vector,
    to_nanoseconds,
)
from hardware.ros.state_messages import GRIPPER
from robot_rl.core.errors import SpecMismatchError, unknown_name
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import (
    COMMANDS,
    BodyRateCommand,
    CommandKind,
    JointCommand,
    PoseCommand,
    RobotCommand,
    RotorCommand,
)


@dataclass(frozen=True, kw_only=True)
class Gains:
    """One set of gains, in the robot's joint order."""

    stiffness: np.ndarray
    """(1, J), [N m/rad]."""
    damping: np.ndarray
    """(1, J), [N m s/rad]."""


class CommandMessages:
    """Commands of one robot as messages of one topic."""

    def __init__(
        self, robot: RobotSpec, gain_sets: Mapping[str, Gains], kind: CommandKind | None = None
    ) -> None:
        """Prepare the lists.

        Args:
            gain_sets: Gains by name; used by joint commands only.
            kind: Of the commands, where a law of the robot process follows another than the
                driver's own.
        """
        self._kind = kind or robot.command
        self.topic, self.package, self.message = _TOPICS[self._kind]
        self._gripper = robot.gripper is not None
        self._joints = NamedValues("joint", robot.joint_names)
        self._fingers = NamedValues("gripper", [GRIPPER])
        self._rotors = NamedValues("rotor", robot.rotors)
        self._gain_sets = gain_sets
        self._checked: tuple[object, object, str] | None = None

    def pack(self, command: RobotCommand, message: Any, *, stamp: int, gains: str = "") -> None:
        """Write a command into an empty message.

        Args:
            command: (1, ...) arrays.
            stamp: Time of the state that is answered [ns].
            gains: Name of the gain set; for joint commands.

        Raises:
            SpecMismatchError: The command is of another kind than the robot's, or the gain set is
                unknown or is not what the command holds.
        """
        self.check(command, gains)
        put_stamp(message.header, stamp)
        match command:
            case JointCommand():
                message.header.frame_id = gains
                self._pack_joints(command, message)
            case RotorCommand():
                message.name = [*self._rotors.names]
                message.position = self._rotors.write(command.speed)
            case BodyRateCommand():
                put_vector(message.twist.angular, np.asarray(command.rates_b))
                message.twist.linear.z = float(np.asarray(command.thrust).ravel()[0])
            case PoseCommand():
                put_vector(message.pose.position, np.asarray(command.position_w))
                put_quaternion(message.pose.orientation, np.asarray(command.orientation_w))
            case _:
                raise AssertionError("`check` lets nothing else through")

    def check(self, command: RobotCommand, gains: str) -> None:
        """Refuse what cannot travel.

        Raises:
            SpecMismatchError: The command is of another kind than the robot's, or the gain set is
                unknown or is not what the command holds.
        """
        if not isinstance(command, COMMANDS[self._kind]):
            raise SpecMismatchError(
                f"the robot takes '{self._kind.value}' commands, got {type(command).__name__}"
            )
        if isinstance(command, JointCommand):
            self._check_gains(command, gains)
        if isinstance(command, PoseCommand) and command.gripper is not None:
            raise SpecMismatchError(
                "a pose command came with an opening of the gripper, for which its message has no "
                "place; deploy a policy whose actions move no gripper, or move joints by it"
            )

    @property
    def gain_names(self) -> list[str]:
        """Names of the gain sets; one empty name where commands need none."""
        return [*self._gain_sets] if self._kind is CommandKind.joint else [""]

    def examples(self, gains: str) -> list[RobotCommand]:
        """A command of zeros of every form that commands may have, (1, ...) arrays."""
        if self._kind is CommandKind.rotors:
            return [RotorCommand(speed=np.zeros((1, len(self._rotors.names))))]
        if self._kind is CommandKind.body_rates:
            return [BodyRateCommand(rates_b=np.zeros((1, 3)), thrust=np.zeros((1, 1)))]
        if self._kind is CommandKind.pose:
            return [PoseCommand(position_w=np.zeros((1, 3)), orientation_w=np.zeros((1, 4)))]
        held, none = self._gains(gains), np.zeros((1, len(self._joints.names)))
        bare = JointCommand(q=none, dq=none, tau=none, kp=held.stiffness, kd=held.damping)
        gripping: RobotCommand = replace(bare, gripper=np.zeros((1, 1)))
        return [gripping, bare] if self._gripper else [bare]

    def unpack(self, message: Any) -> tuple[RobotCommand, int]:
        """A message's command, and the time of the state that it answers [ns].

        Values that are not finite come through: the safety layer checks them.

        Raises:
            SpecMismatchError: Names do not fit, a list is missing, or the gain set is unknown.
        """
        stamp = to_nanoseconds(message.header.stamp)
        if self._kind is CommandKind.joint:
            return self._unpack_joints(message), stamp
        if self._kind is CommandKind.rotors:
            speed = np.full((1, len(self._rotors.names)), np.nan)
            self._rotors.read(message.name, message.position, speed)
            return RotorCommand(speed=speed), stamp
        if self._kind is CommandKind.pose:
            position, orientation = np.zeros((1, 3)), np.zeros((1, 4))
            get_vector(message.pose.position, position)
            get_quaternion(message.pose.orientation, orientation)
            return PoseCommand(position_w=position, orientation_w=orientation), stamp
        rates = np.zeros((1, 3))
        get_vector(message.twist.angular, rates)
        return BodyRateCommand(rates_b=rates, thrust=np.array([[message.twist.linear.z]])), stamp

    def _pack_joints(self, command: JointCommand, message: Any) -> None:
        columns = {"position": command.q, "velocity": command.dq, "effort": command.tau}
        fingers = self._gripper and command.gripper is not None
        message.name = [*self._joints.names, *([GRIPPER] if fingers else [])]
        for entry, values in columns.items():
            row = np.asarray(values, dtype=np.float64).ravel()
            if fingers:
                opening = np.asarray(command.gripper, dtype=np.float64).ravel()
                row = np.concatenate([row, opening if entry == "position" else [0.0]])
            setattr(message, entry, self._joints.write(row))

    def _unpack_joints(self, message: Any) -> JointCommand:
        gains = self._gains(message.header.frame_id)
        values = {}
        # Without a list there is no position to go to, but no speed and no torque are meant.
        for entry, absent in (("position", np.nan), ("velocity", 0.0), ("effort", 0.0)):
            values[entry] = np.full((1, len(self._joints.names)), absent)
            self._joints.read(message.name, getattr(message, entry), values[entry])
        opening = None
        if self._gripper and GRIPPER in message.name:
            opening = np.full((1, 1), np.nan)
            self._fingers.read(message.name, message.position, opening)
        return JointCommand(
            q=values["position"], dq=values["velocity"], tau=values["effort"],
            kp=gains.stiffness.copy(), kd=gains.damping.copy(), gripper=opening,
        )  # fmt: skip

    def _gains(self, name: str) -> Gains:
        if name not in self._gain_sets:
            raise SpecMismatchError(unknown_name("gain set", name, self._gain_sets))
        return self._gain_sets[name]

    def _check_gains(self, command: JointCommand, name: str) -> None:
        gains = self._gains(name)
        if self._checked is not None:  # a policy's commands share their constants
            kp, kd, checked = self._checked
            if kp is command.kp and kd is command.kd and checked == name:
                return
        for got, expected in ((command.kp, gains.stiffness), (command.kd, gains.damping)):
            if not np.allclose(got, expected, rtol=1e-6, atol=0.0):
                raise SpecMismatchError(
                    f"a command holds the gains {np.asarray(got).tolist()}, but the gain set "
                    f"'{name}' has {expected.tolist()}"
                )
        self._checked = command.kp, command.kd, name


_TOPICS = {
    CommandKind.joint: ("joint_command", "sensor_msgs", "JointState"),
    CommandKind.rotors: ("rotor_command", "sensor_msgs", "JointState"),
    CommandKind.body_rates: ("rates_thrust_setpoint", "geometry_msgs", "TwistStamped"),
    CommandKind.pose: ("pose_command", "geometry_msgs", "PoseStamped"),
}
