"""Measured states through a mailbox: what the loop reads, for the neighbour that publishes it."""

from collections.abc import Mapping

import numpy as np

from hardware.control.mailbox import MailboxReader, MailboxWriter, Message
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_state import RobotState


class StateSender:
    """The end of the loop."""

    def __init__(self, name: str, spec: RobotSpec) -> None:
        """Write to the mailbox `name`."""
        self._widths = spec.state_widths
        self._row = np.zeros(sum(self._widths.values()))
        self._writer = MailboxWriter(name, len(self._row))

    def send(self, state: RobotState, stamp: float) -> None:
        """Leave a state, measured at a time of the loop's clock [s]. Real-time: never blocks."""
        start = 0
        for field, width in self._widths.items():
            self._row[start : start + width] = np.reshape(state.field(field), -1)
            start += width
        self._writer.write(self._row, stamp)

    def close(self) -> None:
        """Remove the mailbox; allowed more than once."""
        self._writer.close()


class StateReceiver:
    """The end of the neighbour."""

    def __init__(self, name: str, spec: RobotSpec) -> None:
        """Read the mailbox `name`."""
        self._widths = spec.state_widths
        self._reader = MailboxReader(name, sum(self._widths.values()))
        self._seen: Message | None = None

    def newer(self) -> tuple[Mapping[str, np.ndarray], float] | None:
        """Fields (1, width) and their time [s], if they came since the last call."""
        message = self._reader.newest()
        if message is None or message is self._seen:
            return None
        self._seen = message
        fields: dict[str, np.ndarray] = {}
        start = 0
        for field, width in self._widths.items():
            fields[field] = message.values[None, start : start + width]
            start += width
        return fields, message.stamp

    def close(self) -> None:
        """Let go; allowed more than once."""
        self._reader.close()
