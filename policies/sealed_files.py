"""Files of a bundle as bytes and arrays: sizes are looked at before anything is read."""

import io
import math
import os
import stat
import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from robot_rl.core.errors import BundleError

LARGEST = {
    "spec.json": 4 << 20,
    "policy.onnx": 128 << 20,
    "golden.npz": 64 << 20,
    "provenance.json": 4 << 20,
}
"""Size that a file of a bundle may have; of `golden.npz` also when it is unpacked [bytes]."""
_LONGEST_HEADER = 10_000
"""Of an array in a .npz [bytes]."""


def read_file(folder: Path, name: str) -> bytes:
    """Content of a regular file of a bundle.

    Raises:
        BundleError: It is missing, unreadable, larger than `LARGEST`, or a pipe or a device.
    """
    try:
        # A pipe would make a plain open wait for its other end.
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise BundleError(f"bundle {folder}: {name} is not a regular file; export it anew")
            raw = file.read(LARGEST[name] + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BundleError(
            f"bundle {folder} lacks a readable {name} ({reason}); copy the whole folder "
            "again or export it anew"
        ) from error
    if len(raw) > LARGEST[name]:
        raise BundleError(
            f"bundle {folder}: {name} has {max(status.st_size, len(raw))} bytes, expected at most "
            f"{LARGEST[name]}; export it anew"
        )
    return raw


def read_arrays(folder: Path, raw: bytes) -> dict[str, np.ndarray]:
    """Arrays of `golden.npz` by name; none is larger than what lies in the file.

    Raises:
        BundleError: It is no such file, or an array holds objects or says another size than it has.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if size > LARGEST["golden.npz"]:
                raise ValueError(f"it unpacks to {size} bytes")
            if any(one.compress_type not in (0, zipfile.ZIP_DEFLATED) for one in members):
                raise ValueError("it is packed in another way than deflate")
            return {one.filename.removesuffix(".npy"): _array(archive.read(one)) for one in members}
    except Exception as error:  # zipfile's, zlib's and numpy's own kinds have no common parent
        raise BundleError(
            f"bundle {folder}: golden.npz cannot be read: {str(error)[:200]}; expected plain "
            f"arrays of up to {LARGEST['golden.npz']} bytes, as export writes them"
        ) from error


def _array(raw: bytes) -> np.ndarray:
    stream = io.BytesIO(raw)
    version = npy.read_magic(stream)
    if version != (1, 0):
        raise ValueError(f"an array has format {version}, expected (1, 0)")
    shape, fortran, dtype = npy.read_array_header_1_0(stream, max_header_size=_LONGEST_HEADER)
    if dtype.hasobject or dtype.kind not in "fbiu" or len(shape) > 3:
        raise ValueError(f"an array has type {dtype} and {len(shape)} axes, expected numbers")
    if math.prod(shape) * dtype.itemsize != len(raw) - stream.tell():
        raise ValueError(f"an array says shape {shape}, and has {len(raw)} bytes")
    values = np.frombuffer(raw, dtype, offset=stream.tell())
    return values.reshape(shape, order="F" if fortran else "C")
