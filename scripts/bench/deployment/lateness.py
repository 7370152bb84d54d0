"""Lateness of a loop beside a loop that does nothing: what is ours, and what is the machine's.

On a shared machine only the ratio means something, and only where both are measured in turns.
"""

from collections.abc import Callable
from typing import NamedTuple

from hardware.control.clock import Clock, Latencies, Latency
from hardware.control.robot_loop import STAGES, RobotLoop


class Lateness(NamedTuple):
    """One pair of windows, one after the other."""

    bare: Latency
    """Of a loop that only sleeps."""
    loop: Latency
    """Of the robot's loop."""
    work: Latency
    """Of its ticks."""
    stages: Latencies
    """Every sample of the loop's window."""


def compare_lateness(
    loop: RobotLoop, clock: Clock, period: float, *, seconds: float = 1.0, windows: int = 5,
    between: Callable[[], object] = lambda: None,
) -> list[Lateness]:  # fmt: skip
    """Run both in alternating windows; the loop's state and the robot's are left as they come.

    Args:
        loop: Of the robot.
        clock: Both sleep by it.
        period: Between two ticks [s].
        seconds: Length of one window.
        windows: How many pairs.
        between: What the loop's process does after every tick.
    """
    ticks = max(1, round(seconds / period))
    pairs = []
    for _ in range(windows):
        bare = bare_lateness(clock, period, ticks).summary()["lateness"]
        # The robot was not looked after meanwhile: its first tick has more to do than any other,
        # and takes a command that answers what was measured before.
        loop.latencies = Latencies(STAGES, remembered=ticks)
        deadline = loop.tick_after(loop.tick_after(clock.now()))
        loop.latencies = Latencies(STAGES, remembered=ticks)
        for _ in range(ticks):
            deadline = loop.tick_after(deadline)
            between()
        found = loop.latencies.summary()
        pairs.append(Lateness(bare, found["lateness"], found["tick"], loop.latencies))
    return pairs


def bare_lateness(clock: Clock, period: float, ticks: int) -> Latencies:
    """Lateness of a loop that does nothing but sleep: what the machine allows at best.

    Args:
        clock: To sleep by.
        period: Between two deadlines [s].
        ticks: How many deadlines.
    """
    latencies = Latencies(["lateness"], remembered=max(1, ticks))
    deadline = clock.now()
    for _ in range(ticks):
        deadline += period
        clock.sleep_until(deadline)
        woken = clock.now()
        latencies.add("lateness", woken - deadline)
        # As the loop does: periods that were slept through are skipped.
        deadline += period * int((woken - deadline) / period)
    return latencies
