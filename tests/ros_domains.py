"""ROS domains that one test process has for itself, whatever else is tested on this machine."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DOMAINS = range(40, 102)
"""Above those that people take, below those whose ports Linux hands out."""


@contextmanager
def own_domain() -> Iterator[int]:
    """A domain that no other test process has, of this checkout or another one.

    Raises:
        RuntimeError: All are taken.
    """
    for number in _DOMAINS:
        path = Path(tempfile.gettempdir()) / f"robot_rl_tests_ros_domain_{number}.lock"
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            continue
        try:
            yield number
        finally:
            os.close(file)
        return
    raise RuntimeError(f"every ROS domain from {_DOMAINS[0]} to {_DOMAINS[-1]} is taken by a test")
