"""A goal that nobody sends: the clock of a gait, which runs while another goal asks to move.

In training a task moves its clock on; on a robot that no world of ours simulates, the policy's own
side does, from the numbers that the bundle carries.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from robot_rl.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ClockSpec:
    """Sine and cosine of a phase; zeros while the other goal is zero."""

    period: float
    """Time of one cycle [s]."""
    moves: str
    """Name of the goal that asks to move with any entry that is not 0."""

    def __post_init__(self) -> None:
        """Refuse a cycle without extent."""
        if not 0 < self.period < math.inf:
            raise ConfigError(f"a clock's period must be a time > 0 s, got {self.period}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"period": self.period, "moves": self.moves}


class GoalClock:
    """One clock at work, of one robot."""

    def __init__(self, spec: ClockSpec, control_dt: float) -> None:
        """Stand at the beginning of a cycle.

        Args:
            spec: The clock.
            control_dt: Time between two ticks [s].
        """
        self._spec, self._step = spec, control_dt / spec.period
        self._phase = 0.0

    def reset(self) -> None:
        """Begin a cycle, as an episode does."""
        self._phase = 0.0

    def tick(self) -> None:
        """Let a control period pass."""
        self._phase = (self._phase + self._step) % 1.0

    def value(self, goal: Mapping[str, np.ndarray]) -> np.ndarray:
        """What a policy sees now: sine and cosine, (1, 2).

        Args:
            goal: Every goal, each (1, width); an unknown one is NaN and asks nobody to move.
        """
        moving = np.nan_to_num(goal[self._spec.moves]).any()
        angle = 2 * math.pi * self._phase
        return np.array([[math.sin(angle), math.cos(angle)]]) * moving
