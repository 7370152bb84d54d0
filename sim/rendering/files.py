"""Files that are complete or not there; arrays in files."""

import os
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, ClassVar, Self

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


def load_arrays(path: Path, *, what: str, needed: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Arrays of a `.npz`; `what` names it in errors, such as "flight recording".

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


class StoredArrays:
    """A dataclass of arrays, numbers, words and dicts of arrays that an `.npz` holds."""

    stored_as: ClassVar[str]
    """Its kind, for errors."""

    def save(self, path: Path, *, compressed: bool = True) -> None:
        """Write a `.npz`, replacing an older one only when the new one is complete.

        Raises:
            StorageError: The file cannot be written.
        """
        arrays: dict[str, Any] = {}
        for name, value in vars(self).items():
            parts = value if isinstance(value, dict) else None
            arrays |= {name: value} if parts is None else {f"{name}/{k}": parts[k] for k in parts}
        with replacing(path) as unfinished, unfinished.open("wb") as file:
            (np.savez_compressed if compressed else np.savez)(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            StorageError: The file is missing, damaged or something else.
        """
        declared: Any = cls  # a dataclass
        needed = [f.name for f in fields(declared) if f.default_factory is MISSING]
        values: dict[str, Any] = {}
        for name, array in load_arrays(path, what=cls.stored_as, needed=needed).items():
            field, _, key = name.partition("/")
            if key:
                values.setdefault(field, {})[key] = array
            else:
                values[field] = array if array.ndim and array.dtype.kind != "U" else array.tolist()
        return cls(**values)
