"""Description of a robot, its only one: `RobotSpec`.

It is written once, in `configs/robot/*.yaml`; simulation, training, the policy bundle and the
robot's driver all read it.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from robot_rl.core.errors import ConfigError, SpecMismatchError, unknown_name
from robot_rl.core.observation import STATE_FIELDS
from robot_rl.core.robot_command import CommandKind


@dataclass(kw_only=True)
class SensorSpec:
    """Measurement of one field of `RobotState`."""

    rate_hz: float = 100.0
    """Rate at which new samples arrive [Hz]."""
    noise: float = 0.0
    """Standard deviation of white noise per axis, in the field's unit (attitude: [rad])."""
    latency: float = 0.0
    """Age of a sample when the policy sees it [s]."""
    jitter: float = 0.0
    """Half-width of the uniform spread of a sample's age around `latency` [s]."""
    dropout: float = 0.0
    """Share of samples that are lost, in [0, 1); the one before stays."""
    bias: float = 0.0
    """Standard deviation of an offset per axis, drawn per episode, in the unit of `noise`."""
    bias_walk: float = 0.0
    """Random walk of that offset, in the unit of `noise` per square root of a second."""
    resolution: float = 0.0
    """Step between two values that can be told apart, in the field's unit; 0 for none."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not math.isfinite(value) or value < 0 or (name == "rate_hz" and value == 0):
                raise ConfigError(
                    f"sensor {name} must be a finite number >= 0 (rate > 0), got {value}"
                )
        if self.dropout >= 1:
            raise ConfigError(f"sensor dropout must lie in [0, 1), got {self.dropout}")


@dataclass(kw_only=True)
class JointSpec:
    """One joint of the robot, in the order in which all joint arrays are given.

    Every number is given at the joint: behind a gear of ratio n without backlash, a motor's torques
    count n times, its speeds 1/n times and its rotor's inertia n^2 times.
    """

    name: str = ""
    """Name as in the model file and in the robot's joint messages."""
    position_limit: list[float] = field(default_factory=lambda: [-math.pi, math.pi])
    """Lower and upper limit [rad] or [m]."""
    velocity_limit: float = math.inf
    """Largest speed that the robot's controller allows [rad/s] or [m/s]; a motor may exceed it."""
    effort_limit: float = math.inf
    """Largest torque [N m] or force [N]."""
    default_position: float = 0.0
    """Position in the default pose [rad] or [m]."""
    stiffness: float = 0.0
    """Proportional gain [N m/rad]."""
    damping: float = 0.0
    """Derivative gain [N m s/rad]."""
    no_load_speed: float = math.inf
    """Speed at which the motor has no torque left to accelerate with [rad/s] or [m/s]: the
    available torque falls linearly from `stall_torque` at rest, and stays below `effort_limit`."""
    stall_torque: float | None = None
    """Torque of the torque-speed line at rest [N m]; None for `effort_limit`."""
    actuator_delay: float = 0.0
    """Time from a command to the motor that obeys it [s], in whole physics steps."""
    armature: float | None = None
    """Inertia of the rotor, reflected through the gear [kg m^2]; None for the model file's."""
    viscous_friction: float | None = None
    """Friction per speed [N m s/rad]; None for the model file's."""
    friction: float | None = None
    """Coulomb friction [N m]; None for the model file's."""
    static_friction: float = 0.0
    """Friction at rest [N m], where it exceeds Coulomb's (Stribeck); 0 for none."""
    stribeck_velocity: float = 0.0
    """Speed at which that excess has fallen to 1/e [rad/s]; needed with `static_friction`."""

    def __post_init__(self) -> None:
        for name in ("armature", "viscous_friction", "friction", "actuator_delay",
                     "static_friction", "stribeck_velocity"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ConfigError(f"joint '{self.name}': {name} must be >= 0, got {value}")
        if not self.no_load_speed > 0:
            raise ConfigError(
                f"joint '{self.name}': no_load_speed must be > 0, got {self.no_load_speed}"
            )
        if self.has_speed_line and not 0 < self.stall_effort < math.inf:
            raise ConfigError(
                f"joint '{self.name}': a no_load_speed needs a stall_torque > 0 or a finite "
                f"effort_limit, got {self.stall_effort}"
            )
        if self.static_friction > 0 and not (
            self.stribeck_velocity > 0 and self.static_friction >= (self.friction or 0.0)
        ):
            raise ConfigError(
                f"joint '{self.name}': static_friction {self.static_friction} needs a "
                f"stribeck_velocity > 0, got {self.stribeck_velocity}, and must not be below "
                f"friction {self.friction}"
            )

    @property
    def has_speed_line(self) -> bool:
        """True if the available torque depends on the speed."""
        return self.no_load_speed < math.inf

    @property
    def stall_effort(self) -> float:
        """Torque of the torque-speed line at rest [N m]."""
        return self.effort_limit if self.stall_torque is None else self.stall_torque


@dataclass(kw_only=True)
class GripperSpec:
    """Fingers that open and close together.

    Their opening is a fraction: 0 where every finger joint is at `closed`, 1 where it is at `open`.
    """

    joints: list[str] = field(default_factory=list[str])
    """Names of the finger joints, as in the model file; they are no joints of the arm."""
    closed: float = 0.0
    """Position of each finger joint when the gripper is closed [m] or [rad]."""
    open: float = 0.04
    """Position of each finger joint when the gripper is open [m] or [rad]."""
    force_limit: float = math.inf
    """Largest force that each finger presses with [N], or torque [N m]."""
    speed: float = math.inf
    """Largest speed of each finger [m/s] or [rad/s]."""
    stiffness: float = 5000.0
    """Proportional gain of each finger's position loop [N/m] or [N m/rad]."""
    damping: float = 140.0
    """Derivative gain of each finger's position loop [N s/m] or [N m s/rad]."""

    def __post_init__(self) -> None:
        if not self.joints or "" in self.joints or len(set(self.joints)) != len(self.joints):
            raise ConfigError(f"a gripper needs distinct finger joints, got {self.joints}")
        if self.open == self.closed:
            raise ConfigError(f"gripper: open and closed must differ, got {self.open} twice")
        for name in ("force_limit", "speed", "stiffness"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"gripper.{name} must be > 0, got {getattr(self, name)}")
        if self.damping < 0:
            raise ConfigError(f"gripper.damping must be >= 0, got {self.damping}")


@dataclass(kw_only=True)
class MirrorSpec:
    """Left and right of a robot that looks along x; the mirror's plane is that of x and z."""

    swap: dict[str, str] = field(default_factory=dict[str, str])
    """Parts of names that exchange each other, such as FL: FR; a name's parts are joined by `_`.
    Joints, feet, rotors and the bodies of a model are found by it."""
    reversed: list[str] = field(default_factory=list[str])
    """Joints that turn the other way in the mirror: those about x and z, where both sides have
    the same axes."""

    def __post_init__(self) -> None:
        parts = [*self.swap, *self.swap.values()]
        if len(set(parts)) != len(parts) or "" in parts:
            raise ConfigError(f"mirror.swap: expected pairs of distinct names, got {self.swap}")

    def counterpart(self, name: str) -> str:
        """Name of the same thing on the other side; of what has no side its own."""
        both = {**self.swap, **{right: left for left, right in self.swap.items()}}
        return "_".join(both.get(part, part) for part in name.split("_"))


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
    """Measured fields of `RobotState` -> how each is measured."""
    command: CommandKind = CommandKind.rotors
    """The command that the robot's driver accepts."""
    mirror: MirrorSpec | None = None
    """Its left and right; None for a robot without symmetry."""

    def __post_init__(self) -> None:
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
        """Properties that must be the same wherever experience is mixed; plain values."""
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


@dataclass(frozen=True, kw_only=True)
class RobotKind:
    """Kind of robot that a task is for, judged by the description alone."""

    words: str
    """The kind in words, such as "a robot with four feet or more"."""
    robots: tuple[str, ...]
    """Robots of ours that are of it and that the task runs with, the usual one first."""
    joints: int | None = None
    """Number of joints; None for any."""
    least_feet: int = 0
    """Smallest number of feet."""
    most_feet: float = math.inf
    """Largest number of feet."""
    rotors: bool = False
    """True of a multirotor, False of a robot without rotors."""
    gripper: bool = False
    """True where a gripper is needed."""
    sensors: tuple[str, ...] = ()
    """Fields of `RobotState` that must be measured."""

    def check(self, task: str, robot: RobotSpec) -> None:
        """Refuse a robot of another kind.

        Raises:
            SpecMismatchError: The robot does not fit; the message names those of ours that do.
        """
        if not (
            self.joints in (None, robot.num_joints)
            and self.least_feet <= len(robot.feet) <= self.most_feet
            and self.rotors == bool(robot.rotors)
            and (robot.gripper is not None or not self.gripper)
            and set(self.sensors) <= set(robot.sensors)
        ):
            raise self.refusal(task, robot)

    def refusal(self, task: str, robot: RobotSpec) -> SpecMismatchError:
        """Error that says which kind of robot a task is for."""
        ours = " or ".join(f"robot={name}" for name in self.robots)
        return SpecMismatchError(
            f"task {task} was asked of robot '{robot.name}', and is for {self.words}"
            + (f"; choose {ours}" if ours else "")
        )


def _written(value: Any) -> Any:
    if isinstance(value, list):
        return [_written(entry) for entry in cast("list[Any]", value)]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _number(value: Any) -> Any:
    if isinstance(value, list):
        return [_number(entry) for entry in cast("list[Any]", value)]
    return None if value is None else float(value)
