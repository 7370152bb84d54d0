"""The loop's status through a mailbox: numbers, and the words of its last trip and refusal."""

from dataclasses import dataclass

import numpy as np

from hardware.control.mail.mailbox import MailboxReader, MailboxWriter
from hardware.control.robot_loop import STAGES
from hardware.control.safety import Condition, SafetyState
from hardware.control.status import RobotStatus
from hardware.control.timing.durations import Latency

_STATES, _CONDITIONS = list(SafetyState), list(Condition)
_WORDS = 48
"""Numbers that a text takes: 384 bytes."""
_NUMBERS = 7
_WIDTH = _NUMBERS + len(_CONDITIONS) + 4 * len(STAGES) + 2 * _WORDS


@dataclass(frozen=True, kw_only=True)
class ToldStatus:
    """What a neighbour knows of the loop."""

    time: float
    """Of the tick, clock of the loop [s]."""
    ticks: int
    safety: SafetyState
    conditions: frozenset[Condition]
    state_age: float
    """Age of the sample in use [s]."""
    clamped: int
    """Ticks in which a limit changed the command."""
    replaced: int
    """Ticks in which an entry of the command was no number."""
    missed: int
    """Periods missed so far."""
    latencies: dict[str, Latency]
    """By stage; of the last time that they were summed up."""
    trip: str
    """The last trip in words; empty where there was none."""
    refused: str
    """Why the last act that was not done was not done."""


class StatusSender:
    """The end of the loop."""

    def __init__(self, name: str) -> None:
        """Write to the mailbox `name`."""
        self._writer = MailboxWriter(name, _WIDTH)
        self._latencies = np.zeros(4 * len(STAGES))

    def summed_up(self, latencies: dict[str, Latency]) -> None:
        """Take new percentiles; they go out with every status from now on."""
        for row, stage in enumerate(STAGES):
            if stage in latencies:
                one = latencies[stage]
                self._latencies[4 * row : 4 * row + 4] = one.count, one.p50, one.p99, one.longest

    def send(self, status: RobotStatus) -> None:
        """Leave a status. Real-time: never blocks."""
        numbers = [
            status.time, status.ticks, _STATES.index(status.safety), status.state_age,
            status.clamped, status.replaced, status.missed,
        ]  # fmt: skip
        held = [condition in status.conditions for condition in _CONDITIONS]
        trip = "" if status.trip is None else status.trip.words
        row = [np.array([*numbers, *held]), self._latencies, _packed(trip), _packed(status.refused)]
        self._writer.write(np.concatenate(row), status.time)

    def close(self) -> None:
        """Remove the mailbox; allowed more than once."""
        self._writer.close()


class StatusReceiver:
    """The end of a neighbour."""

    def __init__(self, name: str) -> None:
        """Read the mailbox `name`."""
        self._reader = MailboxReader(name, _WIDTH)

    @property
    def safety(self) -> SafetyState | None:
        """State of the newest status, without reading the rest of it; None as of `newest`."""
        message = self._reader.newest()
        return None if message is None else _STATES[int(message.values[2])]

    def newest(self) -> ToldStatus | None:
        """The newest status; None before the first and after the loop has ended."""
        message = self._reader.newest()
        if message is None:
            return None
        row = message.values
        held, rest = np.split(row[_NUMBERS:], [len(_CONDITIONS)])
        shares, trip, refused = np.split(rest, [4 * len(STAGES), 4 * len(STAGES) + _WORDS])
        latencies = {
            stage: Latency(int(one[0]), *map(float, one[1:]))
            for stage, one in zip(STAGES, shares.reshape(-1, 4), strict=True)
            if one[0]
        }
        return ToldStatus(
            time=row[0], ticks=int(row[1]), safety=_STATES[int(row[2])],
            conditions=frozenset(c for c, on in zip(_CONDITIONS, held, strict=True) if on),
            state_age=row[3], clamped=int(row[4]), replaced=int(row[5]), missed=int(row[6]),
            latencies=latencies, trip=_unpacked(trip), refused=_unpacked(refused),
        )  # fmt: skip

    def close(self) -> None:
        """Let go; allowed more than once."""
        self._reader.close()


def _packed(text: str) -> np.ndarray:
    """A text's bytes as numbers, cut at the end; the numbers are never reckoned with."""
    raw = text.encode(errors="replace")[: 8 * _WORDS].ljust(8 * _WORDS, b"\0")
    return np.frombuffer(raw, dtype="<f8")


def _unpacked(numbers: np.ndarray) -> str:
    raw = np.ascontiguousarray(numbers, dtype="<f8").tobytes()
    return raw.rstrip(b"\0").decode(errors="ignore")
