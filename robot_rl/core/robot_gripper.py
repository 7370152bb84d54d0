"""A robot's gripper: fingers that move alike, commanded by one number."""

import math
from dataclasses import dataclass, field

from robot_rl.core.errors import ConfigError


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
        """Refuse grippers without fingers or without extent."""
        if not self.joints or "" in self.joints or len(set(self.joints)) != len(self.joints):
            raise ConfigError(f"a gripper needs distinct finger joints, got {self.joints}")
        if self.open == self.closed:
            raise ConfigError(f"gripper: open and closed must differ, got {self.open} twice")
        for name in ("force_limit", "speed", "stiffness"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"gripper.{name} must be > 0, got {getattr(self, name)}")
        if self.damping < 0:
            raise ConfigError(f"gripper.damping must be >= 0, got {self.damping}")
