"""One writer per run: a file lock that the kernel releases however the process ends."""

import fcntl
import time
from pathlib import Path
from typing import IO

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
    try:
        lock = (folder / _NAME).open(encoding="utf-8")
    except OSError:
        return False
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
