"""Reads a data set of episodes: one at a time, checked, with no more than one in memory.

Nothing that is read is executed: the files are Parquet and JSON. A file is compared with the
manifest's SHA-256 before the first episode is taken out of it, each of them once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.episode import Episode, from_columns
from robot_rl.datasets.files.manifest import Addition, check_file, read_settled
from robot_rl.datasets.files.parquet import ParquetTables
from robot_rl.datasets.spec import DatasetSpec


class EpisodeDataset:
    """The episodes that were in a data set when it was opened; others may be added meanwhile."""

    def __init__(self, folder: Path | str, *, images: bool = True) -> None:
        """Read the manifest; without images, which take time to decode, episodes are of no camera.

        Raises:
            DatasetError: There is no data set, or it is damaged.
        """
        self.folder = Path(folder)
        self.manifest = read_settled(self.folder)
        """Its manifest."""
        self.spec = self.manifest.spec
        """Content of every episode."""
        self.digest = self.manifest.digest
        """One digest of everything in it."""
        self.sources = self.manifest.sources
        """Of every episode."""
        additions = self.manifest.additions
        self.lengths = [length for one in additions for length in one.lengths]
        """Steps T of every episode."""
        self.tasks = [task for one in additions for task in one.tasks]
        """Of every episode."""
        self.episode_digests = [digest for one in additions for digest in one.digests]
        """`Episode.digest` of every episode: equal ones are copies."""
        self._places = [(one, i) for one in additions for i in range(len(one.lengths))]
        """Addition and row group of every episode."""
        self._images = images
        self._open: ParquetTables | None = None
        self._checked: set[str] = set()

    @property
    def num_copies(self) -> int:
        """Episodes whose content an earlier one has as well."""
        return len(self) - len(set(self.episode_digests))

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Episode]:
        return self.episodes(range(len(self)))

    def episodes(self, numbers: Sequence[int]) -> Iterator[Episode]:
        """Episodes by number."""
        return (self.episode(number) for number in numbers)

    def episode(self, number: int) -> Episode:
        """One episode.

        Raises:
            DatasetError: There is no such episode, or its file is missing or damaged.
        """
        if not 0 <= number < len(self):
            raise DatasetError(
                f"episode {number} of {self.folder} was asked for; it has {len(self)}, counted "
                "from 0"
            )
        told, i = self._places[number]
        table = self._table(told).read(i)
        found = from_columns(table, self.spec, told.tasks[i], told.sources[i])
        if not (self._images and self.spec.images):
            return found
        paths = {name: self.folder / one.path for name, one in told.videos.items()}
        frames = [length + 1 for length in told.lengths]
        return replace(found, images=read_images(paths, self.spec, frames, i))

    def _table(self, addition: Addition) -> ParquetTables:
        path = self.folder / addition.data.path
        if self._open is None or self._open.path != path:
            if addition.data.path not in self._checked:
                for file in addition.files:  # others read the table of episodes
                    check_file(self.folder, file)
                self._checked.add(addition.data.path)
            if self._open is not None:
                self._open.close()
            self._open = ParquetTables(path)
        return self._open


def read_images(
    paths: Mapping[str, Path], spec: DatasetSpec, frames: Sequence[int], number: int
) -> dict[str, NDArray[np.uint8]]:
    """Images of one episode out of the videos of all that came together, of T + 1 frames each.

    Raises:
        DatasetError: A video is missing or damaged.
    """
    from robot_rl.datasets.files import video  # most data sets have no images

    first, count = sum(frames[:number]), frames[number]
    found = {name: video.decode(path, spec.rate, first, count) for name, path in paths.items()}
    return {name: images[..., : spec.images[name][2]] for name, images in found.items()}
