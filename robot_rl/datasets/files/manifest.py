"""`meta/manifest.jsonl`: what belongs to a data set, with the SHA-256 of every file.

One line per addition, `<digest> <JSON>`, where the digest covers the line and the digest of the
line before: no line can change, go or come unseen. An addition is in the data set once its line is
whole; what a killed process left behind it belongs to nobody. The first line holds the spec.
Readers, the writer and the repair compare the files on the disk with it.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.training.storage.durable import storage_errors

MANIFEST = Path("meta/manifest.jsonl")
FORMAT = 1
"""Of the manifest; a reader refuses later ones."""
_READ_ATTEMPTS = 100
"""Attempts of a reader while a writer is faster."""
_FIRST_DIGEST = hashlib.sha256(b"robot_rl episodes").hexdigest()


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """A file of the data set, written once."""

    path: str
    """From the data set's folder."""
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Addition:
    """Episodes that came together."""

    data: FileEntry
    """Their frames, one row group each."""
    episodes: FileEntry
    """Rows about each episode, as LeRobot keeps them."""
    lengths: list[int]
    """Steps T of each."""
    tasks: list[str]
    """Of each."""
    sources: list[str]
    """Of each; empty words in data sets that were written before there were sources."""
    digests: list[str]
    """`Episode.digest` of each."""
    derived: dict[str, str]
    """Path -> SHA-256 of the files that are written anew with every addition."""
    videos: dict[str, FileEntry] = field(default_factory=dict[str, FileEntry])
    """Camera -> its images in all of them."""

    @property
    def files(self) -> list[FileEntry]:
        """All that were written for it alone."""
        return [self.data, self.episodes, *self.videos.values()]


@dataclass
class Manifest:
    """Content of a manifest."""

    spec: DatasetSpec
    digest: str
    """Of the last line: of the whole data set."""
    additions: list[Addition] = field(default_factory=list)
    derived: list[dict[str, str]] = field(default_factory=list)
    """Of every line that names them, oldest first."""
    size: int = 0
    """Bytes of its whole lines."""
    torn: bool = False
    """True if a line follows that was not written to its end."""

    @property
    def num_steps(self) -> int:
        """Transitions of all episodes."""
        return sum(sum(one.lengths) for one in self.additions)

    @property
    def num_episodes(self) -> int:
        """Episodes of all additions."""
        return sum(len(one.lengths) for one in self.additions)

    @property
    def num_frames(self) -> int:
        """Frames of all episodes, the last of each included."""
        return self.num_steps + self.num_episodes

    @property
    def tasks(self) -> list[str]:
        """All tasks, in the order in which they came."""
        return list(dict.fromkeys(task for one in self.additions for task in one.tasks))

    @property
    def sources(self) -> list[str]:
        """Of every episode."""
        return [source for one in self.additions for source in one.sources]


def is_dataset(folder: Path) -> bool:
    """True where a folder says that it is a data set of episodes, ours or one of LeRobot."""
    return (folder / MANIFEST).exists() or (folder / "meta/info.json").exists()


def encode_line(entry: Mapping[str, Any], before: str = _FIRST_DIGEST) -> bytes:
    """A line that follows the line whose digest is `before`."""
    text = json.dumps(entry, separators=(",", ":"))
    return f"{_chained(before, text)} {text}\n".encode()


def first_line(spec: DatasetSpec, derived: Mapping[str, str]) -> bytes:
    """The line that a data set begins with."""
    return encode_line({"format": FORMAT, "spec": spec.to_dict(), "derived": dict(derived)})


def read_manifest(folder: Path) -> Manifest:
    """Read and check a manifest; the files that it names are not touched.

    Raises:
        DatasetError: There is none, it is damaged, or of a later version.
    """
    path = folder / MANIFEST
    content = _content(folder)
    *lines, rest = content.split(b"\n")
    if not lines:
        raise DatasetError(f"the manifest {path} is cut off in its first line; {_repair(folder)}")
    digest, entries = _FIRST_DIGEST, []
    for number, line in enumerate(lines, 1):
        digest, text = _checked(line, digest, f"{path}, line {number}", folder)
        entries.append(json.loads(text))
    version = int(entries[0].get("format", 0))
    if version != FORMAT:
        raise DatasetError(
            f"{path} has format {version}; this program reads format {FORMAT}: use the version "
            "of robot_rl that wrote it"
        )
    manifest = Manifest(
        spec=DatasetSpec.from_dict(entries[0]["spec"]),
        digest=digest,
        size=len(content) - len(rest),
        torn=bool(rest),
    )
    for entry in entries:
        manifest.derived.append(dict(entry["derived"]))
        if "data" in entry:
            manifest.additions.append(_addition(entry))
    return manifest


def append(folder: Path, manifest: Manifest, entry: Addition | Mapping[str, Any]) -> None:
    """Add a line; it is on the disk, and in `manifest`, when this returns.

    Raises:
        StorageError: The disk refused; the manifest is as before.
    """
    values = asdict(entry) if isinstance(entry, Addition) else dict(entry)
    line = encode_line(values, manifest.digest)
    path = folder / MANIFEST
    with storage_errors("add to the manifest", path), path.open("r+b") as file:
        try:
            file.truncate(manifest.size)  # of a line that was not written to its end
            file.seek(manifest.size)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.truncate(path, manifest.size)
            raise
    manifest.size += len(line)
    manifest.digest, manifest.torn = line[:64].decode(), False
    manifest.derived.append(dict(values["derived"]))
    if isinstance(entry, Addition):
        manifest.additions.append(entry)


def _content(folder: Path) -> bytes:
    path = folder / MANIFEST
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise DatasetError(
            f"{folder} {what}; expected the folder of a data set of episodes (data of others are "
            "imported with: robot-rl data convert)"
        )
    try:
        return path.read_bytes()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise DatasetError(f"the manifest {path} cannot be read: {error.strerror}") from None
    if not (folder / "meta").is_dir():
        raise DatasetError(
            f"{folder} is no data set of episodes: it has no {MANIFEST}; data of others is "
            "imported with: robot-rl data convert"
        )
    raise DatasetError(
        f"{folder} has no {MANIFEST}; a data set of LeRobot is imported with: "
        f"robot-rl data convert {folder} <folder>; if ours lost it, {_repair(folder)}"
    )


def _checked(line: bytes, before: str, where: str, folder: Path) -> tuple[str, str]:
    try:
        told, text = line.decode().split(" ", 1)
    except ValueError:  # UnicodeDecodeError is one, too
        told = text = ""
    if not told or told != _chained(before, text):
        raise DatasetError(f"the manifest {where}, is damaged; {_repair(folder)}")
    return told, text


def _chained(before: str, text: str) -> str:
    return hashlib.sha256(f"{before}{text}".encode()).hexdigest()


def _addition(entry: Mapping[str, Any]) -> Addition:
    files = {name: FileEntry(**entry[name]) for name in ("data", "episodes")}
    unsaid = {"sources": [""] * len(entry["lengths"])}
    videos = {name: FileEntry(**one) for name, one in entry.get("videos", {}).items()}
    return Addition(**{**unsaid, **entry, **files, "videos": videos})


def read_settled(folder: Path) -> Manifest:
    """The manifest, with the files that follow from others; read again where a writer was faster.

    Raises:
        DatasetError: There is no data set, or one of them is damaged.
    """
    manifest = read_manifest(folder)
    for _ in range(_READ_ATTEMPTS):
        try:
            check_derived(folder, manifest)
        except DatasetError:
            again = read_manifest(folder)
            if again.digest == manifest.digest:
                raise
            manifest = again
        else:
            return manifest
    raise DatasetError(
        f"{folder} changed {_READ_ATTEMPTS} times while it was read; wait for its writer"
    )


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


@contextmanager
def read_errors(path: Path, kind: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn the errors of a damaged file into a DatasetError of one sentence."""
    try:
        yield
    except DatasetError:
        raise
    except FileNotFoundError:
        raise DatasetError(f"the file {path} is missing") from None
    except errors as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DatasetError(f"the file {path} cannot be read as {kind}: {reason}") from None


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
    return f"save what is whole with: robot-rl data repair {folder}"
