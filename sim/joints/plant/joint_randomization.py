"""Ranges of the physical parameters that episodes of robots with joints draw anew."""

from dataclasses import dataclass, field

from robot_rl.core.errors import ConfigError
from sim.curriculum import CurriculumConfig
from sim.pushes import PushConfig

_SHARES = ("link_mass", "joint_damping", "stiffness", "damping")
_FACTORS = ("contact_friction", "motor_strength", "sensor_noise", "sensor_bias", "sensor_jitter")
_AMOUNTS = ("joint_friction", "actuator_delay", "latency")
_SIGNED = ("payload", "centre_of_mass")


def _nothing() -> list[float]:
    return [0.0, 0.0]


def _as_is() -> list[float]:
    return [1.0, 1.0]


@dataclass(kw_only=True)
class JointRandomization:
    """What every episode draws anew in every world, all uniform; docs/randomisation.md."""

    payload: list[float] = field(default_factory=_nothing)
    """Mass added at the payload body's centre, unknown to the gravity compensation [kg]."""
    link_mass: float = 0.0
    """Relative half-width of each link's mass and inertia, unknown to the compensation."""
    centre_of_mass: list[float] = field(default_factory=_nothing)
    """Offset of the payload body's centre of mass along each of its axes [m]."""
    contact_friction: list[float] = field(default_factory=_as_is)
    """Factor on the sliding friction of all contacts."""
    joint_damping: float = 0.0
    """Relative half-width of each joint's viscous friction."""
    joint_friction: list[float] = field(default_factory=_nothing)
    """Each joint's Coulomb friction instead of its own [N m]; costs about a third of the speed."""
    motor_strength: list[float] = field(default_factory=_as_is)
    """Factor on each joint's effort limit and stall torque."""
    stiffness: float = 0.0
    """Relative half-width of the motors' proportional gain, one factor for all joints."""
    damping: float = 0.0
    """Relative half-width of the motors' derivative gain, one factor for all joints."""
    actuator_delay: list[float] = field(default_factory=_nothing)
    """Time added to the delay of all motors [s], in whole physics steps."""
    sensor_noise: list[float] = field(default_factory=_as_is)
    """Factor on the noise of all sensors."""
    sensor_bias: list[float] = field(default_factory=_as_is)
    """Factor on the bias of all sensors and its walk."""
    latency: list[float] = field(default_factory=_nothing)
    """Time added to the latency of all sensors [s], in whole control periods."""
    sensor_jitter: list[float] = field(default_factory=_as_is)
    """Factor on the jitter of all sensors' latency."""
    pushes: PushConfig = field(default_factory=PushConfig)
    """Pushes against a floating base."""
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    """Widens ranges and pushes while training succeeds; evaluation has all."""

    @classmethod
    def nominal(cls) -> "JointRandomization":
        """Nothing is drawn: every robot is as it is described."""
        return cls()

    def __post_init__(self) -> None:
        """Refuse ranges that contain impossible robots."""
        for name in _SHARES:
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(
                    f"randomization.{name} must lie in [0, 1), got {getattr(self, name)}"
                )
        for name in (*_FACTORS, *_AMOUNTS, *_SIGNED):
            values, lowest = getattr(self, name), -float("inf") if name in _SIGNED else 0.0
            if len(values) != 2 or not lowest <= values[0] <= values[1] < float("inf"):
                least = "" if name in _SIGNED else "0 <= "
                raise ConfigError(
                    f"randomization.{name} must be [low, high] with {least}low <= high, "
                    f"got {values}"
                )
        if self.motor_strength[0] == 0:
            raise ConfigError("randomization.motor_strength must be above 0, got a low of 0")
