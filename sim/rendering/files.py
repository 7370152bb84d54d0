"""Files that are complete or not there; arrays in files."""

import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def save_arrays(path: Path, arrays: Mapping[str, Any], *, compressed: bool = True) -> None:
    """Write a `.npz`, replacing an older one only when the new one is complete.

    Raises:
        StorageError: The file cannot be written.
    """
    with replacing(path) as unfinished, unfinished.open("wb") as file:
        (np.savez_compressed if compressed else np.savez)(file, **arrays)


def load_arrays(path: Path, *, what: str, needed: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Read what `save_arrays` wrote; `what` names it in errors, such as "flight recording".

    Raises:
        StorageError: The file is missing, damaged or something else.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = dict(stored)
        missing = [name for name in needed if name not in arrays]
        if missing:
            raise KeyError(f"it has no {', '.join(missing)}")
    except (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise StorageError(f"{path} is not a readable {what}: {error}") from error
    return arrays
