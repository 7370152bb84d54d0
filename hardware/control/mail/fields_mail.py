"""Named arrays through a mailbox: measured states and whatever else the loop's side knows."""

from collections.abc import Mapping

import numpy as np

from hardware.control.mail.mailbox import MailboxReader, MailboxWriter, Message


class FieldsSender:
    """The end of the loop."""

    def __init__(self, name: str, widths: Mapping[str, int]) -> None:
        """Write to the mailbox `name` fields of these widths."""
        self._widths = dict(widths)
        self._row = np.zeros(sum(widths.values()))
        self._writer = MailboxWriter(name, len(self._row))

    def send(self, fields: Mapping[str, np.ndarray], stamp: float) -> None:
        """Leave fields (1, width) of a time of the loop's clock [s]. Real-time: never blocks."""
        start = 0
        for field, width in self._widths.items():
            self._row[start : start + width] = np.reshape(fields[field], -1)
            start += width
        self._writer.write(self._row, stamp)

    def close(self) -> None:
        """Remove the mailbox; allowed more than once."""
        self._writer.close()


class FieldsReceiver:
    """The end of a neighbour."""

    def __init__(self, name: str, widths: Mapping[str, int]) -> None:
        """Read the mailbox `name`."""
        self._widths = dict(widths)
        self._reader = MailboxReader(name, sum(widths.values()))
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
