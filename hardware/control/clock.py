"""The clock that a loop sleeps by, real or logical, and percentiles of what it measures."""

import ctypes
import errno
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

_CLOCK_MONOTONIC = 1
_TIMER_ABSTIME = 1
_PR_SET_TIMERSLACK = 29


ROUNDING = 1e-9
"""Times are sums of periods: this is less than any period and more than their rounding [s]."""


class LogicalClock:
    """Time that passes only when somebody sleeps or says so: for tests."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """Seconds."""
        return self._now

    def sleep_until(self, deadline: float) -> None:
        """Let time pass until `deadline`."""
        self._now = max(self._now, deadline)

    def advance(self, seconds: float) -> None:
        """Let time pass while somebody works."""
        self._now += seconds


class MonotonicClock:
    """CLOCK_MONOTONIC, slept on to an absolute moment by `clock_nanosleep`.

    The kernel rounds wake-ups up by a slack of 50 us to save power; one of 1 ns halves the median
    lateness. It belongs to the thread, so make the clock in the thread that sleeps. Elsewhere than
    on Linux it is Python's own sleep.
    """

    def __init__(self) -> None:
        """Ask for the smallest timer slack of this thread."""
        self._libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        if self._libc is not None:
            self._libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
            self._nanosleep = self._libc.clock_nanosleep
            self._until = _TimeSpec()

    def now(self) -> float:
        """Seconds since the machine started."""
        return time.monotonic()

    def sleep_until(self, deadline: float) -> None:
        """Return at or after `deadline`; a signal's handler runs meanwhile."""
        if self._libc is None:
            time.sleep(max(0.0, deadline - time.monotonic()))
            return
        self._until.seconds = int(deadline)
        self._until.nanoseconds = min(999_999_999, round(1e9 * (deadline - int(deadline))))
        until = ctypes.byref(self._until)
        while self._nanosleep(_CLOCK_MONOTONIC, _TIMER_ABSTIME, until, None) == errno.EINTR:
            pass


Clock: TypeAlias = MonotonicClock | LogicalClock
"""Seconds since some moment, which never go back, and sleeping until one."""


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))
    seconds: int
    nanoseconds: int


@dataclass(frozen=True)
class Latency:
    """Summary of one stage."""

    count: int
    """Samples ever seen."""
    p50: float
    """Median of those remembered [s]."""
    p99: float
    """99th percentile of those remembered [s]."""
    longest: float
    """Longest ever [s]."""


class Latencies:
    """A ring of samples for each stage of a tick."""

    def __init__(self, stages: Sequence[str], remembered: int = 5000) -> None:
        """Make room.

        Args:
            remembered: Samples of each stage that percentiles are taken of.
        """
        self._rows = {stage: row for row, stage in enumerate(stages)}
        self._samples = np.zeros((len(stages), remembered))
        self._counts = np.zeros(len(stages), dtype=np.int64)
        self._longest = np.zeros(len(stages))

    def add(self, stage: str, seconds: float) -> None:
        """Take a sample. Real-time: allocates nothing, never blocks."""
        row = self._rows[stage]
        self._samples[row, self._counts[row] % self._samples.shape[1]] = seconds
        self._counts[row] += 1
        self._longest[row] = max(self._longest[row], seconds)

    def samples(self, stage: str) -> np.ndarray:
        """Those of a stage that are remembered, in no order [s]; a copy."""
        row = self._rows[stage]
        return self._samples[row, : min(int(self._counts[row]), self._samples.shape[1])].copy()

    def summary(self) -> dict[str, Latency]:
        """Every stage that has samples; takes a millisecond, so not within a tick."""
        found: dict[str, Latency] = {}
        for stage, row in self._rows.items():
            count = int(self._counts[row])
            if count:
                p50, p99 = np.percentile(self.samples(stage), [50, 99])
                found[stage] = Latency(count, float(p50), float(p99), float(self._longest[row]))
        return found
