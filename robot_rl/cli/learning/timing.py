"""Control periods of an actor, as it lived them: length, age of what it saw, time to decide."""

from collections import deque

import numpy as np

_REMEMBERED = 100_000
"""Newest periods that are summed up: more than an hour at 25 Hz."""


class PeriodTimes:
    """Times of the control periods of episodes."""

    def __init__(self, control_dt: float) -> None:
        """Begin.

        Args:
            control_dt: Control period that is asked for [s].
        """
        self._control_dt = control_dt
        self._periods: deque[float] = deque(maxlen=_REMEMBERED)
        self._decisions: deque[float] = deque(maxlen=_REMEMBERED)
        self._ages: deque[float] = deque(maxlen=_REMEMBERED)
        self._ended: float | None = None
        self.missed = 0
        """Periods within episodes in which nobody acted, since the one before took too long."""

    def add(self, began: float, ended: float, state_age: float | None) -> None:
        """A step of an episode is over.

        Args:
            began: When the step was asked for, the action chosen [s].
            ended: When it returned, at the border of the period [s].
            state_age: Age of the measurement that the next action answers [s]; None where the
                robot does not tell it.
        """
        if self._ended is not None:
            self.missed += max(0, round((ended - self._ended) / self._control_dt) - 1)
            self._periods.append(ended - self._ended)
            self._decisions.append(began - self._ended)
        if state_age is not None:
            self._ages.append(state_age)
        self._ended = ended

    def pause(self) -> None:
        """No step follows at once: what comes next is no control period."""
        self._ended = None

    def summary(self) -> str:
        """A line about all periods."""
        if not self._periods:
            return "control periods: none"
        parts = [
            f"control periods of {1e3 * self._control_dt:.0f} ms: {len(self._periods)}, "
            f"{self.missed} missed",
            f"length {_spread(self._periods)}",
            f"measurement {_spread(self._ages)} old" if self._ages else "",
            f"decided in {_spread(self._decisions)}",
        ]
        return "; ".join(part for part in parts if part) + " ms (median, 99%, largest)"


def _spread(values: deque[float]) -> str:
    """Median, 99th percentile and largest [ms]."""
    found = np.percentile(np.array(values), [50, 99, 100]) * 1e3
    return ", ".join(f"{value:.1f}" for value in found)
