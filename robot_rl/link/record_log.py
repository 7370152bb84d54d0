"""Append-only log of records on disk, readable after a kill up to the last whole record.

    <folder>/00000000000000000000.log    file that begins with record 0
    <folder>/00000000000000004711.log    the next one, that begins with record 4711

A file begins with 8 bytes that say its format; a record is its length and its CRC-32 (two
little-endian 32-bit numbers), then its bytes, at least one. A record is in the kernel's hands when
`append` returns, so that a killed process loses none; `sync` puts all before it on the disk, so
that a power cut does not either. What follows the last whole record is cut off when the log is
opened, told in a warning, and kept beside as `<file>.cut`.
"""

import contextlib
import logging
import os
import struct
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from robot_rl.core.errors import StorageError
from robot_rl.training.storage.durable import make_folder, storage_errors, sync_folder

_logger = logging.getLogger(__name__)
_MAGIC = b"RRLLOG1\n"
_HEAD = struct.Struct("<II")
LONGEST = 32 << 20
"""Bytes of a record; more is taken for damage."""


def holds_records(folder: Path) -> bool:
    """True if a log in `folder` has bytes of a record; another process may write it."""
    for path in folder.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # what was acknowledged goes file by file
            if path.stat().st_size > len(_MAGIC):
                return True
    return False


@dataclass
class _File:
    """One file of the log."""

    path: Path
    first: int
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    size: int = len(_MAGIC)

    @property
    def next(self) -> int:
        return self.first + len(self.offsets)


class RecordLog:
    """Numbered records in files of about equal size; one process writes. Not thread-safe."""

    def __init__(self, folder: Path | str, *, file_bytes: int = 16 << 20) -> None:
        """Open a log, or make one.

        Args:
            file_bytes: Size after which a new file begins.

        Raises:
            StorageError: The disk refused, or a file in the middle is damaged.
        """
        self.folder, self._file_bytes = Path(folder), file_bytes
        self._descriptor = -1
        with storage_errors("open the log", self.folder):
            make_folder(self.folder)
            paths = sorted(self.folder.glob("*.log"))
            self._files = [self._scan(path, last=path is paths[-1]) for path in paths]
        for one, two in zip(self._files, self._files[1:], strict=False):
            if one.next != two.first:
                raise StorageError(
                    f"the log {self.folder} is damaged: {one.path.name} ends before record "
                    f"{one.next}, and {two.path.name} begins with {two.first}; put back a copy"
                )
        if not self._files:
            self._begin(0, sync_folder)
        else:
            with storage_errors("open the log", self.folder):
                self._descriptor = os.open(self._files[-1].path, os.O_RDWR | os.O_APPEND)

    @property
    def first(self) -> int:
        """Number of the oldest record that is still there."""
        return self._files[0].first

    @property
    def next(self) -> int:
        """Number of the next record."""
        return self._files[-1].next

    @property
    def num_bytes(self) -> int:
        """Bytes on disk."""
        return sum(one.size for one in self._files)

    def append(self, payloads: Sequence[bytes], *, wait: bool = True) -> int:
        """Add records, all of them or none; returns the number of the first.

        Args:
            wait: Begin a new file where it is time, which waits for the disk; else `begin_file` is
                called for that.

        Raises:
            StorageError: The disk refused; the log is as it was before.
        """
        if wait and self._files[-1].size > self._file_bytes:
            self.sync()
            self._begin(self.next, sync_folder)
        last = self._files[-1]
        content, offsets, size = bytearray(), array("Q"), last.size
        for payload in payloads:
            if not 0 < len(payload) <= LONGEST:
                raise ValueError(f"a record has {len(payload)} bytes; expected 1 to {LONGEST}")
            offsets.append(size)
            content += _HEAD.pack(len(payload), zlib.crc32(payload)) + payload
            size = last.size + len(content)
        with storage_errors("append to the log", last.path):
            try:
                view = memoryview(content)
                while view:
                    view = view[os.write(self._descriptor, view) :]
            except OSError:
                os.ftruncate(self._descriptor, last.size)
                raise
        first = last.next
        last.offsets.extend(offsets)
        last.size = size
        return first

    def begin_file(self) -> bool:
        """Begin a new file if it is time, without waiting for the disk; returns whether it did.

        All records must be on the disk: a power cut may tear the newest file only. The name of the
        new one is there after `sync_folder`.

        Raises:
            StorageError: The disk refused; the log is as it was before.
        """
        long = self._files[-1].size > self._file_bytes
        if long:
            self._begin(self.next)
        return long

    def take_back(self, number: int) -> None:
        """Remove the newest records, from a number on; they lie in the newest file.

        Raises:
            StorageError: The disk refused; the log is as it was before.
        """
        last = self._files[-1]
        if number >= last.next:
            return
        if number < last.first:
            raise ValueError(f"record {number} is older than the newest file of {self.folder}")
        size = last.offsets[number - last.first]
        with storage_errors("take records back from the log", last.path):
            os.ftruncate(self._descriptor, size)
        del last.offsets[number - last.first :]
        last.size = size

    def sync(self) -> None:
        """Wait until all records are on the disk.

        Raises:
            StorageError: The disk refused.
        """
        with storage_errors("write the log", self.folder):
            os.fsync(self._descriptor)

    def duplicate(self) -> int:
        """Another descriptor of the newest file, for who syncs in another thread and closes it."""
        return os.dup(self._descriptor)

    def read(self, start: int, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Records from one number to another, with their numbers.

        Raises:
            StorageError: One is damaged.
        """
        number, stop = max(start, self.first), min(self.next, self.next if stop is None else stop)
        while number < stop:
            one = self._files[bisect_right(self._files, number, key=lambda f: f.first) - 1]
            with storage_errors("read the log", one.path), one.path.open("rb") as file:
                for place in range(number - one.first, min(one.next, stop) - one.first):
                    file.seek(one.offsets[place])
                    payload = _read_record(file)
                    if payload is None:
                        raise StorageError(f"record {number} in {one.path} is damaged")
                    yield number, payload
                    number += 1

    def drop_before(self, number: int) -> None:
        """Delete files all of whose records are older than a number."""
        while len(self._files) > 1 and self._files[0].next <= number:
            self._files[0].path.unlink(missing_ok=True)
            del self._files[0]

    def close(self) -> None:
        """Sync and close; allowed more than once."""
        if self._descriptor >= 0:
            self.sync()
            os.close(self._descriptor)
            self._descriptor = -1

    def _begin(self, first: int, sync: Callable[[Path], None] = lambda folder: None) -> None:
        """Begin a new file; `sync` brings its name to the disk."""
        one = _File(self.folder / f"{first:020d}.log", first)
        with storage_errors("begin a file of the log", one.path):
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
            begun = os.open(one.path, flags, 0o644)
            try:
                os.write(begun, _MAGIC)
                sync(self.folder)
            except OSError:
                os.close(begun)
                raise
            before, self._descriptor = self._descriptor, begun
            if before >= 0:
                os.close(before)
        self._files.append(one)

    def _scan(self, path: Path, *, last: bool) -> _File:
        """Find the records of a file; cut off what follows the last whole one."""
        one, end = _File(path, int(path.stem)), path.stat().st_size
        with path.open("rb") as file:
            whole = file.read(len(_MAGIC)) == _MAGIC
            while whole and (payload := _read_record(file)) is not None:
                one.offsets.append(one.size)
                one.size += _HEAD.size + len(payload)
        if whole and one.size == end:
            return one
        if not last:
            raise StorageError(
                f"{path} is damaged behind record {one.next - 1}, and newer records follow; put "
                "back a copy of the file"
            )
        if not whole and any(begun := path.read_bytes()) and not _MAGIC.startswith(begun):
            raise StorageError(
                f"{path} does not begin as a log does: it is damaged, or of another version of "
                "robot_rl; put back a copy of the file, or move it away"
            )
        self._cut(one, whole)
        return one

    def _cut(self, one: _File, whole: bool) -> None:
        """Take what follows the last whole record away; `whole` tells that the file was begun."""
        if not whole:  # killed before its first bytes were written
            one.path.write_bytes(_MAGIC)
            return
        rest, kept = one.path.read_bytes()[one.size :], one.path.with_suffix(".log.cut")
        with kept.open("ab") as file:
            file.write(rest)
        _logger.warning(
            "%s ended in the middle of record %d: its %d bytes are kept in %s",
            one.path, one.next, len(rest), kept.name,
        )  # fmt: skip
        os.truncate(one.path, one.size)


def _read_record(file: object) -> bytes | None:
    """The next record of an open file; None where there is no whole one."""
    read = file.read  # type: ignore[attr-defined]
    head = read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    length, checksum = _HEAD.unpack(head)
    if not 0 < length <= LONGEST:
        return None
    payload = read(length)
    return payload if len(payload) == length and zlib.crc32(payload) == checksum else None
