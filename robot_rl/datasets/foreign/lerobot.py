"""LeRobotDataset v3 of others: no successor of the last frame, and `done` without a reason.

An episode of L frames has an action in each. As LeRobot's own replay does, a `next.done` ends the
task and the last frame stands for its successor; without one, L frames make L - 1 transitions.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.files.lerobot_meta import INFO, TASKS
from robot_rl.datasets.files.parquet import ParquetTables, read_all
from robot_rl.datasets.foreign.assembly import (
    Array,
    ImportChoices,
    RawEpisode,
    Source,
    cut_at_done,
    note_done,
    without_successor,
)
from robot_rl.datasets.spec import FLAGS, OBSERVATION

_ACTED = "complementary_info.acted"
"""Where it is, the data were ours: the last frame has no action, and ends are told apart."""
_THEIRS = {"success": "next.success", "intervened": "complementary_info.is_intervention"}
_OURS = {
    **FLAGS,
    "reward_terms": "next.reward_terms",
    "policy_version": "complementary_info.policy_version",
    "stamp_ns": "complementary_info.stamp_ns",
}
_COUNTS = ("episode_index", "frame_index")
_WANTED = ("timestamp", "task_index", "next.reward", "next.done", _ACTED, *_OURS.values())
_SLACK = 0.5
"""Frames may be this part of a period early or late."""


def read_lerobot(folder: Path, choices: ImportChoices) -> Source:
    """Read a data set.

    Args:
        folder: With `meta/info.json`.
        choices: What its `next.done` means.
    """
    info = _info(folder)
    features: Mapping[str, Any] = info["features"]
    keys = [
        name
        for name, one in features.items()
        if name.startswith("observation.") and one["dtype"].startswith("float")
    ]
    left = [f"'{n}' is left out: it is no vector" for n in features
            if n.startswith("observation.") and n not in keys]  # fmt: skip
    if not keys:
        raise DatasetError(f"{folder / INFO} names no vector observation.*; it has {[*features]}")
    if "next.reward" not in features:
        left.append("there is no 'next.reward': all rewards are 0")
    files = sorted(folder.glob("data/*/*.parquet"))
    _check_total(folder, files, int(info["total_frames"]))
    wanted = [*keys, "action", *_COUNTS, *(n for n in _WANTED if n in features)]
    terms = features.get("next.reward_terms", {}).get("names") or ()
    source = Source(
        folder, control_dt=1 / float(info["fps"]), notes=left,
        reward_names=tuple(terms) if _ACTED in features else (),
    )  # fmt: skip
    if "next.done" in features and _ACTED not in features:
        note_done(source, "next.done", choices.done)
    source.raw = _episodes(source, files, wanted, keys, choices)
    return source


def _episodes(
    source: Source, files: list[Path], wanted: list[str], keys: list[str], choices: ImportChoices
) -> Iterator[RawEpisode]:
    tasks = _tasks(source.path)
    for number, columns in _by_episode(files, wanted):
        where = f"{source.path}, episode {number}"
        _check_frames(columns, 1 / (source.control_dt or 1), where)
        index = int(columns["task_index"][0]) if "task_index" in columns else -1
        make = _ours if _ACTED in columns else _theirs
        yield make(columns, keys, choices, where, tasks.get(index, ""))


def _theirs(
    columns: dict[str, Array], keys: list[str], choices: ImportChoices, where: str, task: str
) -> RawEpisode:
    """An episode with an action in every frame."""
    rows = len(columns["frame_index"])
    done = columns.get("next.done", np.zeros(rows)).reshape(-1).astype(bool)
    steps, terminated, truncated = cut_at_done(done, choices.done)
    over = bool(terminated.any())
    frames = {k.removeprefix(OBSERVATION): columns[k][:steps] for k in keys}
    steps -= not over
    return RawEpisode(
        where=where,
        frames=without_successor(frames, over),
        action=columns["action"][:steps],
        reward=columns.get("next.reward", np.zeros(rows))[:steps],
        terminated=terminated[:steps],
        truncated=truncated[:steps],
        more={f: columns[n].reshape(-1)[:steps] for f, n in _THEIRS.items() if n in columns},
        task=task,
    )


def _ours(
    columns: dict[str, Array], keys: list[str], _: ImportChoices, where: str, task: str
) -> RawEpisode:
    """An episode of ours, whose manifest was lost on its way through the tools of others."""
    missing = [name for name in _OURS.values() if name not in columns]
    if missing not in ([], ["next.reward_terms"]):
        raise DatasetError(f"{where} has '{_ACTED}', but no '{missing[0]}'; expected both or none")
    more = {field: columns[name][:-1] for field, name in _OURS.items() if name in columns}
    return RawEpisode(
        where=where,
        frames={k.removeprefix(OBSERVATION): columns[k] for k in keys},
        action=columns["action"][:-1],
        reward=columns["next.reward"][:-1],
        terminated=more.pop("terminated"),
        truncated=more.pop("truncated"),
        more={**more, "stamp_ns": columns[_OURS["stamp_ns"]]},
        task=task,
    )


def _check_frames(columns: dict[str, Array], rate: float, where: str) -> None:
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


def _by_episode(files: list[Path], wanted: list[str]) -> Iterator[tuple[int, dict[str, Array]]]:
    """Number and columns of every episode, wherever its rows lie."""
    waiting: list[dict[str, Array]] = []
    number = -1
    for path in files:
        with ParquetTables(path) as tables:
            missing = [name for name in wanted if name not in tables.columns]
            if missing:
                raise DatasetError(
                    f"the file {path} has no column '{missing[0]}'; it has "
                    f"{', '.join(tables.columns)}"
                )
            for group in range(len(tables.rows)):
                table = tables.read(group, wanted)
                for name, value in table.items():
                    if not isinstance(value, np.ndarray):
                        raise DatasetError(f"{path}: column '{name}' holds no vectors of one width")
                for here, part in _runs(table):
                    if here != number and waiting:
                        yield number, _together(waiting)
                        waiting = []
                    number = here
                    waiting.append(part)
    if waiting:
        yield number, _together(waiting)


def _runs(table: dict[str, Array]) -> Iterator[tuple[int, dict[str, Array]]]:
    episode = table["episode_index"]
    starts = [0, *(np.flatnonzero(np.diff(episode)) + 1).tolist(), len(episode)]
    for start, stop in pairwise(starts):
        if stop > start:
            yield int(episode[start]), {name: value[start:stop] for name, value in table.items()}


def _together(parts: list[dict[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _info(folder: Path) -> dict[str, Any]:
    path = folder / INFO
    try:
        info = json.loads(path.read_bytes())
        version = str(info["codebase_version"])
        _ = 1 / float(info["fps"]), int(info["total_frames"])
        for one in info["features"].values():
            _ = one["dtype"].startswith("float"), tuple(one.get("names") or ())
    except (OSError, ArithmeticError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise DatasetError(
            f"the file {path} cannot be read as info of LeRobot: {type(error).__name__} {error}"
        ) from None
    if not version.startswith("v3"):
        raise DatasetError(
            f"{folder} is a LeRobotDataset {version}; expected v3.x: bring it there with the "
            "converter that comes with LeRobot"
        )
    return info


def _check_total(folder: Path, files: list[Path], total: int) -> None:
    found = 0
    for path in files:
        with ParquetTables(path) as tables:
            found += sum(tables.rows)
    if found != total:
        raise DatasetError(
            f"{folder} has {found} frames in {len(files)} files; expected {total}, as "
            f"{INFO} says: a file is missing or from elsewhere"
        )


def _tasks(folder: Path) -> dict[int, str]:
    if not (folder / TASKS).is_file():
        return {}
    table = read_all(folder / TASKS)
    names = table.get("task", table.get("__index_level_0__", []))
    return {int(i): str(name) for i, name in zip(table.get("task_index", []), names, strict=False)}
