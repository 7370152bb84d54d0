"""Makes a data set readable again, of whatever is whole: no episode is guessed at.

What a killed writer left is tidied up in place. Where files are missing or damaged, everything
whole goes into a new data set beside the old one, which stays as it is. Each episode is compared
with its own SHA-256, which the manifest and the file that holds it both keep.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.episode import Episode, from_columns
from robot_rl.datasets.files.manifest import Manifest, faults, file_sha256, read_manifest, strays
from robot_rl.datasets.files.parquet import ParquetTables
from robot_rl.datasets.reader import read_images
from robot_rl.datasets.spec import IMAGES, DatasetSpec
from robot_rl.datasets.writer import DatasetWriter, write_new
from robot_rl.training.storage.durable import is_locked, replace_file, storage_errors

COLLECTED = "collected_{}.json"
"""Notes beside the tables of `meta`: what a digest in the sources of episodes stands for."""


@dataclass(kw_only=True)
class Repaired:
    """Result of a repair."""

    folder: Path
    """Of the data set that is whole now."""
    episodes: int = 0
    """In it."""
    mended: list[str] = field(default_factory=list)
    """Faults found, in sentences; none if the data set was whole."""
    lost: list[str] = field(default_factory=list)
    """Losses, in sentences."""


@dataclass(frozen=True)
class _Told:
    """Known facts about the episodes of a file."""

    tasks: list[str]
    sources: list[str]
    digests: list[str]
    videos: dict[str, str]
    """Camera -> SHA-256 of its file."""


def repair(folder: Path) -> Repaired:
    """Make a data set whole: in place, or what is left of it in `<folder>_repaired`.

    Raises:
        DatasetError: Nothing whole was found, the new data set's place is taken, or a process is
            writing to the old one.
        StorageError: The disk refused.
    """
    if is_locked(folder / "meta"):
        raise DatasetError(f"another process is writing to {folder}; wait until it has ended")
    try:
        manifest = read_manifest(folder)
    except DatasetError as error:
        if not any(folder.glob("data/*/*.parquet")):
            raise
        return _rebuild(folder, None, [_sentence(error)])
    wrong = [sentence.partition("; save what")[0] for sentence in faults(folder, manifest)]
    derived = all(any(path in one for path in manifest.derived[-1]) for one in wrong)
    left = strays(folder, manifest)
    if wrong and not (derived and not left):
        return _rebuild(folder, manifest, wrong)
    if manifest.torn:
        wrong.append("the last line of the manifest was not written to its end")
    wrong += [f"{path} was written, but never counted" for path in left]
    with DatasetWriter.append_to(folder, mend=True):
        return Repaired(folder=folder, episodes=manifest.num_episodes, mended=wrong)


def _rebuild(folder: Path, manifest: Manifest | None, wrong: list[str]) -> Repaired:
    named = folder if folder.name.strip(".") else folder.resolve()
    done = Repaired(folder=named.with_name(f"{named.name}_repaired"), mended=wrong)
    known = {} if manifest is None else {
        one.data.path: _Told(
            one.tasks, one.sources, one.digests,
            {camera: file.sha256 for camera, file in one.videos.items()},
        )
        for one in manifest.additions
    }  # fmt: skip
    done.lost += [
        f"{folder / path} is missing: {len(told.digests)} episodes"
        for path, told in known.items()
        if not (folder / path).is_file()
    ]
    spec = manifest.spec if manifest is not None else _spec(folder)
    done.episodes = write_new(done.folder, spec, _some(folder, spec, known, done.lost))
    for note in sorted((folder / "meta").glob(COLLECTED.format("*"))):
        with storage_errors("keep a note", done.folder):
            replace_file(done.folder / "meta" / note.name, note.read_bytes())
    return done


def _some(
    folder: Path, spec: DatasetSpec, known: Mapping[str, _Told], lost: list[str]
) -> Iterator[Episode]:
    """Every whole episode, of which there must be one."""
    whole = _whole(folder, spec, known, lost)
    first = next(whole, None)
    if first is None:
        raise DatasetError(f"{folder} holds no whole episode: nothing can be saved")
    yield first
    yield from whole


def _whole(
    folder: Path, spec: DatasetSpec, known: Mapping[str, _Told], lost: list[str]
) -> Iterator[Episode]:
    """Every whole episode of every file; `lost` hears of the others."""
    for path in sorted(folder.glob("data/*/*.parquet")):
        told = known.get(path.relative_to(folder).as_posix())
        try:
            with ParquetTables(path) as tables:
                told = told or _told(tables.note, spec)
                if told is None:
                    lost.append(f"{path} does not say what it holds")
                    continue
                videos = _videos(folder, path, told)
                for number in range(len(told.digests)):
                    found = _read(tables, number, spec, told, videos)
                    if found is None:
                        lost.append(f"{path}, row group {number}: the episode is damaged")
                    else:
                        yield found
        except DatasetError as error:
            count = "all" if told is None else len(told.digests)
            lost.append(f"{_sentence(error)}: {count} episodes")


def _videos(folder: Path, data: Path, told: _Told) -> dict[str, Path]:
    """The videos beside a file with frames, compared with their SHA-256."""
    found: dict[str, Path] = {}
    for camera, digest in told.videos.items():
        path = folder / "videos" / (IMAGES + camera) / data.parent.name / f"{data.stem}.mp4"
        if not path.is_file() or file_sha256(path) != digest:
            what = "is damaged" if path.is_file() else "is missing"
            raise DatasetError(f"the video {path} {what}")
        found[camera] = path
    return found


def _read(
    tables: ParquetTables, number: int, spec: DatasetSpec, told: _Told, videos: Mapping[str, Path]
) -> Episode | None:
    try:
        words = told.tasks[number], told.sources[number]
        found = from_columns(tables.read(number), spec, *words)
        if found.digest() != told.digests[number]:
            return None
        return replace(found, images=read_images(videos, spec, tables.rows, number))
    except (DatasetError, LookupError, ValueError, TypeError, AttributeError):
        return None  # whatever damaged columns look like


def _told(note: Any, spec: DatasetSpec) -> _Told | None:
    try:
        if DatasetSpec.from_dict(note["spec"]) != spec:
            return None
        tasks, digests = [str(one) for one in note["tasks"]], [str(one) for one in note["digests"]]
        sources = [str(one) for one in note.get("sources", [""] * len(tasks))]
        videos = {str(camera): str(one) for camera, one in note.get("videos", {}).items()}
    except (LookupError, TypeError, ValueError, DatasetError):
        return None
    alike = len(tasks) == len(sources) == len(digests)
    return _Told(tasks, sources, digests, videos) if alike else None


def _spec(folder: Path) -> DatasetSpec:
    """The spec as the files with frames keep it, where most of them agree."""
    found: list[DatasetSpec] = []
    for path in sorted(folder.glob("data/*/*.parquet")):
        try:
            with ParquetTables(path) as tables:
                found.append(DatasetSpec.from_dict(tables.note["spec"]))
        except (DatasetError, LookupError, TypeError, ValueError, AttributeError):
            continue  # damaged; another file may tell
    if not found:
        raise DatasetError(
            f"{folder} cannot be repaired: neither its manifest nor a file in {folder / 'data'} "
            "says what it holds; take it from a copy"
        )
    return max(found, key=found.count)


def _sentence(error: DatasetError) -> str:
    return str(error).partition("; save what")[0]
