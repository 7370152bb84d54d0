"""Transition arrays in one .npz file, as D4RL and many scripts around Gymnasium keep them.

`observations`, `actions`, `rewards`, `next_observations`, `terminals` and, mostly, `timeouts`: N
rows of all episodes, one after another. An array per group is `observations.<group>`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.foreign.assembly import Array, RawEpisode, Source, without_successor
from robot_rl.datasets.foreign.containers.npz import NpzFile, NpzWriter
from robot_rl.datasets.spec import DatasetSpec

_OBS, _NEXT = "observations", "next_observations"
_MORE = ("reward_terms", "success", "valid", "intervened", "policy_version")
_ROWS = (
    "actions", "rewards", "terminals", "timeouts", "stamp_ns", "next_stamp_ns", "task_index", *_MORE
)  # fmt: skip
_NAMES = {"terminations": "terminals", "truncations": "timeouts", "next_obs": _NEXT, "obs": _OBS}
"""Other names that are in use for the same."""
_Rows = dict[str, Array]


def read_arrays(path: Path) -> Source:
    """Read a file, of which one episode is in memory at a time.

    Raises:
        DatasetError: It is missing, damaged, holds Python objects, or an array is missing.
    """
    file = NpzFile(path)
    named = {_NAMES.get(name, name): name for name in file.arrays}
    note = str(file.whole("robot_rl")) if "robot_rl" in named else None
    own = DatasetSpec.from_note(note, path)
    rows = {
        name: theirs
        for name, theirs in named.items()
        if _is(name, _OBS) or _is(name, _NEXT) or name in _ROWS
    }
    for needed in (_OBS, "actions", "rewards", "terminals"):
        if not any(_is(name, needed) for name in rows):
            raise DatasetError(f"{path} has no '{needed}'; it has {', '.join(sorted(named))}")
    _check_rows(file, rows)
    tasks = [str(one) for one in file.whole("tasks")] if "tasks" in named else []
    single = next(iter(own.groups)) if own else "actor"
    left = sorted(set(named) - set(rows) - {"robot_rl", "tasks"})
    notes = [f"'{name}' is left out" for name in left]
    return Source(path, _episodes(file, rows, tasks, single), own=own, notes=notes)


def _is(name: str, kind: str) -> bool:
    return name == kind or name.startswith(f"{kind}.")


def _check_rows(file: NpzFile, rows: Mapping[str, str]) -> None:
    """Refuse arrays that are not of one number of rows, and successors of another width."""
    count = file.arrays[rows["actions"]].shape[:1]
    for name, theirs in rows.items():
        shape, successor = file.arrays[theirs].shape, name.replace(_OBS, _NEXT, 1)
        if _is(name, _OBS) and successor in rows and file.arrays[rows[successor]].shape != shape:
            raise DatasetError(
                f"{file.path}: '{successor}' has the shape {file.arrays[rows[successor]].shape}; "
                f"expected {shape}, as '{name}'"
            )
        if not count or shape[:1] != count:
            expected = count[0] if count else "some"
            raise DatasetError(
                f"{file.path}: '{name}' has the shape {shape}; expected {expected} rows, as "
                "'actions'"
            )
        dtype = file.arrays[theirs].dtype
        if dtype.kind not in "biuf":
            raise DatasetError(f"{file.path}: '{name}' is of type {dtype}; expected numbers")


def _episodes(
    file: NpzFile, rows: Mapping[str, str], tasks: Sequence[str], single: str
) -> Iterator[RawEpisode]:
    """Cut where episodes end: a part of the file may hold many of them, or a piece of one."""
    waiting: list[_Rows] = []
    start = number = 0

    def cut() -> RawEpisode:
        nonlocal waiting, start, number
        whole = {name: np.concatenate([piece[name] for piece in waiting]) for name in rows}
        where = f"{file.path}, episode {number} (row {start})"
        waiting, start, number = [], start + len(whole["actions"]), number + 1
        return _episode(where, whole, tasks, single)

    with file:
        for found in file.parts([*rows.values()]):
            part = {name: found[theirs] for name, theirs in rows.items()}
            if waiting and _parted(_some(waiting[-1], -1, None), _some(part, 0, 1)).any():
                yield cut()
            ends = _flag(part, "terminals") | _flag(part, "timeouts")
            ends[:-1] |= _parted(_some(part, 0, -1), _some(part, 1, None))
            begin = 0
            for last in np.flatnonzero(ends).tolist():
                waiting.append(_some(part, begin, last + 1))
                begin = last + 1
                yield cut()
            if begin < len(ends):
                waiting.append(_some(part, begin, None))
        if waiting:
            yield cut()


def _some(rows: _Rows, start: int, stop: int | None) -> _Rows:
    return {name: value[start:stop] for name, value in rows.items()}


def _flag(rows: _Rows, name: str) -> Array:
    count = len(rows["actions"])
    return np.asarray(rows.get(name, np.zeros(count)).reshape(count, -1).any(axis=1))


def _parted(before: _Rows, after: _Rows) -> Array:
    """Which rows do not follow those before them: there an episode ends, whatever the file says."""
    parted = np.zeros(len(after["actions"]), bool)
    for name, value in after.items():
        successor = name.replace(_OBS, _NEXT, 1)
        if _is(name, _OBS) and successor in before and len(value):
            parted |= (value != before[successor]).reshape(len(value), -1).any(axis=1)
    return parted


def _episode(where: str, rows: _Rows, tasks: Sequence[str], single: str) -> RawEpisode:
    obs, after = _grouped(rows, _OBS, single), _grouped(rows, _NEXT, single)
    terminated = bool(_flag(rows, "terminals")[-1])
    frames = dict(obs)
    if set(obs) <= set(after):
        frames = {k: np.concatenate([value, after[k][-1:]]) for k, value in obs.items()}
    else:
        frames = without_successor(frames, terminated)
    steps = len(next(iter(frames.values()))) - 1
    last = np.arange(steps) == steps - 1
    more = {name: rows[name][:steps] for name in _MORE if name in rows}
    if "stamp_ns" in rows and "next_stamp_ns" in rows and steps:
        more["stamp_ns"] = np.append(rows["stamp_ns"][:steps], rows["next_stamp_ns"][steps - 1])
    return RawEpisode(
        where=where, frames=frames, action=rows["actions"][:steps], reward=rows["rewards"][:steps],
        terminated=last & terminated, truncated=last & (not terminated), more=more,
        task=_task(rows, tasks, where),
    )  # fmt: skip


def _task(rows: _Rows, tasks: Sequence[str], where: str) -> str:
    if not tasks or "task_index" not in rows:
        return ""
    index = int(rows["task_index"].reshape(-1)[0])
    if not 0 <= index < len(tasks):
        raise DatasetError(
            f"{where}: 'task_index' is {index}; expected one of {len(tasks)} 'tasks', from 0"
        )
    return tasks[index]


def write_arrays(path: Path, spec: DatasetSpec, episodes: Iterable[Episode]) -> int:
    """Write a file, with one episode in memory at a time. Returns the number of episodes.

    Args:
        path: The file; until it is whole, all of it lies on the disk twice.
        spec: Of the episodes; a single group is `observations`.
        episodes: What to write.
    """
    if path.exists():
        raise DatasetError(f"{path} exists already; choose another name")
    tasks: dict[str, int] = {}
    count = 0
    with NpzWriter(path) as file:
        for count, one in enumerate(episodes, 1):  # noqa: B007 - the last number is what counts
            task = tasks.setdefault(one.task, len(tasks))
            file.add(_columns(one, task, len(spec.groups) == 1))
        about = {"tasks": np.array([*tasks]), "robot_rl": np.array(json.dumps(spec.to_dict()))}
        file.finish(about)
    return count


def _columns(one: Episode, task: int, single: bool) -> dict[str, Array]:
    named = {"" if single else f".{name}": value for name, value in one.obs.items()}
    more = {name: getattr(one, name) for name in _MORE if getattr(one, name) is not None}
    return {
        **{_OBS + name: value[:-1] for name, value in named.items()},
        **{_NEXT + name: value[1:] for name, value in named.items()},
        "actions": one.action,
        "rewards": one.reward,
        "terminals": one.terminated,
        "timeouts": one.truncated,
        **more,
        "stamp_ns": one.stamp_ns[:-1],
        "next_stamp_ns": one.stamp_ns[1:],
        "task_index": np.full(one.num_steps, task),
    }


def _grouped(rows: _Rows, prefix: str, single: str) -> dict[str, Array]:
    """Arrays by group: `observations` is the only group, `observations.x` the group `x`."""
    return {
        name.removeprefix(prefix).removeprefix(".") or single: value
        for name, value in rows.items()
        if _is(name, prefix)
    }
