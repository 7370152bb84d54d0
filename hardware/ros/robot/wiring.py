"""Where somebody else's node has a robot's topics, and in which form it takes commands.

| form | message | default topic | taken by |
|---|---|---|---|
| `joint_state` | sensor_msgs/JointState, by name | `joint_command` | many vendors' nodes |
| `trajectory` | trajectory_msgs/JointTrajectory, one point | `joint_trajectory_controller/joint_trajectory` | joint_trajectory_controller |
| `positions` | std_msgs/Float64MultiArray | `forward_position_controller/commands` | forward_command_controller |
| `efforts` | std_msgs/Float64MultiArray, torques | `forward_effort_controller/commands` | the same |
| `native` | see `command_messages` | see there | robots without joints |
"""  # noqa: E501 - a table

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hardware.ros.messages.command_messages import CommandMessages
from hardware.ros.messages.state_messages import GRIPPER, state_topics
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.robot import RobotSpec

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

    def check(self, robot: RobotSpec, ours: str) -> "Wiring":
        """Refuse what cannot be meant; returns the wiring with everything filled in.

        Args:
            robot: Whose topics these are.
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
        if form == "efforts":
            _check_torques(robot)
        wired = replace(self, topics=resolved, form=form)
        return replace(wired, order=wired.names(robot))

    def names(self, robot: RobotSpec) -> list[str]:
        """Names that commands carry, in order.

        Raises:
            ConfigError: A joint is unknown, missing or named twice, or the form lacks the gripper.
        """
        own = [*robot.joint_names, *([GRIPPER] if robot.gripper else [])]
        carries = own if self.form == "joint_state" else robot.joint_names
        names = [*self.order] or carries
        for name in names:
            if name not in own:
                raise ConfigError(unknown_name("joint", name, own))
        missing = [name for name in own if name not in names]
        if self.form != NATIVE and (missing or len({*names}) != len(names)):
            raise ConfigError(
                f"joints={names} must name each of {own} once; missing: {missing or 'none'}"
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
        what: They name, for the message.
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


def _check_torques(robot: RobotSpec) -> None:
    """Refuse a robot whose commands are more than torques that can be worked out."""
    unmeasured = {"joint_position", "joint_velocity"} - set(robot.sensors)
    if unmeasured:
        raise ConfigError(
            f"torques are worked out from {sorted(unmeasured)}, which robot '{robot.name}' does "
            "not measure; take another form of commands"
        )
    if robot.gripper:
        raise ConfigError(
            f"torques do not say how far the gripper of robot '{robot.name}' opens; take another "
            "form of commands"
        )


def _check_apart(robot: RobotSpec, topics: Mapping[str, str]) -> None:
    """Refuse topics of different messages with one name, and commands that would be measurements.

    Raises:
        ConfigError: There are such.
    """
    kinds = {topic.name: topic.message for topic in state_topics(robot)}
    first: dict[str, str] = {}
    for name, topic in topics.items():
        other = first.setdefault(topic, name)
        if kinds.get(other) != kinds.get(name):
            raise ConfigError(
                f"'{other}' and '{name}' were both given the name {topic}, but are not the same; "
                "give each its own"
            )
