"""Numbers with names, as `sensor_msgs/JointState` carries them: order is the sender's business."""

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from robot_rl.core.errors import SpecMismatchError


class NamedValues:
    """Puts arrays into a message's lists, and finds them again by name."""

    def __init__(self, what: str, names: Sequence[str]) -> None:
        """Remember the order of our side.

        Args:
            what: For messages, such as "joint".
            names: In our order.
        """
        self.what = what
        self.names = list(names)
        self._orders: dict[tuple[str, ...], np.ndarray] = {}

    def write(self, values: Any) -> "array[float]":
        """Values (1, W) of our order as a message's list."""
        return array("d", np.asarray(values, dtype=np.float64).ravel())

    def read(self, names: Sequence[str], values: Sequence[float], into: np.ndarray) -> None:
        """Put a message's list into (1, W) of our order; a list of no length changes nothing.

        Args:
            names: Of the message.
            values: One for each of them.
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
        """Where each of our names stands in the message; looked up once per order."""
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
