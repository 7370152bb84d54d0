"""Is everything there that the manifest names, and is it what was written?"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.files.manifest import FileEntry, Manifest, read_manifest

_PATIENCE = 100
"""How often a writer may be faster than a reader."""


def read_settled(folder: Path) -> Manifest:
    """The manifest, with the files that follow from others; read again where a writer was faster.

    Raises:
        DatasetError: There is no data set, or one of them is damaged.
    """
    manifest = read_manifest(folder)
    for _ in range(_PATIENCE):
        try:
            check_derived(folder, manifest)
        except DatasetError:
            again = read_manifest(folder)
            if again.digest == manifest.digest:
                raise
            manifest = again
        else:
            return manifest
    raise DatasetError(f"{folder} changed {_PATIENCE} times while it was read; wait for its writer")


def check_derived(folder: Path, manifest: Manifest) -> None:
    """Compare the files that follow from others with what was written last.

    A writer that is killed, or still writes, has replaced some of them and others not yet: each may
    be of the last line of the manifest or of the one before.

    Raises:
        DatasetError: One is missing or something else.
    """
    for path in manifest.derived[-1]:
        known = {one[path] for one in manifest.derived[-2:] if path in one}
        try:
            found = file_sha256(folder / path)
        except OSError as error:
            raise DatasetError(
                f"the file {folder / path} cannot be read: {error.strerror}; {_repair(folder)}"
            ) from None
        if found not in known:
            raise DatasetError(
                f"the file {folder / path} is not the one that the manifest names: one of both "
                f"was changed; {_repair(folder)}"
            )


def check_file(folder: Path, entry: FileEntry) -> None:
    """Compare a file with the manifest.

    Raises:
        DatasetError: It is missing, cut off or changed.
    """
    path = folder / entry.path
    try:
        size, digest = path.stat().st_size, file_sha256(path)
    except FileNotFoundError:
        raise DatasetError(f"the file {path} is missing; {_repair(folder)}") from None
    except OSError as error:
        raise DatasetError(f"the file {path} cannot be read: {error.strerror}") from None
    if size != entry.bytes:
        raise DatasetError(
            f"the file {path} has {size} bytes instead of {entry.bytes}; {_repair(folder)}"
        )
    if digest != entry.sha256:
        raise DatasetError(
            f"the file {path} is damaged: its SHA-256 is not the manifest's; {_repair(folder)}"
        )


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, of which little is in memory at a time."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def faults(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Sentences about every file that is not what the manifest says."""
    files = [file for one in manifest.additions for file in one.files]
    for file in files:
        try:
            check_file(folder, file)
        except DatasetError as error:
            yield str(error)
    try:
        check_derived(folder, manifest)
    except DatasetError as error:
        yield str(error)


def strays(folder: Path, manifest: Manifest) -> list[Path]:
    """Tables and videos that no line of the manifest names: a writer was killed before it."""
    named = {file.path for one in manifest.additions for file in one.files}
    kinds = ("data/*/*.parquet", "meta/episodes/*/*.parquet", "videos/*/*/*.mp4")
    found = [path for kind in kinds for path in folder.glob(kind)]
    return sorted(path for path in found if path.relative_to(folder).as_posix() not in named)


def _repair(folder: Path) -> str:
    return f"save what is whole with: python scripts/data.py repair {folder}"
