"""Files that exist whole or not at all, and write failures that read as one sentence.

A process may be killed and a machine may lose power at any line. So new content goes to a
temporary name, is fsynced, takes its real name by a rename (atomic within one file system), and the
folder is fsynced so that the name itself survives.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import IO, Any

from robot_rl.core.errors import NoSpaceError, StorageError

_REASONS = {
    errno.ENOSPC: "no space is left on the disk; free some and try again",
    errno.EDQUOT: "the disk quota is used up; free some space and try again",
    errno.EFBIG: "the file would be larger than the limit for this process (ulimit -f)",
    errno.EACCES: "this user has no right to write there; choose another folder",
    errno.EPERM: "this user has no right to write there; choose another folder",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.ENOTDIR: "a part of the path is a file and not a folder; choose another folder",
    errno.EEXIST: "something of that name is in the way; choose another folder",
}


@contextmanager
def storage_errors(action: str, path: Path) -> Iterator[None]:
    """Turn an `OSError` of the body into a `StorageError` of one sentence.

    Args:
        action: What was tried, as it follows "cannot", such as "save the checkpoint".

    Raises:
        StorageError: The body raised an `OSError`; a `NoSpaceError` where the disk is full.
    """
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        kind = NoSpaceError if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageError
        raise kind(f"cannot {action} {path}: {reason}") from error


def sha256(content: bytes) -> str:
    """Digest as 64 hexadecimal digits (about 1.9 GB/s on CPUs with SHA instructions)."""
    return hashlib.sha256(content).hexdigest()


def canonical_json(value: Any) -> bytes:
    """JSON that is the same for equal values: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


_PIECE = 1 << 20
"""Written by one call [B]. A robot's loop that ran beside a program was late by up to 77 ms while
it wrote 256 MB with one call, whatever the loop's priority (docs/benchmarks/endurance.md)."""


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file and wait until its content is on the disk (its name may not be yet)."""
    left = memoryview(content)
    with path.open("wb") as file:
        for start in range(0, len(left), _PIECE):
            file.write(left[start : start + _PIECE])
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in `folder` are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder and those above it that are missing; their names are on the disk then."""
    missing = list(takewhile(lambda one: not one.is_dir(), (path, *path.parents)))
    path.mkdir(parents=True, exist_ok=True)
    for one in missing:
        with contextlib.suppress(PermissionError):  # it may be written, and not read
            sync_folder(one.parent)


def replace_file(path: Path, content: bytes) -> None:
    """Give `path` new content in one atomic step; readers see the old file or the new one."""
    temporary = path.with_name(f".tmp_{path.name}")
    try:
        write_synced(temporary, content)
        os.replace(temporary, path)
    except OSError:
        discard(temporary)
        raise
    sync_folder(path.parent)


def replace_json(path: Path, value: Any) -> None:
    """Give `path` plain data as JSON in one atomic step."""
    replace_file(path, json.dumps(value, indent=2).encode())


def discard(path: Path) -> None:
    """Remove a file or a folder if it is there; what cannot be removed stays, silently."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        path.unlink(missing_ok=True)
    except OSError:
        # A leftover costs space only, and is tried again when the store is opened next.
        return


_NAME = ".lock"
_WAIT_SECONDS = 0.3  # a reader that asks `is_locked` holds the lock for microseconds


def take_lock(folder: Path) -> IO[str] | None:
    """Lock `folder` for this process until the returned file is closed; None if another has it.

    Raises:
        OSError: The lock file cannot be made.
    """
    lock = (folder / _NAME).open("a", encoding="utf-8")
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                lock.close()
                return None
            time.sleep(0.02)
        else:
            return lock


def is_locked(folder: Path) -> bool:
    """True while a process holds the lock of `folder`."""
    return _is_held(folder / _NAME, fcntl.LOCK_SH)


def _is_held(path: Path, kind: int) -> bool:
    """True while a process holds a lock of the file that one of this kind does not go with."""
    mode = "r" if kind == fcntl.LOCK_SH else "r+"  # on NFS an exclusive lock is a writer's
    try:
        file = path.open(mode, encoding="utf-8")
    except OSError:
        return False
    with file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


_USERS = ".users"


def mark_used(folder: Path) -> IO[str]:
    """Mark `folder` as in use until the returned file is closed; any number of processes may.

    Raises:
        OSError: The file of the mark cannot be made.
    """
    mark = (folder / _USERS).open("a", encoding="utf-8")
    fcntl.flock(mark, fcntl.LOCK_SH)  # waits for an `is_used` only
    return mark


def is_used(folder: Path) -> bool:
    """True while a process marks `folder` as in use."""
    return _is_held(folder / _USERS, fcntl.LOCK_EX)
