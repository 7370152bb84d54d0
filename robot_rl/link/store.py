"""The learner's durable log of everything that robots have sent, each record exactly once.

    <folder>/name   32 hexadecimal digits, by which robots tell this store from another run's
    <folder>/*.log  a `RecordLog`; an entry is
        kind (1 byte: 0 session, 1 record) | session (16 bytes) | seq (u64) | content

The content of a session's entry is JSON: the robot's name and its number of that session; of a
record it is the record as it was sent. An acknowledgement leaves only after the entries before it
are on the disk, so that a learner that is killed has all that it has acknowledged, and asks for the
rest. The log is the only truth: replays are rebuilt from it, in its order.
"""

import contextlib
import json
import re
import struct
import threading
import uuid
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from robot_rl.core.errors import RobotRLError, StorageError
from robot_rl.link.record_log import RecordLog
from robot_rl.link.records import Frame, FrameSpec, Record, RecordError, check_numbers, decode
from robot_rl.training.storage.durable import replace_file, storage_errors

_HEAD = struct.Struct("<B16sQ")
_SESSION, _RECORD = 0, 1
_HEX = re.compile(r"[0-9a-f]{32}")


class OrderError(RobotRLError):
    """Records came that do not follow those that are stored."""


@dataclass
class _Session:
    robot: str
    checksums: "array[int]" = field(default_factory=lambda: array("I"))
    """CRC-32 of each stored record: one that comes again must be the same."""


@dataclass(frozen=True)
class Begun:
    """Entry of the log: a session of a robot began."""

    session: str
    robot: str


class ExperienceStore:
    """Log of all sessions of all robots. Thread-safe; one process."""

    def __init__(self, folder: Path | str) -> None:
        """Open the log and count what each session has stored.

        Raises:
            StorageError: The disk refused, or the log is damaged.
        """
        self._log = RecordLog(folder)
        name = self._log.folder / "name"
        with storage_errors("open the store", self._log.folder):
            if not name.exists():
                replace_file(name, uuid.uuid4().hex.encode())
            self.name = name.read_text()
        """Name of this store; a robot's spool belongs to one."""
        self._log.sync()  # what a killed process had not: it is about to be acknowledged
        self._doubtful: int | None = None
        """Number from which on the log has entries that the disk refused to sync."""
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._sessions: dict[str, _Session] = {}
        for _, content in self._log.read(0):
            kind, session, _, payload = _entry(content)
            if kind == _SESSION:
                self._sessions[session] = _Session(json.loads(payload)["robot"])
            else:
                self._sessions[session].checksums.append(zlib.crc32(payload))

    @property
    def position(self) -> int:
        """Entries so far; one behind the newest."""
        return self._log.next

    def begin(self, session: str, robot: str) -> int:
        """Register a session, once; returns how many of its records are stored.

        Raises:
            OrderError: The session's name is none, or is another robot's.
        """
        if not _HEX.fullmatch(session) or not 0 < len(robot) <= 100:
            raise OrderError(
                f"a session '{session}' of robot '{robot}' was to begin; expected 32 hexadecimal "
                "digits and a name"
            )
        with self._lock:
            known = self._sessions.get(session)
            if known is None:
                content = json.dumps({"robot": robot}).encode()
                self._put([_HEAD.pack(_SESSION, bytes.fromhex(session), 0) + content])
                known = self._sessions[session] = _Session(robot)
            elif known.robot != robot:
                raise OrderError(f"session {session} is of robot '{known.robot}', not of '{robot}'")
            return len(known.checksums)

    def append(
        self, session: str, first: int, payloads: Sequence[bytes], spec: FrameSpec | None = None
    ) -> int:
        """Store records of a session from a number on; returns how many are stored then.

        Those that are stored already change nothing. They are on the disk when this returns.

        Raises:
            OrderError: They leave a gap, or differ from what is stored under their numbers.
            RecordError: One is damaged, of other shapes than `spec`, or has times that are none;
                none was stored.
            StorageError: The disk refused; none was stored.
        """
        with self._lock:
            known = self._sessions.get(session)
            if known is None:
                raise OrderError(f"session '{session}' has not begun here; say hello first")
            stored = len(known.checksums)
            if first < 0 or first > stored:
                raise OrderError(
                    f"records of session {session} came from number {first} on; expected {stored}"
                )
            for number, payload in enumerate(payloads[: stored - first], first):
                if zlib.crc32(payload) != known.checksums[number]:
                    raise OrderError(
                        f"record {number} of session {session} came again with other content; the "
                        "stored one stays"
                    )
            fresh = payloads[stored - first :]
            for seq, payload in enumerate(fresh, stored):
                _check(decode(payload), session, seq, spec)
            if fresh:
                name = bytes.fromhex(session)
                self._put(
                    [_HEAD.pack(_RECORD, name, stored + k) + one for k, one in enumerate(fresh)]
                )
                known.checksums.extend(zlib.crc32(one) for one in fresh)
                self._arrived.notify_all()
            return len(known.checksums)

    def _put(self, contents: Sequence[bytes]) -> None:
        """Add entries that are on the disk when this returns; where it refuses, none is there.

        What it refused to sync is taken back rather than synced again: a second sync may succeed
        without what the first one lost.
        """
        self._take_back()
        self._doubtful = self._log.next
        try:
            self._log.append(contents)
            self._log.sync()
        except StorageError:
            with contextlib.suppress(StorageError):  # else before the next entries
                self._take_back()
            raise
        self._doubtful = None

    def _take_back(self) -> None:
        if self._doubtful is not None:
            self._log.take_back(self._doubtful)
            self._doubtful = None

    def read(self, start: int, stop: int | None = None) -> Iterator[tuple[int, Record | Begun]]:
        """Entries from a position on, in their order, with their positions.

        Raises:
            StorageError: One is damaged.
        """
        with self._lock:
            stop = self._log.next if stop is None else stop
        for position, content in self._log.read(start, stop):
            kind, session, _, payload = _entry(content)
            if kind == _SESSION:
                yield position, Begun(session, json.loads(payload)["robot"])
            else:
                yield position, decode(payload)

    def wait(self, position: int, seconds: float) -> bool:
        """Wait until there is an entry at a position; returns whether there is."""
        with self._lock:
            return self._arrived.wait_for(lambda: self._log.next > position, seconds)

    def close(self) -> None:
        """Close the log."""
        with self._lock:
            self._log.close()


def _check(record: Record, session: str, seq: int, spec: FrameSpec | None) -> None:
    check_numbers(record)
    if not isinstance(record, Frame):
        return
    if record.session != session or record.seq != seq:
        raise RecordError(
            f"frame {record.seq} of session {record.session} came as record {seq} of {session}"
        )
    if spec is not None:
        spec.check_frame(record)


def _entry(content: bytes) -> tuple[int, str, int, bytes]:
    if len(content) <= _HEAD.size or content[0] not in (_SESSION, _RECORD):
        raise StorageError("an entry of the learner's log is none of ours; put back a copy")
    kind, session, seq = _HEAD.unpack_from(content)
    return kind, session.hex(), seq, content[_HEAD.size :]
