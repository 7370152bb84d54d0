"""LeRobotDataset v3 of others: no successor of the last frame, and `done` without a reason.

An episode of L frames has an action in each. As LeRobot's own replay does, a `next.done` ends the
task and the last frame stands for its successor; without one, L frames make L - 1 transitions.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
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
    note_behind_done,
    note_done,
    note_dropped,
    success_without_last,
    without_successor,
)
from robot_rl.datasets.spec import FLAGS, OBSERVATION, STATES, DatasetSpec

_ACTED_COLUMN = "complementary_info.acted"
"""Column of our own data: the last frame has no action, and ends are told apart."""
_THEIR_COLUMNS = {"success": "next.success", "intervened": "complementary_info.is_intervention"}
_OUR_COLUMNS = {
    **FLAGS,
    "reward_terms": "next.reward_terms",
    "policy_version": "complementary_info.policy_version",
    "stamp_ns": "complementary_info.stamp_ns",
}
_COUNTERS = ("episode_index", "frame_index")
_WANTED_COLUMNS = (
    "timestamp",
    "task_index",
    "next.reward",
    "next.done",
    _ACTED_COLUMN,
    *_OUR_COLUMNS.values(),
)
_KNOWN_DTYPES = re.compile(r"(float|u?int)(8|16|32|64)|bool|image|video|string|audio|language")
"""Types of features that LeRobot knows."""


def read_lerobot(folder: Path, choices: ImportChoices) -> Source:
    """Read a data set with `meta/info.json`."""
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
    _check_files(folder, files, info)
    wanted = [*keys, "action", *_COUNTERS, *(n for n in _WANTED_COLUMNS if n in features)]
    terms = features.get("next.reward_terms", {}).get("names") or ()
    ours = _ACTED_COLUMN in features
    groups = {name.removeprefix(OBSERVATION) for name in keys}
    source = Source(
        folder, control_dt=1 / float(info["fps"]), notes=left,
        count=int(info["total_episodes"]) if "total_episodes" in info else None,
        reward_names=tuple(terms) if ours else (), own=_own(files, groups) if ours else None,
    )  # fmt: skip
    if "next.done" in features and not ours:
        note_done(source, "next.done", choices.done)
    widths = {name: features[name].get("shape") for name in ("action", *keys) if name in features}
    if stateful := any(name.startswith(STATES) for name in features):
        left.append("the states of the simulation are left out")
    source.raw = _episodes(
        source, files, wanted, keys, choices, widths, _tasks(folder, info),
        whole=source.own is not None and not stateful,
    )  # fmt: skip
    return source


def _episodes(
    source: Source, files: list[Path], wanted: list[str], keys: list[str], choices: ImportChoices,
    widths: Mapping[str, Any], tasks: Mapping[int, str], *, whole: bool,
) -> Iterator[RawEpisode]:  # fmt: skip
    for number, columns, digest in by_episode(files, wanted):
        where = f"{source.path}, episode {number}"
        check_frames(columns, 1 / (source.control_dt or 1), where)
        check_widths(columns, widths, where)
        task = _task(columns, tasks, where)
        if _ACTED_COLUMN in columns:
            yield _ours(columns, keys, where, task, digest if whole else "")
        else:
            yield _theirs(columns, keys, choices, where, task, source)


def _theirs(
    columns: dict[str, Array], keys: list[str], choices: ImportChoices, where: str, task: str,
    source: Source,
) -> RawEpisode:  # fmt: skip
    """An episode with an action in every frame."""
    rows = len(columns["frame_index"])
    done = columns.get("next.done", np.zeros(rows)).reshape(-1).astype(bool)
    steps, terminated, truncated = cut_at_done(done, choices.done)
    over = bool(terminated.any())
    frames = {k.removeprefix(OBSERVATION): columns[k][:steps] for k in keys}
    reward = columns.get("next.reward", np.zeros(rows))
    note_behind_done(source, reward, steps)
    reward = reward[:steps]
    more = {f: columns[n].reshape(-1)[:steps] for f, n in _THEIR_COLUMNS.items() if n in columns}
    steps -= not over
    note_dropped(source.notes, reward[steps:])
    if "success" in more:
        more["success"] = success_without_last(more["success"], steps)
    return RawEpisode(
        where=where,
        frames=without_successor(frames, over),
        action=columns["action"][:steps],
        reward=reward[:steps],
        terminated=terminated[:steps],
        truncated=truncated[:steps],
        more={name: value[:steps] for name, value in more.items()},
        task=task,
    )


def _ours(
    columns: dict[str, Array], keys: list[str], where: str, task: str, digest: str
) -> RawEpisode:
    """An episode of ours, whose manifest was lost on its way through the tools of others."""
    missing = [name for name in _OUR_COLUMNS.values() if name not in columns]
    if missing not in ([], ["next.reward_terms"]):
        raise DatasetError(
            f"{where} has '{_ACTED_COLUMN}', but no '{missing[0]}'; expected both or none"
        )
    more = {field: columns[name][:-1] for field, name in _OUR_COLUMNS.items() if name in columns}
    return RawEpisode(
        where=where,
        frames={k.removeprefix(OBSERVATION): columns[k] for k in keys},
        action=columns["action"][:-1],
        reward=columns["next.reward"][:-1],
        terminated=more.pop("terminated"),
        truncated=more.pop("truncated"),
        more={**more, "stamp_ns": columns[_OUR_COLUMNS["stamp_ns"]]},
        task=task, digest=digest, digest_place="the metadata 'robot_rl' of the Parquet file",
    )  # fmt: skip


def _own(files: list[Path], groups: set[str]) -> DatasetSpec | None:
    """The spec that our files keep, if they do, without images and states; None for others'."""
    for path in files[:1]:
        with ParquetTables(path) as tables:
            try:
                found = DatasetSpec.from_dict(tables.note["spec"])
            except (DatasetError, LookupError, TypeError, ValueError, AttributeError):
                return None
            known = set(found.groups) == groups
            return replace(found, images={}, states={}) if known else None
    return None


def _info(folder: Path) -> dict[str, Any]:
    path = folder / INFO
    try:
        info = json.loads(path.read_bytes())
        version = str(info["codebase_version"])
        _ = 1 / float(info["fps"]), int(info["total_frames"])
        for name, one in info["features"].items():
            _ = tuple(one.get("names") or ()), [int(n) for n in one.get("shape") or ()]
            if not _KNOWN_DTYPES.fullmatch(one["dtype"]):
                raise ValueError(f"'{name}' is of type '{one['dtype']}', which LeRobot has not")
        _ = int(info.get("total_episodes", 0)), int(info.get("total_tasks", 0))
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


def _check_files(folder: Path, files: list[Path], info: Mapping[str, Any]) -> None:
    """Refuse another number of frames than the info says."""
    found, total = 0, int(info["total_frames"])
    for path in files:
        with ParquetTables(path) as tables:
            found += sum(tables.rows)
    if found != total:
        raise DatasetError(
            f"{folder} has {found} frames in {len(files)} files; expected {total}, as "
            f"{INFO} says: a file is missing or from elsewhere"
        )


def _tasks(folder: Path, info: Mapping[str, Any]) -> dict[int, str]:
    """Number -> words; none where the data set has no tasks."""
    if not (folder / TASKS).is_file() and not info.get("total_tasks"):
        return {}
    table = read_all(folder / TASKS)
    names = table.get("task", table.get("__index_level_0__", []))
    return {int(i): str(name) for i, name in zip(table.get("task_index", []), names, strict=False)}


def _task(columns: dict[str, Array], tasks: Mapping[int, str], where: str) -> str:
    if "task_index" not in columns or not tasks:
        return ""
    index = int(columns["task_index"][0])
    if index not in tasks:
        raise DatasetError(
            f"{where} has the task_index {index}; expected one of {sorted(tasks)}, as {TASKS} says"
        )
    return tasks[index]


_BUFFER_BYTES = 1 << 20
"""Bytes of a column that are read at once: others have row groups of whole files."""
_MAX_JITTER = 0.5
"""Frames may be this part of a period early or late."""


def by_episode(files: list[Path], wanted: list[str]) -> Iterator[tuple[int, dict[str, Array], str]]:
    """Number and columns of every episode, wherever its rows lie; its digest if the file has it."""
    waiting: list[dict[str, Array]] = []
    number, digest = -1, ""
    for path in files:
        with ParquetTables(path, buffer=_BUFFER_BYTES) as tables:
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
    wrong = np.abs(apart * rate - 1) > _MAX_JITTER
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
