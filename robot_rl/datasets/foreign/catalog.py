"""Formats of data sets: recognise, read and write them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.files.lerobot_meta import INFO
from robot_rl.datasets.files.manifest import MANIFEST
from robot_rl.datasets.foreign.assembly import ImportChoices, Source, imported
from robot_rl.datasets.foreign.lerobot import read_lerobot
from robot_rl.datasets.foreign.minari import is_minari, read_minari, write_minari
from robot_rl.datasets.foreign.npz import read_arrays, write_arrays
from robot_rl.datasets.foreign.robomimic import read_robomimic, write_robomimic
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.datasets.writer import write_new
from robot_rl.training.storage.durable import discard


class Format(StrEnum):
    """Formats that a data set can be stored in."""

    episodes = "episodes"
    """Ours, which LeRobot reads."""
    lerobot = "lerobot"
    """LeRobotDataset v3 of others; to write one, write ours."""
    minari = "minari"
    robomimic = "robomimic"
    npz = "npz"


def format_of(path: Path) -> Format:
    """The format that something on the disk has.

    Raises:
        DatasetError: It is missing, or none that is known.
    """
    if not path.exists():
        raise DatasetError(f"{path} does not exist; expected a data set")
    if (path / MANIFEST).is_file():
        return Format.episodes
    if (path / INFO).is_file():
        return Format.lerobot
    if is_minari(path):
        return Format.minari
    if path.suffix == ".npz":
        return Format.npz
    if path.suffix in (".hdf5", ".h5"):
        return Format.robomimic
    raise DatasetError(
        f"{path} is no data set that is known; expected a folder of ours, of LeRobot "
        "(meta/info.json) or of Minari (data/main_data.hdf5), an .hdf5 file of robomimic, or an "
        ".npz file"
    )


def holds_replay(path: Path) -> bool:
    """True for the folder of a run, and for saved rows of a replay."""
    return (path / "config.yaml").is_file() or (path / "dataset.json").is_file()


def read_any(
    path: Path, choices: ImportChoices, *, images: bool = True
) -> tuple[DatasetSpec, Iterator[Episode], Source | None]:
    """Spec and episodes of a data set of any format, and whose they were if not ours.

    Raises:
        DatasetError: It cannot be read; the message names file, episode and step.
    """
    kind = format_of(path)
    if kind is Format.episodes:
        dataset = EpisodeDataset(path, images=images)
        return dataset.spec, iter(dataset), None
    readers: dict[Format, Callable[[], Source]] = {
        Format.lerobot: lambda: read_lerobot(path, choices),
        Format.minari: lambda: read_minari(path),
        Format.robomimic: lambda: read_robomimic(path, choices),
        Format.npz: lambda: read_arrays(path),
    }
    source = readers[kind]()
    return *imported(source, choices), source


def write_any(
    path: Path, kind: Format, spec: DatasetSpec, episodes: Iterable[Episode], name: str = ""
) -> int:
    """Write a new data set; returns the number of episodes.

    Args:
        path: Must not exist; nothing is there if this fails.
        kind: Its format; LeRobot's is ours.
        name: Of the data set, for Minari; that of the folder if empty.

    Raises:
        DatasetError: Something is there already, or an episode cannot be read or written.
    """
    if kind in (Format.episodes, Format.lerobot):
        return write_new(path, spec, episodes)
    if path.exists():
        raise DatasetError(f"{path} exists already; choose another name")
    # They have no word for videos, nor for what only a simulator knows.
    spec = replace(spec, images={}, states={})
    episodes = (replace(one, states={}) for one in episodes)
    try:
        if kind is Format.minari:
            return write_minari(path, spec, episodes, name or path.name)
        return {Format.robomimic: write_robomimic, Format.npz: write_arrays}[kind](
            path, spec, episodes
        )
    except BaseException:  # Ctrl-C, too
        discard(path)
        raise
