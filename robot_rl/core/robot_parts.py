"""The parts that a robot is described by: its joints and its sensors."""

import math
from dataclasses import asdict, dataclass, field

from robot_rl.core.errors import ConfigError


@dataclass(kw_only=True)
class SensorSpec:
    """How one field of `RobotState` is measured."""

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
        """Refuse values that no sensor has."""
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
        """Refuse motors that there are not."""
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
        """Whether the available torque depends on the speed."""
        return self.no_load_speed < math.inf

    @property
    def stall_effort(self) -> float:
        """Torque of the torque-speed line at rest [N m]."""
        return self.effort_limit if self.stall_torque is None else self.stall_torque
