"""Rows of the Parquet files of a LeRobotDataset as episodes, with what must be true of them."""

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.files.lerobot_meta import INFO
from robot_rl.datasets.files.parquet import ParquetTables
from robot_rl.datasets.foreign.assembly import Array

_BUFFER = 1 << 20
"""Bytes of a column that are read at once: others have row groups of whole files."""
_SLACK = 0.5
"""Frames may be this part of a period early or late."""


def by_episode(files: list[Path], wanted: list[str]) -> Iterator[tuple[int, dict[str, Array], str]]:
    """Number and columns of every episode, wherever its rows lie; its digest if the file has it."""
    waiting: list[dict[str, Array]] = []
    number, digest = -1, ""
    for path in files:
        with ParquetTables(path, buffer=_BUFFER) as tables:
            missing = [name for name in wanted if name not in tables.columns]
            if missing:
                raise DatasetError(
                    f"the file {path} has no column '{missing[0]}'; it has "
                    f"{', '.join(tables.columns)}"
                )
            digests = iter(_digests(tables))
            for table in tables.parts(wanted):
                for name, value in table.items():
                    if not isinstance(value, np.ndarray):
                        raise DatasetError(f"{path}: column '{name}' holds no vectors of one width")
                for here, part in _runs(table):
                    if here != number:
                        if here < number:
                            raise DatasetError(
                                f"{path}: episode {here} comes behind episode {number}; expected "
                                "episodes in order: a file is from elsewhere"
                            )
                        if waiting:
                            yield number, _together(waiting), digest
                        waiting, digest = [], next(digests, "")
                    number = here
                    waiting.append(part)
    if waiting:
        yield number, _together(waiting), digest


def check_frames(columns: dict[str, Array], rate: float, where: str) -> None:
    """Refuse frames that are missing, or did not come at the rate that the data set tells."""
    numbers = columns["frame_index"]
    wrong = numbers != np.arange(len(numbers))
    if wrong.any():
        step = int(np.argmax(wrong))
        raise DatasetError(
            f"{where}, step {step}: frame_index is {numbers[step]}; expected {step}: frames are "
            "missing or twice there"
        )
    apart = np.diff(columns.get("timestamp", np.zeros(0)).astype(np.float64).reshape(-1))
    wrong = np.abs(apart * rate - 1) > _SLACK
    if wrong.any():
        step = int(np.argmax(wrong)) + 1
        raise DatasetError(
            f"{where}, step {step}: the frame came {apart[step - 1]:.4g} s after the one before; "
            f"expected {1 / rate:.4g} s ({rate:g} frames per second)"
        )


def check_widths(columns: dict[str, Array], widths: Mapping[str, Any], where: str) -> None:
    """Refuse vectors of another width than the info says."""
    for name, shape in widths.items():
        width = math.prod(columns[name].shape[1:])
        if shape and math.prod(int(n) for n in shape) != width:
            raise DatasetError(
                f"{where}: '{name}' has {width} numbers per frame; expected the shape {shape}, as "
                f"{INFO} says"
            )


def _digests(tables: ParquetTables) -> list[str]:
    """Of the episodes of a file that we wrote, and that nobody wrote anew."""
    note = tables.note
    found = note.get("digests") if isinstance(note, dict) else None
    if not isinstance(found, list) or len(found) != len(tables.rows):
        return []
    return [str(one) for one in found]


def _runs(table: dict[str, Array]) -> Iterator[tuple[int, dict[str, Array]]]:
    episode = table["episode_index"]
    starts = [0, *(np.flatnonzero(np.diff(episode)) + 1).tolist(), len(episode)]
    for start, stop in pairwise(starts):
        if stop > start:
            yield int(episode[start]), {name: value[start:stop] for name, value in table.items()}


def _together(parts: list[dict[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
