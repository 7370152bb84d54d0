"""Files that are complete or not there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from robot_rl.core.errors import StorageError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write a file beside `path` that takes its place when the block ends well, else vanishes.

    Raises:
        StorageError: The folder cannot be made or the file not be written.
    """
    unfinished = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield unfinished
        os.replace(unfinished, path)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            unfinished.unlink()
