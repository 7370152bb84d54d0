"""Messages between the robot process and others, through channels in shared memory.

A channel has one writer and any number of readers, who take the newest message; nobody ever waits.
Commands and operator requests come in, measured states and the loop's status go out.

A writer fills the slot that is not the newest and then names it the newest, so a writer that dies
half-way leaves the message before. A reader copies and checks a sequence number and a checksum
(Lamport's seqlock): what does not fit was being overwritten, and is read again. The checksum also
covers processors that reorder stores, which Python cannot fence.

The memory is a file that lives in RAM where the system has such a folder. Its writer holds a lock,
so a second one is refused; the system drops the lock of a writer that dies.
"""

import fcntl
import math
import mmap
import os
import struct
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardware.control.clock import Latency
from hardware.control.monitors import StampedCommand, command_widths
from hardware.control.robot_loop import STAGES, Executed, OperatorRequests, RobotStatus
from hardware.control.safety import OPERATOR_REQUESTS, Condition, SafetyState
from robot_rl.core.errors import ConfigError, RobotRLError, ShapeError, SpecMismatchError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import COMMANDS, CommandKind, RobotCommand

_PUBLISHED = struct.Struct("<Q")
"""Sequence number of the newest message; 0 before the first."""
_HEAD = struct.Struct("<Qd")
"""Sequence number and stamp; the values and a checksum follow."""
_CHECK = struct.Struct("<Q")
TEXT_WIDTH = 48
"""Numbers that a text takes: 384 bytes."""
_SLOTS = 2
_TRIES = 4


class ChannelBusyError(RobotRLError):
    """Another process writes to this channel."""


class Message(NamedTuple):
    """A message of a channel."""

    sequence: int
    """Number of the message, from 1."""
    stamp: float
    """Time that its writer gave it [s]."""
    values: NDArray[np.float64]
    """(width,)."""


def channel_path(name: str) -> Path:
    """File of a channel."""
    if not name or "/" in name:
        raise ConfigError(f"a channel needs a name without '/', got '{name}'")
    memory = Path("/dev/shm")
    folder = memory if memory.is_dir() else Path(tempfile.gettempdir())
    return folder / f"robot_rl.{name}"


class SharedMemoryWriter:
    """The one who writes. Use it as a context or `close` it: that removes the file."""

    def __init__(self, name: str, width: int) -> None:
        """Make the channel, or take over that of a writer that died.

        Args:
            width: Numbers per message.

        Raises:
            ChannelBusyError: Somebody writes to it.
        """
        self._path, self._width = channel_path(name), width
        self._slot = _slot_bytes(width)
        self._file = _locked(self._path)
        os.ftruncate(self._file, _PUBLISHED.size + _SLOTS * self._slot)
        self._memory = mmap.mmap(self._file, 0)
        self._sequence = 0

    def write(self, values: ArrayLike, stamp: float) -> None:
        """Leave a message. Real-time: never blocks.

        Args:
            values: (width,).
            stamp: Time that goes with it [s].
        """
        row = np.ascontiguousarray(values, dtype="<f8").reshape(-1)
        if len(row) != self._width:
            raise ShapeError(f"this channel takes {self._width} numbers, got {len(row)}")
        self._sequence += 1
        body = _HEAD.pack(self._sequence, stamp) + row.tobytes()
        start = _PUBLISHED.size + (self._sequence % _SLOTS) * self._slot
        self._memory[start : start + self._slot] = body + _CHECK.pack(zlib.crc32(body))
        _PUBLISHED.pack_into(self._memory, 0, self._sequence)

    def close(self) -> None:
        """Remove the channel; allowed more than once."""
        if self._file < 0:
            return
        self._path.unlink(missing_ok=True)
        self._memory.close()
        os.close(self._file)
        self._file = -1


class SharedMemoryReader:
    """One who reads. The writer may come later, go, and come again."""

    def __init__(self, name: str, width: int) -> None:
        self._path, self._width = channel_path(name), width
        self._slot = _slot_bytes(width)
        self._memory: mmap.mmap | None = None
        self._inode = -1
        self._last: Message | None = None

    def newest_message(self) -> Message | None:
        """The newest whole message; the same object while there is no newer one.

        Real-time: never blocks. None before the first message and after the writer has gone.
        """
        if self._memory is None and not self._opened():
            return None
        published = self._published()
        if published == (self._last.sequence if self._last else 0):
            self._forget_if_gone()
        else:
            self._last = self._read(published)
        return self._last

    def close(self) -> None:
        """Let go; allowed more than once."""
        if self._memory is not None:
            self._memory.close()
        self._memory, self._last, self._inode = None, None, -1

    def _published(self) -> int:
        assert self._memory is not None
        return _PUBLISHED.unpack_from(self._memory, 0)[0]

    def _read(self, published: int) -> Message | None:
        assert self._memory is not None
        for _ in range(_TRIES):
            start = _PUBLISHED.size + (published % _SLOTS) * self._slot
            raw = self._memory[start : start + self._slot]
            body, check = raw[: -_CHECK.size], _CHECK.unpack_from(raw, self._slot - _CHECK.size)[0]
            sequence, stamp = _HEAD.unpack_from(body)
            if sequence == published and zlib.crc32(body) == check:
                values = np.frombuffer(body, dtype="<f8", offset=_HEAD.size)
                return Message(sequence, stamp, values)
            published = self._published()
        return self._last  # overwritten again and again; what was read last is still whole

    def _forget_if_gone(self) -> None:
        """Let go of a file that is gone or another one; asked only while nothing new comes."""
        try:
            same = os.stat(self._path).st_ino == self._inode
        except FileNotFoundError:
            same = False
        if not same:
            self.close()

    def _opened(self) -> bool:
        try:
            file = os.open(self._path, os.O_RDONLY)
        except (FileNotFoundError, PermissionError):  # of another user: nothing is heard
            return False
        try:
            status = os.fstat(file)
            if status.st_size != _PUBLISHED.size + _SLOTS * self._slot:
                return False  # just being made, or made for other messages
            self._memory = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
            self._inode = status.st_ino
        finally:
            os.close(file)
        return True


def _slot_bytes(width: int) -> int:
    return _HEAD.size + 8 * width + _CHECK.size


def _locked(path: Path) -> int:
    """A new, empty file of that name under an exclusive lock."""
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except PermissionError:
            raise ChannelBusyError(
                f"channel '{path.name}' was asked for, and another user of this computer has it; "
                f"let them end their process, or remove {path}"
            ) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise ChannelBusyError(
                f"channel '{path.name}' was asked for, but another process writes to it; "
                "end that one, or use another name"
            ) from None
        ours = _is_at(path, file)
        if ours and os.fstat(file).st_size == 0:
            return file
        if ours:  # of a writer that died; readers may still have it mapped, so it is not changed
            path.unlink()
        os.close(file)


def _is_at(path: Path, file: int) -> bool:
    """False if a writer has removed or replaced the file since it was opened."""
    try:
        return os.stat(path).st_ino == os.fstat(file).st_ino
    except FileNotFoundError:
        return False


def remove_dead_channel(name: str) -> None:
    """Remove the file of a channel whose writer was killed; one that somebody writes to stays."""
    path = channel_path(name)
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:  # there is none, or it is no file of ours
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(path, file):
            path.unlink()
    except BlockingIOError:
        pass
    finally:
        os.close(file)


def _slices(widths: Mapping[str, int], start: int = 0) -> dict[str, slice]:
    """Place of each part in a row."""
    ends = start + np.cumsum([*widths.values()], dtype=int)
    places = zip(widths.items(), ends.tolist(), strict=True)
    return {name: slice(end - width, end) for (name, width), end in places}


class ArrayPublisher(SharedMemoryWriter):
    """Sends named arrays: measured states and whatever else the robot process knows."""

    def __init__(self, name: str, widths: Mapping[str, int]) -> None:
        self._widths = dict(widths)
        super().__init__(name, sum(widths.values()))

    def send(self, fields: Mapping[str, np.ndarray], stamp: float) -> None:
        """Leave fields (1, width) of a time of the loop's clock [s]. Real-time: never blocks."""
        rows = [np.reshape(fields[field], -1) for field in self._widths]
        self.write(np.concatenate(rows), stamp)


class ArraySubscriber(SharedMemoryReader):
    """Receives what an `ArrayPublisher` with the same widths sends."""

    def __init__(self, name: str, widths: Mapping[str, int]) -> None:
        self._slices = _slices(widths)
        self._seen: Message | None = None
        super().__init__(name, sum(widths.values()))

    def newer(self) -> tuple[Mapping[str, np.ndarray], float] | None:
        """Fields (1, width) and their time [s], if they came since the last call."""
        message = self.newest_message()
        if message is None or message is self._seen:
            return None
        self._seen = message
        fields = {name: message.values[None, part] for name, part in self._slices.items()}
        return fields, message.stamp


class CommandLayout:
    """Places of the entries of a command of one kind in a row of numbers.

    The first number is the set of gains, the second the gripper's opening (NaN without one), the
    rest the entries in the order of the class. A message that was no command has NaN as its set of
    gains, and then the reason as text.
    """

    def __init__(
        self, spec: RobotSpec, kind: CommandKind, gain_sets: Sequence[str] = ("",)
    ) -> None:
        """Lay out commands of a kind for a robot.

        Args:
            gain_sets: Names of the sets of gains, the same and in the same order on both sides.
        """
        self._make, widths = COMMANDS[kind], command_widths(spec)
        entries = {one.name: widths[one.name] for one in fields(self._make)}
        self._grips = entries.pop("gripper", 0) > 0
        self._slices = _slices(entries, start=2)
        self._gain_sets = tuple(gain_sets)
        self._used = 2 + sum(entries.values())
        self.width = max(self._used, 1 + TEXT_WIDTH)
        """Numbers per command."""

    def takes(self, command: RobotCommand) -> bool:
        """True if it is of this kind."""
        return isinstance(command, self._make)

    def to_row(self, stamped: StampedCommand) -> np.ndarray:
        """A command as numbers, (width,)."""
        command = stamped.command
        if not isinstance(command, self._make):
            raise SpecMismatchError(
                f"this channel takes {self._make.__name__}, got {type(command).__name__}"
            )
        if stamped.gains not in self._gain_sets:
            raise ConfigError(f"gain set '{stamped.gains}' is unknown; known: {self._gain_sets}")
        gripper = getattr(command, "gripper", None)
        opening = np.nan if gripper is None else np.asarray(gripper).reshape(-1)[0]
        rows = [np.reshape(getattr(command, name), -1) for name in self._slices]
        spare = np.zeros(self.width - self._used)
        return np.concatenate([[self._gain_sets.index(stamped.gains), opening], *rows, spare])

    def refusal(self, reason: str) -> np.ndarray:
        """A message that was no command as numbers, (width,); a long reason is cut at its end."""
        row = np.zeros(self.width)
        row[0] = np.nan
        row[1 : 1 + TEXT_WIDTH] = packed_text(reason)
        return row

    def from_row(self, message: Message) -> StampedCommand:
        """The command of a message; a number of gains that nobody knows becomes a name like it."""
        row = message.values
        if np.isnan(row[0]):
            nothing = {name: np.full((1, p.stop - p.start), np.nan) for name, p in
                       self._slices.items()}  # fmt: skip
            reason = unpacked_text(row[1 : 1 + TEXT_WIDTH]) or "a message was no command"
            return StampedCommand(command=self._make(**nothing), stamp=message.stamp, fault=reason)
        values = {name: row[None, part] for name, part in self._slices.items()}
        if self._grips and not np.isnan(row[1]):
            values["gripper"] = row[None, 1:2]
        number = int(row[0]) if np.isfinite(row[0]) else -1
        known = 0 <= number < len(self._gain_sets)
        gains = self._gain_sets[number] if known else f"number {row[0]}"
        command: RobotCommand = self._make(**values)
        return StampedCommand(command=command, stamp=message.stamp, gains=gains)


class CommandPublisher(SharedMemoryWriter):
    """Sends the commands of a policy or a person."""

    def __init__(self, name: str, layout: CommandLayout) -> None:
        self._layout = layout
        super().__init__(name, layout.width)

    def send(self, stamped: StampedCommand) -> None:
        """Leave a command. Real-time: never blocks."""
        self.write(self._layout.to_row(stamped), stamped.stamp)

    def refuse(self, stamp: float, reason: str) -> None:
        """Report a command that could not be read, at a time of the loop's clock [s]: invalid."""
        self.write(self._layout.refusal(reason), stamp)


class CommandSubscriber(SharedMemoryReader):
    """Receives commands in the robot process: a `CommandSource`."""

    def __init__(self, name: str, layout: CommandLayout) -> None:
        self._layout = layout
        self._message: Message | None = None
        self._command: StampedCommand | None = None
        super().__init__(name, layout.width)

    def newest(self) -> StampedCommand | None:
        """The newest command, the same object while there is no newer one."""
        message = self.newest_message()
        if message is not self._message:
            self._message = message
            self._command = None if message is None else self._layout.from_row(message)
        return self._command


_REQUESTS = [condition for condition in Condition if condition in OPERATOR_REQUESTS]
_ESTOP = _REQUESTS.index(Condition.ESTOP_PRESSED)


class RequestPublisher(SharedMemoryWriter):
    """Sends what people ask for, as counters: no request is lost and none is done twice."""

    def __init__(self, name: str) -> None:
        super().__init__(name, len(_REQUESTS) + 3)
        self._row = np.zeros(len(_REQUESTS) + 3)
        self.update(heartbeat=-math.inf, publishers=1, estop_down=False)

    def ask(self, request: Condition) -> None:
        """Ask for something in the loop's next tick."""
        self._row[_REQUESTS.index(request)] += 1
        self.write(self._row, 0.0)

    def update(self, *, heartbeat: float, publishers: int, estop_down: bool) -> None:
        """Send what lasts.

        Args:
            heartbeat: When the person was heard last, clock of the loop [s].
            publishers: How many send commands to this robot.
            estop_down: Whether an emergency button is held down.
        """
        self._row[-3:] = heartbeat, publishers, estop_down
        self.write(self._row, 0.0)


class RequestSubscriber(SharedMemoryReader):
    """Receives requests in the robot process."""

    def __init__(self, name: str, requests: OperatorRequests) -> None:
        super().__init__(name, len(_REQUESTS) + 3)
        self._requests = requests
        self._seen: np.ndarray | None = None

    def poll(self) -> None:
        """Hand on what was asked for since the last call. Real-time: never blocks.

        Requests of before the first call are past, and so is what a new sender begins with; an
        emergency stop counts even then.
        """
        message = self.newest_message()
        if message is None:
            return
        counts, (heartbeat, publishers, down) = message.values[:-3], message.values[-3:]
        before, self._seen = self._seen, counts
        self._requests.heartbeat = float(heartbeat)
        self._requests.publishers = int(publishers)
        self._requests.estop_down = bool(down)
        if before is None or (counts < before).any():
            if counts[_ESTOP] > 0:
                self._requests.ask(Condition.ESTOP_PRESSED)
            return
        for request, times in zip(_REQUESTS, counts - before, strict=True):
            if times > 0:
                self._requests.ask(request)


class HeartbeatPublisher(SharedMemoryWriter):
    """Sends when the person in front of the robot was heard: the lease of their authority."""

    def __init__(self, name: str) -> None:
        super().__init__(name, 1)

    def send(self, heard: float) -> None:
        """Leave a time of the loop's clock [s]. Real-time: never blocks."""
        self.write([heard], heard)


class HeartbeatSubscriber(SharedMemoryReader):
    """Receives the heartbeat in the robot process; it counts before that of `RequestPublisher`."""

    def __init__(self, name: str, requests: OperatorRequests) -> None:
        super().__init__(name, 1)
        self._requests = requests

    def poll(self) -> None:
        """Hand on the newest; call it after `RequestSubscriber.poll`. Real-time: never blocks."""
        message = self.newest_message()
        if message is not None:
            self._requests.heartbeat = message.stamp


ESTOP_SILENCE = 0.25
"""Age of a stop button's signal from which on it counts as pressed [s]."""


ESTOP_SKEW = 0.005
"""Largest lead of such a signal's stamp [s]."""


class EstopPublisher(SharedMemoryWriter):
    """Sends whether a stop button is down, and how often it went down, again and again."""

    def __init__(self, name: str) -> None:
        super().__init__(name, 2)
        self._down, self._presses = False, 0

    def send(self, down: bool, now: float) -> None:
        """Leave the signal of now, clock of the loop [s]. Real-time: never blocks."""
        self._presses += down and not self._down
        self._down = down
        self.write([down, self._presses], now)


def _is_heard(message: Message, now: float) -> bool:
    return 0 <= now - message.stamp + ESTOP_SKEW <= ESTOP_SILENCE


class EstopSubscriber(SharedMemoryReader):
    """Receives that signal in the robot process: silence counts as pressed.

    A press that was over before anybody looked counts too.
    """

    def __init__(self, name: str, requests: OperatorRequests) -> None:
        super().__init__(name, 2)
        self._requests = requests
        self._presses = 0.0

    def begin(self, now: float) -> None:
        """Count from here on: presses of before now, clock of the loop [s], are over.

        Those that follow count, even if they are over before `poll` is called.
        """
        message = self.newest_message()
        if message is not None and _is_heard(message, now):
            self._presses = message.values.tolist()[1]

    def poll(self, now: float) -> None:
        """Hand it on at a time of the loop's clock [s]. Real-time: never blocks."""
        message = self.newest_message()
        if message is None:
            self._requests.button_down = True
            return
        down, presses = message.values.tolist()
        self._requests.button_down = not _is_heard(message, now) or bool(down)
        if presses != self._presses:
            self._requests.ask(Condition.ESTOP_PRESSED)
        self._presses = presses


_STATES, _CONDITIONS = list(SafetyState), list(Condition)
_STATUS = _slices(
    {"numbers": 10, "held": len(_CONDITIONS), "latencies": 4 * len(STAGES), "trip": TEXT_WIDTH,
     "refused": TEXT_WIDTH}
)  # fmt: skip


class StatusPublisher(SharedMemoryWriter):
    """Sends the status of the loop: numbers, and the texts of its last trip and refusal."""

    def __init__(self, name: str) -> None:
        super().__init__(name, _STATUS["refused"].stop)
        self._latencies = np.zeros(4 * len(STAGES))

    def set_latencies(self, latencies: dict[str, Latency]) -> None:
        """Take new percentiles; they go out with every status from now on."""
        for row, stage in enumerate(STAGES):
            if stage in latencies:
                one = latencies[stage]
                self._latencies[4 * row : 4 * row + 4] = one.count, one.p50, one.p99, one.longest

    def send(self, status: RobotStatus) -> None:
        """Leave a status. Real-time: never blocks."""
        numbers = [
            status.time, status.ticks, _STATES.index(status.safety), status.state_age,
            status.clamped, status.replaced, status.missed, status.oldest_command, status.trips,
            status.withheld,
        ]  # fmt: skip
        held = [condition in status.conditions for condition in _CONDITIONS]
        texts = [packed_text(status.trip), packed_text(status.refused)]
        row = [numbers, held, self._latencies, *texts]
        self.write(np.concatenate(row), status.time)


class StatusSubscriber(SharedMemoryReader):
    """Receives the status of a loop."""

    def __init__(self, name: str) -> None:
        super().__init__(name, _STATUS["refused"].stop)

    @property
    def safety(self) -> SafetyState | None:
        """State of the newest status, without reading the rest of it; None as of `newest`."""
        message = self.newest_message()
        return None if message is None else _STATES[int(message.values[2])]

    @property
    def time(self) -> float | None:
        """Time of the newest status, clock of the loop [s]; None as of `newest`."""
        message = self.newest_message()
        return None if message is None else message.stamp

    def newest(self) -> RobotStatus | None:
        """The newest status; None before the first and after the loop has ended."""
        message = self.newest_message()
        if message is None:
            return None
        part = {name: message.values[place] for name, place in _STATUS.items()}
        numbers = part["numbers"]
        time, ticks, safety, age, clamped, replaced, missed, oldest, trips, withheld = numbers
        latencies = {
            stage: Latency(int(one[0]), *map(float, one[1:]))
            for stage, one in zip(STAGES, part["latencies"].reshape(-1, 4), strict=True)
            if one[0]
        }
        return RobotStatus(
            time=time, ticks=int(ticks), safety=_STATES[int(safety)], state_age=age,
            conditions=frozenset(c for c, on in zip(_CONDITIONS, part["held"], strict=True) if on),
            clamped=int(clamped), replaced=int(replaced), missed=int(missed), latencies=latencies,
            oldest_command=float(oldest), trips=int(trips), withheld=int(withheld),
            trip=unpacked_text(part["trip"]), refused=unpacked_text(part["refused"]),
        )  # fmt: skip


_EXECUTED = 5
"""Numbers before the setpoint: state, answered stamp, and ticks of policy, person and others."""


class ExecutedPublisher(SharedMemoryWriter):
    """Sends what every tick of the loop really followed."""

    def __init__(self, name: str, layout: CommandLayout) -> None:
        """Open the channel; `layout` is that of the setpoints, for one set of gains."""
        self._layout = layout
        super().__init__(name, _EXECUTED + layout.width)

    def send(self, executed: Executed) -> None:
        """Leave what a tick followed. Real-time: never blocks.

        A person's setpoint of another kind than a policy's is left out; the counts have its tick.
        """
        numbers = [
            _STATES.index(executed.safety), executed.answers, executed.policy_ticks,
            executed.human_ticks, executed.other_ticks,
        ]  # fmt: skip
        setpoint = executed.setpoint
        if setpoint is None or not self._layout.takes(setpoint):
            row = self._layout.refusal("")
        else:
            row = self._layout.to_row(StampedCommand(command=setpoint, stamp=executed.time))
        self.write(np.concatenate([numbers, row]), executed.time)


class ExecutedSubscriber(SharedMemoryReader):
    """Receives what a loop followed, from an `ExecutedPublisher` with the same layout."""

    def __init__(self, name: str, layout: CommandLayout) -> None:
        self._layout = layout
        super().__init__(name, _EXECUTED + layout.width)

    def newest(self) -> Executed | None:
        """Setpoint and counts of the newest tick; None before it and after the loop's end."""
        message = self.newest_message()
        if message is None:
            return None
        safety, answers, policy, human, other = message.values[:_EXECUTED].tolist()
        followed = self._layout.from_row(message._replace(values=message.values[_EXECUTED:]))
        return Executed(
            time=message.stamp, safety=_STATES[int(safety)], answers=answers,
            setpoint=None if followed.fault else followed.command, policy_ticks=int(policy),
            human_ticks=int(human), other_ticks=int(other),
        )  # fmt: skip


def packed_text(text: str) -> np.ndarray:
    """A text's bytes as numbers, cut at the end; the numbers are never reckoned with."""
    raw = text.encode(errors="replace")[: 8 * TEXT_WIDTH].ljust(8 * TEXT_WIDTH, b"\0")
    return np.frombuffer(raw, dtype="<f8")


def unpacked_text(numbers: np.ndarray) -> str:
    """The text of such numbers."""
    raw = np.ascontiguousarray(numbers, dtype="<f8").tobytes()
    return raw.rstrip(b"\0").decode(errors="ignore")
