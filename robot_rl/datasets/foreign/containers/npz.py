"""Arrays of many rows in one .npz file, read and written part by part: no array is held whole.

A .npz file is a zip archive with a file `<name>.npy` per array. The archive keeps a CRC-32 of each,
which is compared when its last row is read.
"""

import math
import shutil
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from robot_rl.core.errors import DatasetError
from robot_rl.training.storage.durable import discard, storage_errors

Array = NDArray[Any]
_PART = 4 << 20
"""Bytes of all arrays that are read at once."""
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_DAMAGE = (
    OSError, ValueError, EOFError, LookupError, RuntimeError, MemoryError, OverflowError, TypeError,
    SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error,
)  # fmt: skip
"""What numpy and zipfile raise at damaged files; NotImplementedError is a RuntimeError."""


@dataclass(frozen=True)
class Stored:
    """What a file says about one of its arrays."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    """Whether columns lie behind one another instead of rows."""


class NpzFile:
    """A file that is read; use it in a `with`."""

    def __init__(self, path: Path) -> None:
        """Read which arrays there are.

        Raises:
            DatasetError: It is missing, damaged, or holds Python objects.
        """
        self.path = path
        with self._sentence():
            with path.open("rb") as file:
                if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                    raise DatasetError(
                        f"{path} holds a single array; expected a .npz file of several"
                    )
            self._zip = zipfile.ZipFile(path)
            self.arrays: dict[str, Stored] = {}
            """What is in it, by name."""
            for entry in self._zip.namelist():
                name, ending, rest = entry.partition(".npy")
                if not ending or rest:
                    raise ValueError(f"it holds '{entry}', which is no array")
                with self._zip.open(entry) as member:
                    self.arrays[name] = _header(member)

    def whole(self, name: str) -> Array:
        """One array; for small ones.

        Raises:
            DatasetError: It is damaged.
        """
        about = self.arrays[name]
        with self._sentence(), self._member(name) as member:
            flat = self._taken(member, name, math.prod(about.shape))
            self._check_end(member, name)
            return flat.reshape(about.shape, order="F" if about.fortran else "C")

    def parts(self, names: Sequence[str]) -> Iterator[dict[str, Array]]:
        """Rows of arrays of equal length, side by side, some at a time.

        Raises:
            DatasetError: One is damaged.
        """
        rows = self.arrays[names[0]].shape[0]
        told = {name: self.arrays[name] for name in names}
        held = {n: self.whole(n) for n, one in told.items() if one.fortran and len(one.shape) > 1}
        widths = {name: math.prod(one.shape[1:]) for name, one in told.items()}
        each = sum(widths[name] * one.dtype.itemsize for name, one in told.items())
        step = max(1, _PART // max(1, each))
        with ExitStack() as stack:
            with self._sentence():
                members = {n: stack.enter_context(self._member(n)) for n in names if n not in held}
            for start in range(0, rows, step):
                count = min(step, rows - start)
                part = {name: value[start : start + count] for name, value in held.items()}
                with self._sentence():
                    for name, member in members.items():
                        flat = self._taken(member, name, count * widths[name])
                        part[name] = flat.reshape(count, *told[name].shape[1:])
                        if start + count == rows:
                            self._check_end(member, name)
                yield part

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    def __enter__(self) -> "NpzFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _member(self, name: str) -> Iterator[IO[bytes]]:
        """An array in the file, from its first number on."""
        with self._zip.open(f"{name}.npy") as member:
            _header(member)
            yield member

    def _taken(self, member: IO[bytes], name: str, count: int) -> Array:
        """The next numbers of an array."""
        dtype = self.arrays[name].dtype
        content = member.read(count * dtype.itemsize)
        if len(content) < count * dtype.itemsize:
            raise EOFError(f"'{name}' ends too early")
        return np.frombuffer(content, dtype, count).copy() if count else np.zeros(0, dtype)

    def _check_end(self, member: IO[bytes], name: str) -> None:
        if member.read(1):  # also compares the CRC
            raise ValueError(f"'{name}' has more numbers than rows of its width")

    @contextmanager
    def _sentence(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise DatasetError(f"the file {self.path} is missing") from None
        except _DAMAGE as error:
            if isinstance(error, DatasetError):
                raise
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise DatasetError(f"the file {self.path} cannot be read as .npz: {reason}") from None


class NpzWriter:
    """A file that is being made; it has its name once it is whole. Use it in a `with`.

    How many rows there are is known at the end: until then each array waits in a file of its own.
    """

    def __init__(self, path: Path) -> None:
        """Begin a file.

        Raises:
            StorageError: The folder cannot be written.
        """
        self.path = path
        self._waiting = path.with_name(f".rows_{path.name}")
        self._unfinished = path.with_name(f".new_{path.name}")
        self._files: dict[str, IO[bytes]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._dtypes: dict[str, np.dtype[Any]] = {}
        with storage_errors("write", path):
            discard(self._waiting)  # of a process that was killed
            self._waiting.mkdir(parents=True)

    def add(self, rows: Mapping[str, Array]) -> None:
        """Put rows behind those that came before, array by array."""
        with storage_errors("write", self.path):
            for name, value in rows.items():
                if name not in self._files:
                    place = self._waiting / str(len(self._files))
                    self._files[name] = place.open("w+b")
                    self._dtypes[name] = value.dtype
                count = self._shapes.get(name, (0,))[0]
                self._shapes[name] = (count + len(value), *value.shape[1:])
                self._files[name].write(np.ascontiguousarray(value).data)

    def finish(self, notes: Mapping[str, Array]) -> None:
        """Write the file, with further small arrays."""
        with (
            storage_errors("write", self.path),
            zipfile.ZipFile(self._unfinished, "w", allowZip64=True) as archive,
        ):
            for name, rows in self._files.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    descr = npy.dtype_to_descr(self._dtypes[name])
                    about = {"descr": descr, "fortran_order": False, "shape": self._shapes[name]}
                    npy.write_array_header_1_0(member, about)
                    rows.seek(0)
                    shutil.copyfileobj(rows, member, 1 << 20)
                rows.truncate(0)  # the disk need not hold it twice for longer
            for name, value in notes.items():
                with archive.open(f"{name}.npy", "w") as member:
                    npy.write_array(member, value, allow_pickle=False)
        with storage_errors("write", self.path):
            self._unfinished.replace(self.path)

    def __enter__(self) -> "NpzWriter":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            with suppress(OSError):  # of what is thrown away now: the disk has refused before
                file.close()
        discard(self._waiting)
        discard(self._unfinished)


def _header(member: IO[bytes]) -> Stored:
    version = npy.read_magic(member)
    if version not in _HEADERS:
        raise ValueError(f"an array has the header version {version}; expected 1.0 or 2.0")
    shape, fortran, dtype = _HEADERS[version](member)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which would be executed; save plain arrays")
    if min(shape, default=0) < 0:
        raise ValueError(f"an array has the shape {shape}")
    return Stored(shape, dtype, fortran)
