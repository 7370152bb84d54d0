"""A mailbox in shared memory: one process writes, others read the newest, and nobody ever waits.

A writer fills the slot that is not the newest and then names it the newest, so a writer that dies
half-way leaves the message before. A reader copies and checks a sequence number and a checksum
(Lamport's seqlock): what does not fit was being overwritten, and is read again. The checksum also
covers processors that reorder stores, which Python cannot fence.

The memory is a file that lives in RAM where the system has such a folder. Its writer holds a lock,
so a second one is refused; the system drops the lock of a writer that dies.
"""

import fcntl
import mmap
import os
import struct
import tempfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robot_rl.core.errors import ConfigError, RobotRLError, ShapeError

_PUBLISHED = struct.Struct("<Q")
"""Sequence number of the newest message; 0 before the first."""
_HEAD = struct.Struct("<Qd")
"""Sequence number and stamp; the values and a checksum follow."""
_CHECK = struct.Struct("<Q")
_SLOTS = 2
_TRIES = 4


class MailboxBusyError(RobotRLError):
    """Another process writes to this mailbox."""


class Message(NamedTuple):
    """What a reader finds."""

    sequence: int
    """Number of the message, from 1."""
    stamp: float
    """Time that its writer gave it [s]."""
    values: NDArray[np.float64]
    """(width,)."""


def mailbox_path(name: str) -> Path:
    """File of a mailbox."""
    if not name or "/" in name:
        raise ConfigError(f"a mailbox needs a name without '/', got '{name}'")
    memory = Path("/dev/shm")
    folder = memory if memory.is_dir() else Path(tempfile.gettempdir())
    return folder / f"robot_rl.{name}"


class MailboxWriter:
    """The one who writes. Use it as a context or `close` it: that removes the file."""

    def __init__(self, name: str, width: int) -> None:
        """Make the mailbox, or take over that of a writer that died.

        Args:
            name: Of the mailbox, the same for its readers.
            width: Numbers per message.

        Raises:
            MailboxBusyError: Somebody writes to it.
        """
        self._path, self._width = mailbox_path(name), width
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
            raise ShapeError(f"this mailbox takes {self._width} numbers, got {len(row)}")
        self._sequence += 1
        body = _HEAD.pack(self._sequence, stamp) + row.tobytes()
        start = _PUBLISHED.size + (self._sequence % _SLOTS) * self._slot
        self._memory[start : start + self._slot] = body + _CHECK.pack(zlib.crc32(body))
        _PUBLISHED.pack_into(self._memory, 0, self._sequence)

    def close(self) -> None:
        """Remove the mailbox; allowed more than once."""
        if self._file < 0:
            return
        self._path.unlink(missing_ok=True)
        self._memory.close()
        os.close(self._file)
        self._file = -1

    def __enter__(self) -> "MailboxWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class MailboxReader:
    """One who reads. The writer may come later, go, and come again."""

    def __init__(self, name: str, width: int) -> None:
        """Read the mailbox of this name with this many numbers per message."""
        self._path, self._width = mailbox_path(name), width
        self._slot = _slot_bytes(width)
        self._memory: mmap.mmap | None = None
        self._inode = -1
        self._last: Message | None = None

    def newest(self) -> Message | None:
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

    def __enter__(self) -> "MailboxReader":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

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
        except FileNotFoundError:
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
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise MailboxBusyError(
                f"mailbox '{path.name}' was asked for, but another process writes to it; "
                "end that one, or use another name"
            ) from None
        status = os.fstat(file)
        try:
            ours = os.stat(path).st_ino == status.st_ino
        except FileNotFoundError:
            ours = False  # its writer closed it between our opening and our locking
        if ours and status.st_size == 0:
            return file
        if ours:  # of a writer that died; readers may still have it mapped, so it is not changed
            path.unlink()
        os.close(file)
