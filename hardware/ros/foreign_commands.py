"""Topics and forms of commands of a robot that somebody else's node drives.

| form | message | default topic | taken by |
|---|---|---|---|
| `joint_state` | sensor_msgs/JointState, by name | `joint_command` | many vendors' nodes |
| `trajectory` | trajectory_msgs/JointTrajectory, one point | `joint_trajectory_controller/joint_trajectory` | joint_trajectory_controller |
| `positions` | std_msgs/Float64MultiArray | `forward_position_controller/commands` | forward_command_controller |
| `efforts` | std_msgs/Float64MultiArray, torques | `forward_effort_controller/commands` | the same |
| `native` | see `command_messages` | see there | robots without joints |

Most nodes take positions and have gains of their own. What this side calls damping (no stiffness)
is then a pose that is kept: the one commanded last where the stiffness has faded, because the
measured one lies lower under gravity and would sag again; the measured one where it ended at once,
in an emergency stop, so that the robot does not finish its motion. Before the loop has ever
driven the robot nothing is sent, so that a node that holds or damps by itself goes on doing so.
With `efforts` the law is worked out here, and damping is damping.
"""  # noqa: E501 - a table

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hardware.ros.command_messages import CommandMessages, Gains
from hardware.ros.compat import message
from hardware.ros.message_parts import put_stamp
from hardware.ros.state_messages import GRIPPER, state_topics
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import JointCommand, RobotCommand

COMMAND = "command"
"""The command's entry in `Wiring.topics`."""
FORMS = {
    # form: package, message, topic
    "joint_state": ("sensor_msgs", "JointState", "joint_command"),
    "trajectory": ("trajectory_msgs", "JointTrajectory",
                   "joint_trajectory_controller/joint_trajectory"),
    "positions": ("std_msgs", "Float64MultiArray", "forward_position_controller/commands"),
    "efforts": ("std_msgs", "Float64MultiArray", "forward_effort_controller/commands"),
}  # fmt: skip
"""Forms of commands to joints."""
NATIVE = "native"
"""Form of commands to robots without joints."""
_NAME = re.compile(r"(/[A-Za-z_][A-Za-z0-9_]*)+")


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """Topics of a robot that somebody else's node drives."""

    source: str = "/"
    """Namespace of the topics."""
    topics: Mapping[str, str] = field(default_factory=dict[str, str])
    """Topics with other names: `joint_states`, `imu/data`, ... or `command` -> theirs."""
    form: str = ""
    """Of commands; by the kind of robot if empty."""
    order: Sequence[str] = ()
    """Names in arrays, in their order; the robot's joints if empty."""
    grips: bool = True
    """Commands move the robot's gripper, if it has one; else it may be left out."""

    def check(self, robot: RobotSpec, ours: str) -> "Wiring":
        """Refuse what cannot be meant; returns the wiring with everything filled in.

        Args:
            ours: Namespace in which this deployment publishes.

        Raises:
            ConfigError: A topic, form or joint is unknown, or a topic would be heard and
                published by this deployment.
        """
        form = self.form or ("joint_state" if robot.joints else NATIVE)
        forms = [*FORMS] if robot.joints else [NATIVE]
        if form not in forms:
            raise ConfigError(unknown_name("form of commands", form, forms))
        known = [topic.name for topic in state_topics(robot)]
        for name in self.topics:
            if name not in (*known, COMMAND):
                raise ConfigError(unknown_name("topic", name, [*known, COMMAND]))
        native = CommandMessages(robot, {})
        command = FORMS[form][2] if robot.joints else native.topic
        names = {**{name: name for name in known}, COMMAND: command, **self.topics}
        resolved = {name: self.place(topic) for name, topic in names.items()}
        own = {absolute_name("topic", ours, name) for name in (*known, native.topic)}
        for topic in resolved.values():
            if topic in own:
                raise ConfigError(
                    f"{topic} was given as a topic of the robot's node, but this deployment "
                    f"publishes or hears it for the policy; choose another namespace= than {ours}"
                )
        _check_apart(robot, resolved)
        wired = replace(self, topics=resolved, form=form)
        if form == "efforts":
            _check_torques(robot, grips=self.grips or GRIPPER in self.order)
        return replace(wired, order=wired.names(robot))

    def names(self, robot: RobotSpec) -> list[str]:
        """Names that commands carry, in order.

        Raises:
            ConfigError: A joint is unknown, missing or named twice, or a gripper that is moved is.
        """
        own = [*robot.joint_names, *([GRIPPER] if robot.gripper else [])]
        carries = own if self.form == "joint_state" else robot.joint_names
        names = [*self.order] or carries
        for name in names:
            if name not in own:
                raise ConfigError(unknown_name("joint", name, own))
        needed = own if self.grips else robot.joint_names
        missing = [name for name in needed if name not in names]
        if self.form != NATIVE and missing == [GRIPPER] and not self.order:
            raise ConfigError(
                f"the form of commands '{self.form}' has no place for the gripper of robot "
                f"'{robot.name}' by itself, and the policy moves it: take command=joint_state, or "
                f"a node that takes it as one more joint: joints=[{','.join(own)}]"
            )
        if self.form != NATIVE and (missing or len({*names}) != len(names)):
            raise ConfigError(
                f"joints={names} must name each of {[*needed]} once; missing: {missing or 'none'}"
            )
        return names

    def place(self, topic: str) -> str:
        """Absolute name of a topic of theirs.

        Raises:
            ConfigError: It is no name.
        """
        return absolute_name("topic", "" if topic.startswith("/") else self.source, topic)


def absolute_name(what: str, *parts: str) -> str:
    """Names in ROS, one below the other, such as `/arm/joint_states`.

    Args:
        parts: With or without slashes at their ends; empty ones do not count.

    Raises:
        ConfigError: They are no names.
    """
    name = "".join(f"/{part.strip('/')}" for part in parts if part.strip("/"))
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{what} '{name}' is no name in ROS; expected words of letters, digits and _, of which "
            "none begins with a digit, with one / between them"
        )
    return name


def _check_torques(robot: RobotSpec, *, grips: bool) -> None:
    unmeasured = {"joint_position", "joint_velocity"} - set(robot.sensors)
    if unmeasured:
        raise ConfigError(
            f"torques are worked out from {sorted(unmeasured)}, which robot '{robot.name}' does "
            "not measure; take another form of commands"
        )
    if robot.gripper and grips:
        raise ConfigError(
            f"torques do not say how far the gripper of robot '{robot.name}' opens; take another "
            "form of commands"
        )


def _check_apart(robot: RobotSpec, topics: Mapping[str, str]) -> None:
    kinds = {topic.name: topic.message for topic in state_topics(robot)}
    first: dict[str, str] = {}
    for name, topic in topics.items():
        other = first.setdefault(topic, name)
        if kinds.get(other) != kinds.get(name):
            raise ConfigError(
                f"'{other}' and '{name}' were both given the name {topic}, but are not the same; "
                "give each its own"
            )


DAMPING = "damping"
"""Set of gains without stiffness: name for nodes that know it, as `frame_id`."""
_FADED = 0.1
"""Share of the largest stiffness below which its end is no jump."""

State = Mapping[str, np.ndarray]


class NativeCommands:
    """Rotors and body rates, as `command_messages` has them."""

    def __init__(self, robot: RobotSpec) -> None:
        self._messages = CommandMessages(robot, {})
        self.kind = message(self._messages.package, self._messages.message)
        self._begun = False

    def pack(self, command: RobotCommand, state: State | None, stamp: int) -> Any | None:
        """Every command from the first on that turns a rotor: before, the node flies by itself."""
        self._begun = self._begun or any(np.any(v) for v in vars(command).values() if v is not None)
        if not self._begun:
            return None
        packed = self.kind()
        self._messages.pack(command, packed, stamp=stamp)
        return packed

    def farewell(self) -> Any | None:
        """The stop says it all."""
        return None


class JointForm:
    """Commands to joints, in one of `wiring.FORMS`."""

    def __init__(
        self, robot: RobotSpec, wiring: Wiring, gain_sets: Mapping[str, Gains], period: float
    ) -> None:
        """Prepare the lists.

        Args:
            gain_sets: Names that `joint_state` gives the gains.
            period: Of the loop [s]; a point of a trajectory lies twice that ahead.
        """
        self.kind = message(*FORMS[wiring.form][:2])
        self._form, self._names = wiring.form, [*wiring.order]
        own = [*robot.joint_names, GRIPPER]
        self._order = np.array([own.index(name) for name in self._names], dtype=np.intp)
        self._limit = np.array([joint.effort_limit for joint in robot.joints], float)
        self._gain_sets, self._gains = gain_sets, next(iter(gain_sets), "")
        self._ahead = round(2e9 * period)
        self._kept: np.ndarray | None = None
        self._opening = np.nan if GRIPPER in self._names else 0.0
        self._stiffness = self._largest = 0.0

    def pack(self, command: RobotCommand, state: State | None, stamp: int) -> Any | None:
        """A message, from the first command with stiffness on; None where none should be sent.

        Args:
            command: What the loop sent, finite.
            state: What was measured just now; None where that is too old to go by.
            stamp: Time of the message [ns].
        """
        assert isinstance(command, JointCommand)
        stiffness = float(np.max(command.kp, initial=0.0))
        self._largest = max(self._largest, stiffness)
        abrupt = self._stiffness > _FADED * self._largest
        if stiffness > 0:
            self._kept = np.array(command.q, float)[0]
        elif self._kept is None:
            return None
        elif abrupt and state is not None and "joint_position" in state:
            self._kept = np.array(state["joint_position"], float)[0]
        self._stiffness = stiffness
        self._grip(command, state)
        if np.isnan(self._opening):
            return None
        match self._form:
            case "joint_state":
                return self._joint_state(command, stamp)
            case "trajectory":
                return self._trajectory()
            case "positions":
                return self._numbers(self._kept)
            case _:
                return self._efforts(command, state)

    def farewell(self) -> Any | None:
        """Last message after the stop: no torque, where a node would go on with the last one."""
        return self._numbers(np.zeros(len(self._limit))) if self._form == "efforts" else None

    def _grip(self, command: JointCommand, state: State | None) -> None:
        """The opening that was commanded last; the measured one before that."""
        if command.gripper is not None:
            self._opening = float(np.asarray(command.gripper).ravel()[0])
        elif np.isnan(self._opening) and state is not None and "gripper_opening" in state:
            self._opening = float(state["gripper_opening"][0, 0])

    def _joint_state(self, command: JointCommand, stamp: int) -> Any:
        packed = self.kind()
        put_stamp(packed.header, stamp)
        packed.header.frame_id = self._gain_name(command)
        packed.name = self._names
        packed.position = self._listed(self._kept)
        still = np.zeros(len(self._limit))
        speeds = (command.dq[0], command.tau[0]) if self._stiffness > 0 else (still, still)
        packed.velocity, packed.effort = (self._listed(row, 0.0) for row in speeds)
        return packed

    def _trajectory(self) -> Any:
        """One point without velocity: a controller refuses a trajectory that ends in motion."""
        packed = self.kind()  # its stamp of zero means now
        packed.joint_names = self._names
        point = message("trajectory_msgs", "JointTrajectoryPoint")()
        point.positions = self._listed(self._kept)
        point.time_from_start.sec, point.time_from_start.nanosec = divmod(
            self._ahead, 1_000_000_000
        )
        packed.points = [point]
        return packed

    def _efforts(self, command: JointCommand, state: State | None) -> Any:
        """T = tau + Kp (q_d - q) + Kd (dq_d - dq) within limits; none where nothing is measured."""
        torque = np.zeros(len(self._limit))
        if state is not None:
            q, dq, c = state["joint_position"][0], state["joint_velocity"][0], command
            torque = c.tau[0] + c.kp[0] * (c.q[0] - q) + c.kd[0] * (c.dq[0] - dq)
        return self._numbers(np.clip(torque, -self._limit, self._limit))

    def _numbers(self, row: Any) -> Any:
        packed = self.kind()
        packed.data = self._listed(row)
        return packed

    def _listed(self, row: Any, gripper: float | None = None) -> "array[float]":
        """Joints in our order as a list in theirs; the gripper's opening stands behind ours."""
        whole = np.append(row, self._opening if gripper is None else gripper)
        return array("d", whole[self._order])

    def _gain_name(self, command: JointCommand) -> str:
        """The set that the command holds; the one before while stiffness fades."""
        if not self._stiffness > 0:
            return DAMPING
        for name, gains in self._gain_sets.items():
            if np.allclose(command.kp, gains.stiffness) and np.allclose(command.kd, gains.damping):
                self._gains = name
        return self._gains
