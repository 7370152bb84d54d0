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
