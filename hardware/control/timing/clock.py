"""Time as an argument: a clock that the loop sleeps by, real or logical."""

import ctypes
import errno
import sys
import time
from typing import Protocol

_CLOCK_MONOTONIC = 1
_TIMER_ABSTIME = 1
_PR_SET_TIMERSLACK = 29


class Clock(Protocol):
    """Seconds since some moment, and sleeping until one."""

    def now(self) -> float:
        """Seconds; never goes back."""
        ...

    def sleep_until(self, deadline: float) -> None:
        """Return at or after `deadline` [s]; at once where it has passed."""
        ...


class LogicalClock:
    """Time that passes only when somebody sleeps or says so: for tests."""

    def __init__(self, start: float = 0.0) -> None:
        """Begin at `start` [s]."""
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


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))
    seconds: int
    nanoseconds: int
