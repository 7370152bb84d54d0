"""Time in messages: integer nanoseconds here, seconds and nanoseconds there."""

from typing import Any

_SECOND = 1_000_000_000


def to_nanoseconds(stamp: Any) -> int:
    """A `builtin_interfaces/Time` as nanoseconds since its clock's zero [ns]."""
    return int(stamp.sec) * _SECOND + int(stamp.nanosec)


def put_stamp(header: Any, nanoseconds: int) -> None:
    """Write a time [ns] into a `std_msgs/Header`."""
    header.stamp.sec, header.stamp.nanosec = divmod(nanoseconds, _SECOND)
