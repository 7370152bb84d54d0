"""When a policy decides: as soon as the measurements that a control period ends with have come.

A clock of its own would let every measurement wait for up to a period, and the simulation that the
policy was trained in knows no such delay. The rate stays that of training: periods are counted in
the stamps of the measurements. Where measurements come more rarely than the policy decides, or do
not come at all, the clock decides.
"""

from collections.abc import Mapping

_SLACK = 0.25
"""How much earlier than a period a sample may have been measured to count as its end [periods]."""
_PATIENCE = 1.5
"""How long to wait for a sample that is late [periods]."""


class Pace:
    """Says when a control period is over; asked after every look at what has come."""

    def __init__(self, control_dt: float, rates: Mapping[str, float]) -> None:
        """Nothing has been decided yet: the first samples are answered at once.

        Args:
            control_dt: Between two decisions [s].
            rates: Topics with stamps, and how often each comes [Hz].
        """
        self._period, self._period_ns = control_dt, round(control_dt * 1e9)
        self._slack = round(_SLACK * control_dt * 1e9)
        self._topics = [name for name, rate in rates.items() if rate * control_dt > 1 - _SLACK]
        """Those that end a control period."""
        self._patience = control_dt * (_PATIENCE if self._topics else 1.0)
        self._due: int | None = None
        self._answered = 0  # stamp of what was decided on last [ns]
        self._decided: float | None = None

    def rest(self, now: float) -> float:
        """How long nothing needs to be looked at [s]; 0 where a sample may end the period now.

        Args:
            now: Time of a clock [s].
        """
        if self._decided is None:
            return 0.0
        share = 1 - _SLACK if self._topics else 1.0
        return max(0.0, self._decided + share * self._period - now)

    def spare(self, now: float) -> float:
        """How long it is until a sample may be expected [s]; 0 where the clock decides."""
        if self._decided is None or not self._topics:
            return 0.0
        return max(0.0, self._decided + self._period - now)

    def left(self, now: float) -> float:
        """How long to wait for a sample at most [s]."""
        if self._decided is None:
            return self._patience
        return max(0.0, self._decided + self._patience - now)

    def is_over(self, stamps: Mapping[str, int], now: float) -> bool:
        """Whether to decide now; where it says so, the next period has begun.

        Args:
            stamps: Of the newest message of each topic that has sent one [ns].
            now: Time of the clock [s].
        """
        if self._decided is None:
            self._decided = now - (1 - _SLACK) * self._period  # looks from now on
        oldest = self._oldest(stamps)
        in_time = oldest > self._answered and oldest >= (self._due or 0) - self._slack
        if not in_time and self.left(now) > 0:
            return False
        self._decided, self._answered = now, oldest
        if in_time and (self._due is None or oldest > self._due + self._period_ns):
            self._due = oldest  # the first one, or the first after a pause
        if self._due is not None:
            self._due += self._period_ns
        return True

    def _oldest(self, stamps: Mapping[str, int]) -> int:
        """What is known of every topic that ends a period is at least this new [ns]."""
        return min((stamps.get(name, 0) for name in self._topics), default=0)
