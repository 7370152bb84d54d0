"""What a robot is (`RobotSpec`): the only description of it.

It is written once, in `configs/robot/*.yaml`; simulation, training, the policy bundle and the
robot's driver all read it. What it measures is in `robot_state`, what it accepts in
`robot_command`, how it is driven in `robot_driver`.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from robot_rl.core.errors import ConfigError, SpecMismatchError, unknown_name
from robot_rl.core.mirrored import MirrorSpec
from robot_rl.core.robot_command import CommandKind
from robot_rl.core.robot_gripper import GripperSpec
from robot_rl.core.robot_parts import JointSpec, SensorSpec
from robot_rl.core.robot_state import STATE_FIELDS


@dataclass(kw_only=True)
class RobotSpec:
    """The only description of a robot: identity, joints or rotors, sensors, accepted command."""

    name: str = ""
    """Name of the robot, compared when a bundle meets a robot."""
    version: int = 1
    """Raised whenever a change of this description makes trained policies unusable."""
    joints: list[JointSpec] = field(default_factory=list[JointSpec])
    """Joints in order; empty for a multirotor."""
    rotors: list[str] = field(default_factory=list[str])
    """Names of the rotors in order; empty for everything that does not fly."""
    feet: list[str] = field(default_factory=list[str])
    """Names of the feet in order; empty for a robot that does not walk."""
    gripper: GripperSpec | None = None
    """Its gripper; None for a robot without one."""
    sensors: dict[str, SensorSpec] = field(default_factory=dict[str, SensorSpec])
    """What the robot measures: a field of `RobotState` -> how."""
    command: CommandKind = CommandKind.rotors
    """The command that the robot's driver accepts."""
    mirror: MirrorSpec | None = None
    """What is left and right of it; None for a robot without symmetry."""

    def __post_init__(self) -> None:
        """Refuse an unnamed robot, unknown sensors and repeated names."""
        if not self.name:
            raise ConfigError("a robot needs a name, got ''")
        for sensor in self.sensors:
            if sensor not in STATE_FIELDS:
                raise ConfigError(unknown_name("sensor", sensor, STATE_FIELDS))
        fingers = self.gripper.joints if self.gripper else []
        names = [*self.joint_names, *fingers, *self.rotors]
        if len(set(names)) != len(names) or "" in names:
            raise ConfigError(f"joints, fingers and rotors need distinct names, got {names}")
        if len(set(self.feet)) != len(self.feet) or "" in self.feet:
            raise ConfigError(f"feet need distinct names, got {self.feet}")

    @property
    def joint_names(self) -> list[str]:
        """Names of the joints, in order."""
        return [joint.name for joint in self.joints]

    @property
    def num_joints(self) -> int:
        """J: number of joints."""
        return len(self.joints)

    @property
    def state_widths(self) -> dict[str, int]:
        """Fields of `RobotState` that the sensors fill, with their widths."""
        wide = {"orientation_w": 4, "end_effector_orientation_b": 4, "gripper_opening": 1}
        wide |= {"foot_force": len(self.feet), "wrench_ee": 6}
        for name in ("joint_position", "joint_velocity", "joint_effort"):
            wide[name] = self.num_joints
        return {name: wide.get(name, 3) for name in self.sensors}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, which has no infinity: an absent limit is 'inf' or '-inf'."""
        joints = [{k: _written(v) for k, v in asdict(joint).items()} for joint in self.joints]
        gripper = asdict(self.gripper) if self.gripper else None
        return {
            **asdict(self),
            "joints": joints,
            "gripper": gripper and {k: _written(v) for k, v in gripper.items()},
            "command": self.command.value,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "RobotSpec":
        """Rebuild from `to_dict`."""
        plain = dict(values)
        plain["joints"] = [
            JointSpec(**{k: v if k == "name" else _number(v) for k, v in joint.items()})
            for joint in plain["joints"]
        ]
        if plain.get("gripper"):  # older descriptions do not speak of it
            fingers = plain["gripper"]["joints"]
            limits = {k: _number(v) for k, v in plain["gripper"].items() if k != "joints"}
            plain["gripper"] = GripperSpec(joints=fingers, **limits)
        if plain.get("mirror"):
            plain["mirror"] = MirrorSpec(**plain["mirror"])
        plain["sensors"] = {name: SensorSpec(**value) for name, value in plain["sensors"].items()}
        plain["command"] = CommandKind(plain["command"])
        return cls(**plain)

    def identity(self) -> dict[str, Any]:
        """What of a robot must be the same wherever experience is mixed; plain values."""
        return {
            "name": self.name,
            "version": self.version,
            "joints": self.joint_names,
            "rotors": list(self.rotors),
            "feet": list(self.feet),
            "command": self.command.value,
        }

    def check_compatible(self, other: "RobotSpec") -> None:
        """Refuse another robot than the one that a policy was trained for.

        Args:
            other: The robot at hand.

        Raises:
            SpecMismatchError: Name, version, joint, rotor or foot order, fingers, command or
                sensors differ.
        """
        pairs: dict[str, tuple[object, object]] = {
            "name": (self.name, other.name),
            "version": (self.version, other.version),
            "joint order": (self.joint_names, other.joint_names),
            "rotor order": (self.rotors, other.rotors),
            "foot order": (self.feet, other.feet),
            "command": (self.command.value, other.command.value),
        }
        if self.gripper:  # without one a policy does not care about fingers
            fingers = other.gripper.joints if other.gripper else []
            pairs["gripper"] = (self.gripper.joints, fingers)
        for what, (expected, got) in pairs.items():
            if expected != got:
                raise SpecMismatchError(
                    f"the policy was made for robot '{self.name}' with {what} {expected}, "
                    f"but the robot at hand has {what} {got}; use a bundle trained for it"
                )
        missing = [name for name in self.sensors if name not in other.sensors]
        if missing:
            raise SpecMismatchError(
                f"the policy for robot '{self.name}' reads {missing}, which the robot at hand does "
                f"not measure; it measures {sorted(other.sensors)}"
            )


def _written(value: Any) -> Any:
    if isinstance(value, list):
        return [_written(entry) for entry in cast("list[Any]", value)]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _number(value: Any) -> Any:
    if isinstance(value, list):
        return [_number(entry) for entry in cast("list[Any]", value)]
    return None if value is None else float(value)
