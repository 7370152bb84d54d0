"""HDF5 files as arrays by path; wraps h5py.

What is written carries checksums, of arrays (Fletcher-32) and of everything about them (version 2
headers), which HDF5 compares when it reads; files of others mostly have none.
"""

import io
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.files.manifest import read_errors
from robot_rl.training.storage.durable import discard, storage_errors


class Hdf5File:
    """A file that is read; use it in a `with`. Damage is a DatasetError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._errors("the file"):
            self._file = h5py.File(path, "r")

    def groups(self, path: str = "/") -> list[str]:
        """Names of the groups within a group; empty if there is none."""
        with self._errors(path):
            group = self._file.get(path)
            if not isinstance(group, h5py.Group):
                return []
            return [_text(name) for name, one in group.items() if isinstance(one, h5py.Group)]

    def has(self, path: str) -> bool:
        """True if something of that name is there."""
        with self._errors(path):
            return path in self._file

    def arrays(self, path: str) -> dict[str, NDArray[Any]]:
        """All arrays within a group, in groups within it too, by their path from it."""
        found: dict[str, NDArray[Any]] = {}

        def visit(name: str, value: Any) -> None:
            if isinstance(value, h5py.Dataset):
                found[_text(name)] = self.array(f"{path}/{name}")

        with self._errors(path):
            group = self._file.get(path)
            if isinstance(group, h5py.Dataset):
                return {"": self.array(path)}
            if isinstance(group, h5py.Group):
                group.visititems(visit)
        return found

    def array(self, path: str, where: str = "") -> NDArray[Any]:
        """One array."""
        with self._errors(path):
            value = self._file.get(path)
            if not isinstance(value, h5py.Dataset):
                parent = path.rpartition("/")[0] or "/"
                group = self._file.get(parent)
                known = sorted(group) if isinstance(group, h5py.Group) else []
                raise DatasetError(
                    f"{where or self.path} has no '{path.rpartition('/')[2]}'; it has "
                    f"{', '.join(known) or 'nothing'}"
                )
            return np.asarray(value[()])

    def attributes(self, path: str = "/") -> dict[str, Any]:
        """Attributes of a group or an array; text as strings."""
        with self._errors(path):
            attributes = self._file[path].attrs.items()
            return {k: v.decode() if isinstance(v, bytes) else v for k, v in attributes}

    def __enter__(self) -> "Hdf5File":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _errors(self, what: str) -> AbstractContextManager[None]:
        damage = (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError)
        return read_errors(self.path, f"HDF5 ({what})", *damage)


class Hdf5Writer:
    """A file that is being made; it has its name once it is whole. Use it in a `with`."""

    def __init__(self, path: Path, *, checksums: bool = True) -> None:
        """Begin a file; without checksums as others mostly do.

        Raises:
            DatasetError: Something is there already.
            StorageError: The folder cannot be written.
        """
        if path.exists():
            raise DatasetError(f"{path} exists already; choose another name")
        self.path = path
        self._unfinished = path.with_name(f".new_{path.name}")
        with storage_errors("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._disk = _Disk(self._unfinished)
        layout = {"libver": "latest", "track_order": True} if checksums else {}
        self._file = h5py.File(self._disk, "w", **layout)
        self._checksums = checksums

    def write(self, path: str, value: NDArray[Any]) -> None:
        """Add an array."""
        some = value.size > 0 and self._checksums
        self._file.create_dataset(path, data=value, chunks=some or None, fletcher32=some)
        self._check()

    def write_all(self, path: str, values: Mapping[str, NDArray[Any] | None]) -> None:
        """Add arrays to a group; None is left out."""
        for name, value in values.items():
            if value is not None:
                self.write(f"{path}/{name}", value)

    def note(self, path: str, values: Mapping[str, Any]) -> None:
        """Note numbers and strings at a group, which is made if it is missing.

        Strings of fixed length lie in the header, which has a checksum; others in a heap without.
        """
        noted = self._file.require_group(path).attrs
        for name, value in values.items():
            text = isinstance(value, str) and value
            noted[name] = np.bytes_(value.encode()) if text else value
        self._check()

    def __enter__(self) -> "Hdf5Writer":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self._file.close()
            self._disk.close()
            if kind is None:
                self._check()
                with storage_errors("write", self.path):
                    os.replace(self._unfinished, self.path)
        finally:
            discard(self._unfinished)

    def _check(self) -> None:
        if self._disk.refusal is not None:
            with storage_errors("write", self.path):
                raise self._disk.refusal


class _Disk(io.RawIOBase):
    """A file whose writes always seem to succeed: HDF5 cannot be closed after one that failed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b", buffering=0)
        self.refusal: OSError | None = None
        """First error of the disk; nothing was written since."""

    def write(self, content: Any) -> int:
        start, done = self._file.tell(), 0
        try:
            while self.refusal is None and done < len(content):
                done += self._file.write(content[done:])
        except OSError as error:
            self.refusal = error
        self._file.seek(start + len(content))
        return len(content)

    def readinto(self, content: Any) -> int:
        found = self._file.readinto(content)
        content[found:] = bytes(len(content) - found)
        return len(content)

    def seek(self, place: int, whence: int = 0) -> int:
        return self._file.seek(place, whence)

    def tell(self) -> int:
        return self._file.tell()

    def truncate(self, size: int | None = None) -> int:
        try:
            return self._file.truncate(size)
        except OSError as error:
            self.refusal = self.refusal or error
            return self._file.tell() if size is None else size

    def flush(self) -> None:
        if self.refusal is None:
            try:
                os.fsync(self._file.fileno())
            except OSError as error:
                self.refusal = error

    def close(self) -> None:
        super().close()  # flushes
        self._file.close()


def _text(name: str | bytes) -> str:
    if isinstance(name, bytes):  # what h5py makes of names that are no text
        raise ValueError(f"the name {name!r} is no text")
    return name
