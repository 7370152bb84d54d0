"""Parts that messages share: stamps, vectors, and numbers with names.

Time is integer nanoseconds here, seconds and nanoseconds there. `sensor_msgs/JointState` carries
values by name, in the order of its sender.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from robot_rl.core.errors import SpecMismatchError

Fields = Mapping[str, np.ndarray]
"""Name -> (1, width), float64."""


class NamedValues:
    """Puts arrays into a message's lists, and finds them again by name."""

    def __init__(self, what: str, names: Sequence[str]) -> None:
        self.what = what
        self.names = list(names)
        self._orders: dict[tuple[str, ...], np.ndarray] = {}

    def write(self, values: Any) -> "array[float]":
        """Values (1, W) of our order as a message's list."""
        return array("d", np.asarray(values, dtype=np.float64).ravel())

    def read(self, names: Sequence[str], values: Sequence[float], into: np.ndarray) -> None:
        """Put a message's list into (1, W) of our order; a list of no length changes nothing.

        Args:
            into: (1, W), written.

        Raises:
            SpecMismatchError: A name is missing or appears twice, or lengths differ.
        """
        if not len(values):
            return
        if len(values) != len(names):
            raise SpecMismatchError(
                f"a message has {len(names)} {self.what} names and {len(values)} values; "
                "expected as many of each"
            )
        into[0] = np.asarray(values, dtype=np.float64)[self._order(tuple(names))]

    def _order(self, names: tuple[str, ...]) -> np.ndarray:
        """Index of each of our names in the message; looked up once per order."""
        known = self._orders.get(names)
        if known is not None:
            return known
        missing = [name for name in self.names if name not in names]
        twice = sorted({name for name in names if names.count(name) > 1})
        if missing or twice:
            fault = f"lacks {missing}" if missing else f"names {twice} twice"
            raise SpecMismatchError(
                f"a message {fault}: asked for {self.what}s {self.names}, got {list(names)}; "
                "compare the names in the robot's YAML with those that its driver publishes"
            )
        order = np.array([names.index(name) for name in self.names], dtype=np.intp)
        self._orders = {names: order}  # one sender at a time: a stranger cannot fill the memory
        return order


_SECOND = 1_000_000_000
_TRIES, _NARROW = 5, 50e-6


def to_nanoseconds(stamp: Any) -> int:
    """A `builtin_interfaces/Time` as nanoseconds since its clock's zero [ns]."""
    return int(stamp.sec) * _SECOND + int(stamp.nanosec)


def put_stamp(header: Any, nanoseconds: int) -> None:
    """Write a time [ns] into a `std_msgs/Header`."""
    header.stamp.sec, header.stamp.nanosec = divmod(nanoseconds, _SECOND)


def clock_offset(ros_now: Callable[[], int], loop_now: Callable[[], float]) -> int:
    """Offset of the ROS clock from the loop's clock [ns].

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


def put_vector(message: Any, values: np.ndarray) -> None:
    """Write (1, 3) into a `Vector3` or a `Point`."""
    message.x, message.y, message.z = (float(value) for value in values[0])


def get_vector(message: Any, into: np.ndarray) -> None:
    """Read a `Vector3` or a `Point` into (1, 3)."""
    into[0] = message.x, message.y, message.z


def put_quaternion(message: Any, wxyz: np.ndarray) -> None:
    """Write (1, 4), wxyz, into a `Quaternion`, which is xyzw."""
    message.w, message.x, message.y, message.z = (float(value) for value in wxyz[0])


def get_quaternion(message: Any, into: np.ndarray) -> None:
    """Read a `Quaternion`, which is xyzw, into (1, 4), wxyz."""
    into[0] = message.w, message.x, message.y, message.z
