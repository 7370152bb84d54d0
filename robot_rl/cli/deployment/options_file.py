"""File beside a robot's channels with the options of its deployment, for consoles.

The robot process has it open and locked, so that it counts as dead when the process is. It belongs
to the user who deploys, and nobody else's is read.
"""

import fcntl
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from robot_rl.core.errors import ConfigError

_PRIVATE = 0o600


@contextmanager
def left_beside(path: Path, options: Mapping[str, Any]) -> Iterator[None]:
    """Context in which options lie in a file, whole from the first moment.

    Raises:
        ConfigError: The file cannot be written.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        unfinished.unlink(missing_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        file = os.open(unfinished, flags, _PRIVATE)
        fcntl.flock(file, fcntl.LOCK_EX)
        os.write(file, json.dumps(dict(options)).encode())
        unfinished.replace(path)
    except OSError as error:
        raise ConfigError(f"the deployment's options cannot be left in {path}: {error}") from error
    try:
        yield
    finally:
        with suppress(OSError):
            if os.path.samestat(path.lstat(), os.fstat(file)):
                path.unlink()
        os.close(file)


def read_beside(path: Path) -> dict[str, Any]:
    """Options that a robot process left.

    Raises:
        ConfigError: The file is another user's, no file, or damaged.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise ConfigError(f"{path}, the options of a deployment, cannot be read: {error}") from None
    with os.fdopen(file, "rb") as content:
        about = os.fstat(file)
        if about.st_uid != os.geteuid() or not stat.S_ISREG(about.st_mode):
            raise ConfigError(
                f"{path} was left by user {about.st_uid}; expected one's own, {os.geteuid()}: "
                "open the console as the user who deploys"
            )
        try:
            found = json.loads(content.read())
        except ValueError as error:
            raise ConfigError(f"{path}, the options of a deployment, is damaged: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} has {type(found).__name__}; expected options of a deployment")
    return found
