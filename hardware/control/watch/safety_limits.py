"""When the watch speaks: thresholds and durations, each with its default."""

import math
from dataclasses import dataclass, fields

from robot_rl.core.errors import ConfigError


@dataclass(kw_only=True)
class SafetyLimits:
    """Thresholds of the conditions. Defaults without a source are choices, narrowed per robot."""

    command_late: float = 0.04
    """Age of a policy's command that pauses [s]: two periods of a policy at 50 Hz."""
    command_lost: float = 0.1
    """Age of a policy's command that stops [s]."""
    clock_skew: float = 0.005
    """How far a command's stamp may lie in the future [s]."""
    lease_late: float = 0.15
    """Silence of a person after which their velocity is zero [s]."""
    lease_lost: float = 0.25
    """Silence of a person after which the robot holds [s]."""
    state_late: float = 0.02
    """Age of a sample that pauses [s]; three periods of the loop where that is longer."""
    state_lost: float = 0.1
    """Age of a sample that stops at once [s]."""
    range_tolerance: float = 0.05
    """How far outside its hard limits a joint may be measured [rad]."""
    velocity_factor: float = 1.2
    """Largest measured speed, as a multiple of the joint's limit."""
    effort_factor: float = 1.05
    """Largest measured torque, as a multiple of the joint's limit; a motor that saturates measures
    its limit, give or take noise, and does what it was built for."""
    load_time: float = 0.05
    """How long speed or torque must be too large [s]."""
    tracking_error: float = 1.0
    """Largest distance of a joint with stiffness from its commanded position [rad]."""
    tracking_time: float = 0.1
    """How long that must last [s]."""
    tilt: float = 1.2
    """Largest lean of a robot that stands on the ground [rad]."""
    tumble: float = math.pi / 2
    """Largest lean of a robot that flies [rad]."""
    tilt_time: float = 0.1
    """How long either must last [s]."""
    workspace_lower: tuple[float, float, float] = (-math.inf, -math.inf, -math.inf)
    """Corner of the box for the end effector (base axes) or a flying base (world axes) [m]."""
    workspace_upper: tuple[float, float, float] = (math.inf, math.inf, math.inf)
    external_force: float = math.inf
    """Largest measured force at the end effector [N]."""
    overrun_share: float = 0.05
    """Share of ticks within a second that may come late."""
    overrun_ticks: int = 5
    """Periods that a single tick may miss."""
    first_command_jump: float = 0.3
    """Largest distance of a first joint command from the measured pose [rad]."""
    first_position_jump: float = 0.1
    """Largest distance of a first pose command from the measured end effector [m]."""

    def __post_init__(self) -> None:
        """Refuse thresholds that say nothing, or that stop before they pause."""
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, float | int) and not value >= 0:
                raise ConfigError(f"safety limit {entry.name} must be >= 0, got {value}")
        for what in ("command", "state", "lease"):
            late, lost = getattr(self, f"{what}_late"), getattr(self, f"{what}_lost")
            if late > lost:
                raise ConfigError(f"{what}_late {late} s must not exceed {what}_lost {lost} s")
        for low, high in zip(self.workspace_lower, self.workspace_upper, strict=True):
            if not low < high:
                raise ConfigError(
                    f"the workspace {self.workspace_lower} .. {self.workspace_upper} has no inside"
                )

    @classmethod
    def for_flight(cls) -> "SafetyLimits":
        """Limits of a drone, which cannot stand still: level at 0.1 s, descend at 0.5 s of silence.

        The half second is that of PX4's and the Crazyflie's offboard time-outs.
        """
        return cls(command_late=0.1, command_lost=0.5)
