"""What a robot is (`RobotSpec`), measures (`RobotState`), accepts (`RobotCommand`), is driven by.

`RobotSpec` is the only description of a robot. It is written once, in `configs/robot/*.yaml`;
simulation, training, the policy bundle and the robot's driver all read it.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

from robot_rl.core.array import Array
from robot_rl.core.errors import ConfigError, SpecMismatchError, unknown_name

STATE_FIELDS = {
    "position_w": "position of the base, (N, 3), [m]",
    "orientation_w": "attitude of the base, unit quaternion wxyz, (N, 4)",
    "linear_velocity_w": "velocity of the base, (N, 3), [m/s], world axes",
    "angular_velocity_b": "angular velocity of the base, (N, 3), [rad/s], body axes",
    "linear_acceleration_b": "specific force at the IMU, (N, 3), [m/s^2], body axes",
    "end_effector_position_b": "position of the end effector, (N, 3), [m], base axes",
    "joint_position": "(N, J), [rad] or [m], joint order of the spec",
    "joint_velocity": "(N, J), [rad/s] or [m/s], joint order of the spec",
    "joint_effort": "(N, J), [N m] or [N], joint order of the spec",
}
"""Every field that a `RobotState` can have. A robot declares those that it measures as sensors."""


class CommandKind(Enum):
    """The kinds of command that a robot can accept."""

    rotors = "rotors"
    body_rates = "body_rates"
    joint = "joint"
    pose = "pose"
    twist = "twist"


@dataclass(kw_only=True)
class SensorSpec:
    """How one field of `RobotState` is measured."""

    rate_hz: float = 100.0
    """Rate at which new samples arrive [Hz]."""
    noise: float = 0.0
    """Standard deviation of white noise per axis, in the field's unit (attitude: [rad])."""
    latency: float = 0.0
    """Age of a sample when the policy sees it [s]."""

    def __post_init__(self) -> None:
        """Refuse values that no sensor has."""
        for name, value in asdict(self).items():
            if not math.isfinite(value) or value < 0 or (name == "rate_hz" and value == 0):
                raise ConfigError(
                    f"sensor {name} must be a finite number >= 0 (rate > 0), got {value}"
                )


@dataclass(kw_only=True)
class JointSpec:
    """One joint of the robot, in the order in which all joint arrays are given."""

    name: str = ""
    """Name as in the model file and in the robot's joint messages."""
    position_limit: list[float] = field(default_factory=lambda: [-math.pi, math.pi])
    """Lower and upper limit [rad] or [m]."""
    velocity_limit: float = math.inf
    """Largest speed [rad/s] or [m/s]."""
    effort_limit: float = math.inf
    """Largest torque [N m] or force [N]."""
    default_position: float = 0.0
    """Position in the default pose [rad] or [m]."""
    stiffness: float = 0.0
    """Proportional gain [N m/rad]."""
    damping: float = 0.0
    """Derivative gain [N m s/rad]."""


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
    sensors: dict[str, SensorSpec] = field(default_factory=dict[str, SensorSpec])
    """What the robot measures: a field of `RobotState` -> how."""
    command: CommandKind = CommandKind.rotors
    """The command that the robot's driver accepts."""

    def __post_init__(self) -> None:
        """Refuse an unnamed robot, unknown sensors and repeated names."""
        if not self.name:
            raise ConfigError("a robot needs a name, got ''")
        for sensor in self.sensors:
            if sensor not in STATE_FIELDS:
                raise ConfigError(unknown_name("sensor", sensor, STATE_FIELDS))
        names = [*self.joint_names, *self.rotors]
        if len(set(names)) != len(names) or "" in names:
            raise ConfigError(f"joints and rotors need distinct names, got {names}")

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
        wide: dict[str, int] = {"orientation_w": 4}
        for name in ("joint_position", "joint_velocity", "joint_effort"):
            wide[name] = self.num_joints
        return {name: wide.get(name, 3) for name in self.sensors}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, which has no infinity: an absent limit is 'inf' or '-inf'."""
        joints = [{k: _written(v) for k, v in asdict(joint).items()} for joint in self.joints]
        return {**asdict(self), "joints": joints, "command": self.command.value}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "RobotSpec":
        """Rebuild from `to_dict`."""
        plain = dict(values)
        plain["joints"] = [
            JointSpec(**{k: v if k == "name" else _number(v) for k, v in joint.items()})
            for joint in plain["joints"]
        ]
        plain["sensors"] = {name: SensorSpec(**value) for name, value in plain["sensors"].items()}
        plain["command"] = CommandKind(plain["command"])
        return cls(**plain)

    def check_compatible(self, other: "RobotSpec") -> None:
        """Refuse another robot than the one that a policy was trained for.

        Args:
            other: The robot at hand.

        Raises:
            SpecMismatchError: Name, version, joint order, rotor order, command or sensors differ.
        """
        pairs: dict[str, tuple[object, object]] = {
            "name": (self.name, other.name),
            "version": (self.version, other.version),
            "joint order": (self.joint_names, other.joint_names),
            "rotor order": (self.rotors, other.rotors),
            "command": (self.command.value, other.command.value),
        }
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
    return (
        [_number(v) for v in cast("list[Any]", value)] if isinstance(value, list) else float(value)
    )


class RobotState:
    """What was measured, batch-first; has only the fields it was made with."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Array]) -> None:
        """Hold fields of `STATE_FIELDS`, name -> array (N, width), without copying them."""
        for name in values:
            if name not in STATE_FIELDS:
                raise SpecMismatchError(unknown_name("state field", name, STATE_FIELDS))
        self._values = dict(values)

    @property
    def fields(self) -> dict[str, Array]:
        """All fields by name."""
        return self._values

    @property
    def position_w(self) -> Array:
        """Position of the base, (N, 3), [m]."""
        return self._field("position_w")

    @property
    def orientation_w(self) -> Array:
        """Attitude of the base, unit quaternion wxyz, (N, 4)."""
        return self._field("orientation_w")

    @property
    def linear_velocity_w(self) -> Array:
        """Velocity of the base, (N, 3), [m/s], world axes."""
        return self._field("linear_velocity_w")

    @property
    def angular_velocity_b(self) -> Array:
        """Angular velocity of the base, (N, 3), [rad/s], body axes."""
        return self._field("angular_velocity_b")

    @property
    def linear_acceleration_b(self) -> Array:
        """Specific force at the IMU, (N, 3), [m/s^2], body axes."""
        return self._field("linear_acceleration_b")

    @property
    def end_effector_position_b(self) -> Array:
        """Position of the end effector, (N, 3), [m], base axes."""
        return self._field("end_effector_position_b")

    @property
    def joint_position(self) -> Array:
        """Joint positions, (N, J), [rad] or [m]."""
        return self._field("joint_position")

    @property
    def joint_velocity(self) -> Array:
        """Joint velocities, (N, J), [rad/s] or [m/s]."""
        return self._field("joint_velocity")

    @property
    def joint_effort(self) -> Array:
        """Joint torques or forces, (N, J), [N m] or [N]."""
        return self._field("joint_effort")

    def _field(self, name: str) -> Array:
        try:
            return self._values[name]
        except KeyError:
            raise SpecMismatchError(
                f"'{name}' ({STATE_FIELDS[name]}) was asked for, but this robot measures only "
                f"{sorted(self._values)}; declare a sensor or an estimator for it in the RobotSpec"
            ) from None


@dataclass(frozen=True, kw_only=True)
class RotorCommand:
    """Rotor speed setpoints."""

    speed: Array
    """Fraction of the largest rotor speed, (N, R), in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class BodyRateCommand:
    """Body rates and collective thrust for an inner loop."""

    rates_b: Array
    """Angular velocity setpoint, (N, 3), [rad/s], body axes."""
    thrust: Array
    """Fraction of the largest collective thrust, (N, 1), in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class JointCommand:
    """MIT-mode joint command: tau = kp (q - measured) + kd (dq - measured) + tau."""

    q: Array
    """Position setpoint, (N, J), [rad]."""
    dq: Array
    """Velocity setpoint, (N, J), [rad/s]."""
    tau: Array
    """Feed-forward torque, (N, J), [N m]."""
    kp: Array
    """Stiffness, (N, J), [N m/rad]."""
    kd: Array
    """Damping, (N, J), [N m s/rad]."""
    gripper: Array | None = None
    """Opening as a fraction of the largest, (N, 1), in [0, 1]; None without a gripper."""


@dataclass(frozen=True, kw_only=True)
class PoseCommand:
    """End-effector pose setpoint in the world."""

    position_w: Array
    """(N, 3), [m]."""
    orientation_w: Array
    """Unit quaternion wxyz, (N, 4)."""
    gripper: Array | None = None
    """Opening as a fraction of the largest, (N, 1), in [0, 1]; None without a gripper."""


@dataclass(frozen=True, kw_only=True)
class TwistCommand:
    """Velocity setpoint of the base or the end effector."""

    linear_b: Array
    """(N, 3), [m/s], axes of the moved frame."""
    angular_b: Array
    """(N, 3), [rad/s], axes of the moved frame."""
    gripper: Array | None = None
    """Opening as a fraction of the largest, (N, 1), in [0, 1]; None without a gripper."""


RobotCommand: TypeAlias = RotorCommand | BodyRateCommand | JointCommand | PoseCommand | TwistCommand


@runtime_checkable
class RobotDriver(Protocol):
    """The one door to a robot, real or simulated."""

    @property
    def spec(self) -> RobotSpec:
        """The robot behind the door."""
        ...

    def connect(self) -> None:
        """Open the connection; may block. Raises when the robot is not the one of `spec`."""
        ...

    def read(self) -> RobotState:
        """Newest sample. Real-time: never blocks. Raises StaleStateError when none came in time."""
        ...

    def write(self, command: RobotCommand) -> RobotCommand:
        """Send a command; returns the command really sent after the robot's own limits.

        Real-time: never blocks.
        """
        ...

    def stop(self) -> None:
        """Bring the robot to its safe state. Allowed in any state, any number of times."""
        ...

    def close(self) -> None:
        """Stop and release the connection; allowed more than once."""
        ...
