"""The robot's disk between actor and learner: holds what the learner has not stored durably.

Every start of an actor is a session with a log of its own (`record_log.py`):

    <folder>/<started>_<session>/    records 0, 1, 2, ... of the session
    <folder>/store                   name of the learner's store that the records are for

A record is written when its step is over and leaves only when the learner has acknowledged it. An
actor that starts again sends what its earlier sessions have left, oldest first. Nothing is dropped:
a spool that has reached its quota refuses frames, and the actor stops acting until there is room.
Corrections are small and are taken beyond the quota. A killed process loses nothing; a power cut
loses at most what came after the last `sync`, which the link asks for about once a second.
"""

import os
import threading
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from robot_rl.core.errors import StorageError
from robot_rl.link.record_log import RecordLog
from robot_rl.link.records import Frame, Record, encode
from robot_rl.training.storage.durable import (
    discard,
    make_folder,
    replace_file,
    storage_errors,
    sync_folder,
    take_lock,
)

_FILE_BYTES = 4 << 20


class SpoolFullError(StorageError):
    """The spool has reached its quota."""


@dataclass
class _Session:
    name: str
    log: RecordLog
    stored: int = 0
    """Records that the learner has acknowledged."""


class Spool:
    """Records of all sessions of a robot that wait for the learner. Thread-safe."""

    def __init__(self, folder: Path | str, *, quota_bytes: int) -> None:
        """Open the folder, begin a session, and find what earlier ones have left.

        Args:
            quota_bytes: Bytes on disk beyond which frames are refused.

        Raises:
            StorageError: Another actor uses the folder, or the disk refused.
        """
        self.folder, self.quota_bytes = Path(folder), quota_bytes
        file_bytes = min(_FILE_BYTES, quota_bytes // 8)  # what is acknowledged goes file by file
        with storage_errors("open the spool", self.folder):
            make_folder(self.folder)
            lock = take_lock(self.folder)
        if lock is None:
            raise StorageError(f"another actor uses the spool {self.folder}; end that one first")
        self._lock_file, self._lock = lock, threading.Lock()
        self.arrived = threading.Event()
        """Set when there is something new to send."""
        self._sessions = [
            _Session(path.name.rpartition("_")[2], RecordLog(path, file_bytes=file_bytes))
            for path in sorted(self.folder.iterdir())
            if path.is_dir()
        ]
        self.session = uuid.uuid4().hex
        """The session of this actor."""
        name = f"{time.time_ns():020d}_{self.session}"
        self._own = _Session(self.session, RecordLog(self.folder / name, file_bytes=file_bytes))
        self._sessions.append(self._own)

    @property
    def store(self) -> str:
        """Name of the store that these records are for; empty before the first greeting."""
        path = self.folder / "store"
        return path.read_text() if path.exists() else ""

    @store.setter
    def store(self, name: str) -> None:
        if name != self.store:
            with storage_errors("write the spool", self.folder):
                replace_file(self.folder / "store", name.encode())

    @property
    def next_seq(self) -> int:
        """Number of the next record of this session."""
        return self._own.log.next

    @property
    def num_bytes(self) -> int:
        """Bytes on disk."""
        with self._lock:
            return sum(one.log.num_bytes for one in self._sessions)

    @property
    def unacknowledged(self) -> int:
        """Records that the learner has not acknowledged."""
        with self._lock:
            return sum(one.log.next - one.stored for one in self._sessions)

    @property
    def full(self) -> str:
        """Sentence about a spool without room; empty where there is some."""
        used = self.num_bytes
        if used < self.quota_bytes:
            return ""
        return (
            f"the spool {self.folder} holds {used / 1e6:,.0f} MB of {self.quota_bytes / 1e6:,.0f} "
            f"MB, {self.unacknowledged:,} records that the learner has not stored: bring the "
            "learner back, or raise the quota; until then the robot waits"
        )

    def append(self, record: Record) -> int:
        """Take a record, and return its number in this session.

        Real-time: never waits for the disk; `sync` does.

        Raises:
            SpoolFullError: There is no room for a frame.
            StorageError: The disk refused; nothing was written.
        """
        if isinstance(record, Frame):
            if why := self.full:
                raise SpoolFullError(why)
            record = replace(record, session=self.session, seq=self.next_seq)
        payload = encode(record)
        with self._lock:
            number = self._own.log.append([payload], wait=False)
        self.arrived.set()
        return number

    def sync(self) -> None:
        """Wait until this session is on the disk, without keeping `append` waiting.

        Where all of it is there the next file begins, if it is time.

        Raises:
            StorageError: The disk refused.
        """
        log = self._own.log
        with self._lock:
            end, descriptor = log.next, log.duplicate()
        with storage_errors("write the spool", self.folder):
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            with self._lock:
                begun = log.next == end and log.begin_file()
                log.drop_before(self._own.stored)  # a spool that is full gets no more calls for it
            if begun:
                sync_folder(log.folder)

    def waiting(self) -> list[tuple[str, int, int]]:
        """Sessions that still matter, oldest first: name, first record not acknowledged, next."""
        with self._lock:
            return [(one.name, one.stored, one.log.next) for one in self._sessions]

    def batch(self, session: str, start: int, *, most_bytes: int, most: int = 4096) -> list[bytes]:
        """Records of a session from a number on, up to a size, at least one if there is one.

        The thread that acknowledges calls this too; `append` is not kept waiting.

        Raises:
            StorageError: They cannot be read, or have been dropped already.
        """
        with self._lock:
            log = self._find(session).log
        if start < log.first:
            raise StorageError(
                f"the learner asks for record {start} of session {session}, which it had "
                f"acknowledged: the spool begins with {log.first}; the learner's log was lost "
                "or replaced by an older copy"
            )
        found: list[bytes] = []
        size = 0
        for _, payload in log.read(start, start + most):  # what is written does not change
            size += len(payload)
            if found and size > most_bytes:
                break
            found.append(payload)
        return found

    def acknowledge(self, session: str, stored: int) -> None:
        """Drop what the learner has stored; an earlier session that is complete goes altogether."""
        with self._lock:
            one = self._find(session)
            one.stored = min(stored, one.log.next)
            one.log.drop_before(one.stored)
            over = one is not self._own and one.stored >= one.log.next
            if over:
                self._sessions.remove(one)
        if over:
            one.log.close()
            discard(one.log.folder)

    def close(self) -> None:
        """Put everything on the disk and let another actor use the folder."""
        with self._lock:
            for one in self._sessions:
                one.log.close()
            self._lock_file.close()

    def _find(self, session: str) -> _Session:
        return next(one for one in self._sessions if one.name == session)
