"""Acts of people through a mailbox: counters, so that none is lost and none is done twice."""

import math

import numpy as np

from hardware.control.acts import Acts
from hardware.control.mail.mailbox import MailboxReader, MailboxWriter
from hardware.control.safety import ACTS, Condition

_ORDER = [condition for condition in Condition if condition in ACTS]
_STOP = _ORDER.index(Condition.ESTOP_PRESSED)
_WIDTH = len(_ORDER) + 3


class ActsSender:
    """The end of who hears people: services, a button, a page."""

    def __init__(self, name: str) -> None:
        """Write to the mailbox `name`."""
        self._row = np.zeros(_WIDTH)
        self._row[-3:] = -math.inf, 1.0, 0.0
        self._writer = MailboxWriter(name, _WIDTH)
        self._writer.write(self._row, 0.0)

    def ask(self, act: Condition) -> None:
        """Ask for an act in the loop's next tick."""
        self._row[_ORDER.index(act)] += 1
        self._writer.write(self._row, 0.0)

    def tell(self, *, heartbeat: float, publishers: int, estop_down: bool) -> None:
        """Say what lasts.

        Args:
            heartbeat: When the person was heard last, clock of the loop [s].
            publishers: How many send commands to this robot.
            estop_down: Whether an emergency button is held down.
        """
        self._row[-3:] = heartbeat, publishers, estop_down
        self._writer.write(self._row, 0.0)

    def close(self) -> None:
        """Remove the mailbox; allowed more than once."""
        self._writer.close()


class ActsReceiver:
    """The end of the loop."""

    def __init__(self, name: str, acts: Acts) -> None:
        """Read the mailbox `name` into a loop's acts."""
        self._reader = MailboxReader(name, _WIDTH)
        self._acts = acts
        self._seen: np.ndarray | None = None

    def look(self) -> None:
        """Hand on what was asked for since the last look. Real-time: never blocks.

        What was asked before the first look is past, and so is what a new sender begins with; an
        emergency stop counts even then.
        """
        message = self._reader.newest()
        if message is None:
            return
        counts = message.values[: len(_ORDER)]
        before, self._seen = self._seen, counts
        heartbeat, publishers, down = message.values[-3:]
        self._acts.heartbeat = float(heartbeat)
        self._acts.publishers = int(publishers)
        self._acts.estop_down = bool(down)
        if before is None or (counts < before).any():
            if counts[_STOP] > 0:
                self._acts.ask(Condition.ESTOP_PRESSED)
            return
        for act, times in zip(_ORDER, counts - before, strict=True):
            if times > 0:
                self._acts.ask(act)

    def close(self) -> None:
        """Let go; allowed more than once."""
        self._reader.close()
