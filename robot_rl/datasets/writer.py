"""Adds episodes to a data set: each is whole in it or absent, whenever the process is killed.

An addition goes to the disk in this order: frames, table of episodes, videos, line in the manifest,
and last the files that LeRobot reads and that follow from all others. It counts from its line on.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.episode import Columns, Episode, to_columns
from robot_rl.datasets.files import lerobot_meta as meta
from robot_rl.datasets.files.lerobot_meta import Statistics, from_columns, joined, statistics_of
from robot_rl.datasets.files.manifest import (
    MANIFEST,
    Addition,
    FileEntry,
    Manifest,
    append,
    check_derived,
    check_file,
    first_line,
    read_manifest,
    strays,
)
from robot_rl.datasets.files.parquet import encode, read_all
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.training.storage.durable import (
    discard,
    sha256,
    storage_errors,
    sync_folder,
    take_lock,
    write_synced,
)


class _Encoded(NamedTuple):
    """Episodes that come together, as the content of files."""

    data: bytes
    table: bytes
    videos: dict[str, bytes]
    statistics: list[Statistics]
    facts: dict[str, Any]
    """Fields of `Addition` about each episode."""


def _encode(episodes: Sequence[Episode], manifest: Manifest) -> _Encoded:
    """Check one or more episodes and encode them as the next addition."""
    spec, first = manifest.spec, manifest.num_episodes
    checked = [one.checked(spec, f"episode {first + i}") for i, one in enumerate(episodes)]
    all_tasks = list(dict.fromkeys([*manifest.tasks, *(one.task for one in checked)]))
    frame = manifest.num_frames
    tables: list[Columns] = []
    for i, one in enumerate(checked):
        index = all_tasks.index(one.task)
        tables.append(to_columns(one, spec, number=first + i, first=frame, task_index=index))
        frame += one.num_steps + 1
    facts: dict[str, Any] = {
        "tasks": [one.task for one in checked],
        "sources": [one.source for one in checked],
        "digests": [one.digest() for one in checked],
    }
    statistics, videos = [statistics_of(one) for one in checked], _videos(checked, spec)
    digests = {name: sha256(content) for name, content in videos.items()}
    data = encode(tables, note={"spec": spec.to_dict(), **facts, "videos": digests})
    facts["lengths"] = [one.num_steps for one in checked]
    table = meta.episodes_table(
        spec, file_number=len(manifest.additions), first_episode=first,
        first_frame=manifest.num_frames, statistics=statistics, **facts,
    )  # fmt: skip
    return _Encoded(data, table, videos, statistics, facts)


def _videos(episodes: Sequence[Episode], spec: DatasetSpec) -> dict[str, bytes]:
    if not spec.images:
        return {}
    from robot_rl.datasets.files import video  # most data sets have no images

    return {
        name: video.encode((one.images[name] for one in episodes), spec.rate)
        for name in spec.images
    }


_INCOMING = Path("meta/incoming")
"""Files on their way; where LeRobot reads, a name stands for a whole file."""


class DatasetWriter:
    """Appends to a data set; one per data set at a time. Use it in a `with`."""

    def __init__(self, folder: Path, manifest: Manifest, lock: IO[str]) -> None:
        """Use `create` or `append_to`."""
        self.folder, self._manifest, self._lock = folder, manifest, lock
        self.spec = manifest.spec
        """Content that the episodes must have."""
        self._statistics = joined(self._stored_statistics())

    @classmethod
    def create(cls, folder: Path | str, spec: DatasetSpec) -> "DatasetWriter":
        """Begin a data set in a folder that does not exist or is empty.

        Raises:
            DatasetError: Something is there already.
            StorageError: The disk refused.
        """
        folder = Path(folder)
        check_free(folder)
        unfinished = folder.resolve().with_name(f".new_{folder.resolve().name}_{os.getpid()}")
        derived = meta.derived_files(spec, episodes=0, frames=0, tasks=[], statistics={})
        with storage_errors("make the data set", folder):
            try:
                (unfinished / "meta").mkdir(parents=True)
                for path, content in derived.items():
                    write_synced(unfinished / path, content)
                write_synced(unfinished / MANIFEST, first_line(spec, _digests(derived)))
                sync_folder(unfinished / "meta")
                unfinished.rename(folder)
            except OSError:
                discard(unfinished)
                raise
            sync_folder(folder.resolve().parent)
        return cls.append_to(folder)

    @classmethod
    def append_to(cls, folder: Path | str, *, mend: bool = False) -> "DatasetWriter":
        """Go on with a data set; tidies up behind a writer that was killed.

        With `mend` also what follows from other files and was damaged is written anew.

        Raises:
            DatasetError: There is none, it is damaged, or another process writes to it.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        with storage_errors("write to the data set", folder):
            lock = take_lock(folder / "meta")
        if lock is None:
            raise DatasetError(f"another process is writing to {folder}; wait until it has ended")
        try:
            manifest = read_manifest(folder)
            if not mend:
                check_derived(folder, manifest)
            writer = cls(folder, manifest, lock)
            writer.tidy()
        except BaseException:
            lock.close()
            raise
        return writer

    @property
    def sources(self) -> list[str]:
        """Of every episode that is in it."""
        return self._manifest.sources

    @property
    def num_steps(self) -> int:
        """Transitions of all episodes that are in it."""
        return self._manifest.num_steps

    def add(self, *episodes: Episode) -> None:
        """Add episodes, all of them or none; they are on the disk when this returns.

        Raises:
            DatasetError: An episode is not what the spec says.
            StorageError: The disk refused; the data set is as before.
        """
        if not episodes:
            return
        found = _encode(episodes, self._manifest)
        statistics = joined([self._statistics, *found.statistics])
        derived = self._derived(statistics, found.facts["lengths"], found.facts["tasks"])
        number = len(self._manifest.additions)
        addition = Addition(
            data=self._place(meta.data_path(number), found.data),
            episodes=self._place(meta.episodes_path(number), found.table),
            derived=_digests(derived), **found.facts,
            videos={
                camera: self._place(meta.video_path(camera, number), content)
                for camera, content in found.videos.items()
            },
        )  # fmt: skip
        prepared = self._prepare(derived)  # all that needs space comes before the line
        append(self.folder, self._manifest, addition)
        self._statistics = statistics
        self._replace(prepared)

    def add_all(self, episodes: Iterable[Episode]) -> int:
        """Add many episodes, as many to a file as make a good size; returns how many."""
        waiting: list[Episode] = []
        size = count = 0
        for one in episodes:
            waiting.append(one)
            size, count = size + _num_bytes(one), count + 1
            if size > meta.DATA_MEGABYTES << 20:
                self.add(*waiting)
                waiting, size = [], 0
        self.add(*waiting)
        return count

    def close(self) -> None:
        """Let others write; allowed more than once."""
        self._lock.close()

    def __enter__(self) -> "DatasetWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tidy(self) -> None:
        """Remove what a killed writer left, and write what it did not get to."""
        with storage_errors("tidy up", self.folder):
            shutil.rmtree(self.folder / _INCOMING, ignore_errors=True)
            for path in strays(self.folder, self._manifest):
                path.unlink()
        derived = self._derived(self._statistics)
        digests = _digests(derived)
        prepared = self._prepare(derived)
        if self._manifest.torn or digests != self._manifest.derived[-1]:
            append(self.folder, self._manifest, {"derived": digests})
        self._replace(prepared)

    def _stored_statistics(self) -> Iterator[Statistics]:
        for one in self._manifest.additions:
            check_file(self.folder, one.episodes)
            yield from from_columns(read_all(self.folder / one.episodes.path), len(one.lengths))

    def _derived(
        self, statistics: Statistics, lengths: Sequence[int] = (), tasks: Sequence[str] = ()
    ) -> dict[str, bytes]:
        """Files that follow from what is there, and from episodes that are about to come."""
        there, come = self._manifest, len(lengths)
        return meta.derived_files(
            there.spec, episodes=there.num_episodes + come,
            frames=there.num_frames + sum(lengths) + come,
            tasks=list(dict.fromkeys([*there.tasks, *tasks])), statistics=statistics,
        )  # fmt: skip

    def _place(self, path: str, content: bytes) -> FileEntry:
        """Give a new file its name, once it is whole."""
        incoming, place = self.folder / _INCOMING, self.folder / path
        with storage_errors("write", place):
            incoming.mkdir(exist_ok=True)
            place.parent.mkdir(parents=True, exist_ok=True)
            write_synced(incoming / place.name, content)
            os.replace(incoming / place.name, place)
            sync_folder(place.parent)
        return FileEntry(path=path, bytes=len(content), sha256=sha256(content))

    def _prepare(self, derived: dict[str, bytes]) -> list[Path]:
        """Write files that are to be replaced beside them, as far as they change."""
        incoming, prepared = self.folder / _INCOMING, list[Path]()
        with storage_errors("write to", self.folder):
            incoming.mkdir(exist_ok=True)
            for path, content in derived.items():
                place = self.folder / path
                if not place.is_file() or place.read_bytes() != content:
                    write_synced(incoming / place.name, content)
                    prepared.append(place)
        return prepared

    def _replace(self, prepared: list[Path]) -> None:
        with storage_errors("write to", self.folder):
            for place in prepared:
                os.replace(self.folder / _INCOMING / place.name, place)
            sync_folder(self.folder / "meta")


def write_new(folder: Path, spec: DatasetSpec, episodes: Iterable[Episode]) -> int:
    """Write a new data set of ours; returns the number of episodes.

    Raises:
        DatasetError: Something is there already, or an episode cannot be read or written.
    """
    check_free(folder)
    # Half a data set would look like a whole one: it gets its name in the end.
    unfinished = folder.resolve().with_name(f".new_{folder.resolve().name}")
    discard(unfinished)  # of a process that was killed
    try:
        with DatasetWriter.create(unfinished, spec) as writer:
            count = writer.add_all(episodes)
        with storage_errors("write the data set", folder):
            unfinished.rename(folder)
            sync_folder(folder.resolve().parent)
    finally:
        discard(unfinished)
    return count


def check_free(folder: Path) -> None:
    """Refuse a place where something is."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DatasetError(
            f"{folder} exists already and is not empty; choose a new folder for the data set"
        )


def _digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {path: sha256(content) for path, content in files.items()}


def _num_bytes(episode: Episode) -> int:
    vectors = [*episode.obs.values(), *episode.states.values(), episode.action]
    numbers = sum(value.nbytes for value in vectors)
    images = sum(value.nbytes for value in episode.images.values())
    return numbers + images + 64 * (episode.num_steps + 1)
