"""Time in messages: integer nanoseconds here, seconds and nanoseconds there."""

from collections.abc import Callable
from typing import Any

_SECOND = 1_000_000_000
_TRIES, _NARROW = 5, 50e-6


def to_nanoseconds(stamp: Any) -> int:
    """A `builtin_interfaces/Time` as nanoseconds since its clock's zero [ns]."""
    return int(stamp.sec) * _SECOND + int(stamp.nanosec)


def put_stamp(header: Any, nanoseconds: int) -> None:
    """Write a time [ns] into a `std_msgs/Header`."""
    header.stamp.sec, header.stamp.nanosec = divmod(nanoseconds, _SECOND)


def clock_offset(ros_now: Callable[[], int], loop_now: Callable[[], float]) -> int:
    """What to add to a time of the loop's clock to get one of the ROS clock [ns].

    The clocks are read one after the other, and the process may be made to wait in between for
    longer than a stamp may be wrong. So one is read on both sides of the other, again until that
    took less than 50 us; of five tries the narrowest counts.
    """
    narrowest, offset = float("inf"), 0
    for _ in range(_TRIES):
        before, there, after = loop_now(), ros_now(), loop_now()
        if after - before < narrowest:
            narrowest, offset = after - before, there - round((before + after) * 0.5e9)
        if narrowest < _NARROW:
            break
    return offset
