"""Versions of the acting policy's weights on disk, whole or not at all, checked by their SHA-256.

    <folder>/weights-000000000012-<sha256>.safetensors

A version is written under another name, synced and renamed, and is never changed. Versions only
grow, also over restarts of the learner and rollbacks. Learner and robot keep the same files: a
robot that starts while the learner is away acts with the newest that it has.
"""

import re
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from robot_rl.core.errors import CheckpointError
from robot_rl.training.storage.durable import (
    discard,
    make_folder,
    replace_file,
    sha256,
    storage_errors,
)

Arrays = Mapping[str, NDArray[Any]]
_NAME = re.compile(r"weights-(\d{12})-([0-9a-f]{64})\.safetensors")
_KEPT = 3


@dataclass(frozen=True, kw_only=True)
class Weights:
    """One version of the weights."""

    version: int
    """Number; larger ones are newer."""
    arrays: Arrays
    """By name."""


class WeightStore:
    """The newest versions in a folder. Any number may read, one process may write. Thread-safe."""

    def __init__(self, folder: Path | str) -> None:
        """Point to a folder, made at the first write."""
        self.folder = Path(folder)
        self._one_writer = threading.Lock()

    @property
    def newest(self) -> int:
        """Newest version; 0 before the first."""
        return max((version for version, _, _ in self._found()), default=0)

    def publish(self, arrays: Arrays) -> int:
        """Write the next version and return its number.

        Raises:
            StorageError: The disk refused.
        """
        content = save({name: np.ascontiguousarray(one) for name, one in arrays.items()})
        with self._one_writer:
            version = self.newest + 1
            self.put(version, content)
        return version

    def overtake(self, version: int) -> None:
        """Give the newest weights a number above `version`, if that is newer.

        A robot may have it from before the folder was lost, and takes newer ones only.

        Raises:
            CheckpointError: The newest weights are damaged.
            StorageError: The disk refused.
        """
        with self._one_writer:
            newest = self.newest
            if 0 < newest < version:
                self.put(version + 1, self.content(newest)[0])

    def put(self, version: int, content: bytes) -> None:
        """Write a version, and delete all but the newest few.

        Raises:
            StorageError: The disk refused.
        """
        path = self.folder / f"weights-{version:012d}-{sha256(content)}.safetensors"
        with storage_errors("write the weights", path):
            make_folder(self.folder)
            replace_file(path, content)
        for _, _, old in sorted(self._found())[:-_KEPT]:
            discard(old)

    def content(self, version: int) -> tuple[bytes, str]:
        """Bytes of a version and their SHA-256.

        Raises:
            CheckpointError: It is not there, or damaged.
        """
        for found, digest, path in self._found():
            if found == version:
                try:
                    content = path.read_bytes()
                except OSError as error:
                    raise CheckpointError(f"cannot read {path}: {error}") from None
                if sha256(content) != digest:
                    raise CheckpointError(f"the weights {path} are damaged")
                return content, digest
        raise CheckpointError(f"{self.folder} has no weights of version {version}")

    def load(self, version: int) -> Weights:
        """A version, checked.

        Raises:
            CheckpointError: It is not there, or damaged.
        """
        content, _ = self.content(version)
        return decode_weights(version, content)

    def load_newest(self) -> Weights | None:
        """The newest version that is whole; None where there is none."""
        for version in sorted((found for found, _, _ in self._found()), reverse=True):
            try:
                return self.load(version)
            except CheckpointError:
                continue  # a disk's damage: the one before it serves
        return None

    def _found(self) -> list[tuple[int, str, Path]]:
        if not self.folder.is_dir():
            return []
        names = ((_NAME.fullmatch(path.name), path) for path in self.folder.iterdir())
        return [(int(match[1]), match[2], path) for match, path in names if match]


def decode_weights(version: int, content: bytes) -> Weights:
    """Weights out of their bytes.

    Raises:
        CheckpointError: They are damaged.
    """
    try:
        return Weights(version=version, arrays=load(content))
    except (SafetensorError, struct.error, ValueError) as error:
        raise CheckpointError(f"weights of version {version} are damaged: {error}") from None
