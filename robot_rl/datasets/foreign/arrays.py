"""Transition arrays in one .npz file, as D4RL and many scripts around Gymnasium keep them.

`observations`, `actions`, `rewards`, `next_observations`, `terminals` and, mostly, `timeouts`: N
rows of all episodes, one after another. An array per group is `observations.<group>`.
"""

import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.foreign.assembly import (
    Array,
    RawEpisode,
    Source,
    check_rows,
    without_successor,
)
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.training.storage.durable import discard, storage_errors

_OBS, _NEXT = "observations", "next_observations"
_MORE = ("reward_terms", "success", "valid", "intervened", "policy_version")
_NAMES = {"terminations": "terminals", "truncations": "timeouts", "next_obs": _NEXT, "obs": _OBS}
"""Other names that are in use for the same."""


def read_arrays(path: Path) -> Source:
    """Read a file; its arrays are held in memory.

    Raises:
        DatasetError: It is missing, damaged, holds Python objects, or an array is missing.
    """
    arrays = {_NAMES.get(name, name): value for name, value in _load(path).items()}
    note = arrays.pop("robot_rl", None)
    own = DatasetSpec.from_note(None if note is None else str(note), path)
    single = next(iter(own.groups)) if own else "actor"
    obs, after = _grouped(arrays, _OBS, single), _grouped(arrays, _NEXT, single)
    needed = {name: name in arrays for name in ("actions", "rewards", "terminals")}
    for name, found in {_OBS: bool(obs), **needed}.items():
        if not found:
            raise DatasetError(f"{path} has no '{name}'; it has {', '.join(sorted(arrays))}")
    rows = len(arrays["actions"])
    wanted = {k: v for k, v in arrays.items() if k.startswith((_OBS, _NEXT)) or k in _ROWS}
    check_rows(str(path), wanted, rows, "'actions'")
    left = sorted(set(arrays) - set(wanted) - {"tasks", "task_index"})
    notes = [f"'{name}' is left out" for name in left]
    return Source(path, _episodes(path, arrays, obs, after), own=own, notes=notes)


def _episodes(
    path: Path, arrays: Mapping[str, Array], obs: dict[str, Array], after: dict[str, Array]
) -> Iterator[RawEpisode]:
    rows = len(arrays["actions"])
    terminals = arrays["terminals"].reshape(-1).astype(bool)
    timeouts = arrays.get("timeouts", np.zeros(rows)).reshape(-1).astype(bool)
    ends = terminals | timeouts
    if after and rows > 1:
        # Where a file does not say it, an episode ends where the next row does not follow.
        for name, value in obs.items():
            if name in after:
                ends[:-1] |= (value[1:] != after[name][:-1]).reshape(rows - 1, -1).any(axis=1)
    ends[-1:] = True
    start = 0
    for number, last in enumerate(np.flatnonzero(ends)):
        stop = int(last) + 1
        yield _episode(f"{path}, episode {number} (row {start})", arrays, obs, after, start, stop)
        start = stop


def _episode(
    where: str, arrays: Mapping[str, Array], obs: Mapping[str, Array], after: Mapping[str, Array],
    start: int, stop: int,
) -> RawEpisode:  # fmt: skip
    terminated = bool(arrays["terminals"].reshape(-1)[stop - 1])
    frames = {name: value[start:stop] for name, value in obs.items()}
    if set(obs) <= set(after):
        ends = {name: after[name][stop - 1 : stop] for name in obs}
        frames = {name: np.concatenate([value, ends[name]]) for name, value in frames.items()}
    else:
        frames = without_successor(frames, terminated)
    stop = start + len(next(iter(frames.values()))) - 1
    last = np.arange(start, stop) == stop - 1
    more = {name: arrays[name][start:stop] for name in _MORE if name in arrays}
    if "stamp_ns" in arrays:
        more["stamp_ns"] = np.append(
            arrays["stamp_ns"][start:stop], arrays["next_stamp_ns"][stop - 1]
        )
    named = "tasks" in arrays and stop > start
    return RawEpisode(
        where=where, frames=frames, action=arrays["actions"][start:stop],
        reward=arrays["rewards"][start:stop], terminated=last & terminated,
        truncated=last & (not terminated), more=more,
        task=str(arrays["tasks"][int(arrays["task_index"][start])]) if named else "",
    )  # fmt: skip


def write_arrays(path: Path, spec: DatasetSpec, episodes: Iterable[Episode]) -> int:
    """Write a file; the arrays are held in memory. Returns the number of episodes.

    Args:
        path: The file.
        spec: Of the episodes; a single group is `observations`.
        episodes: What to write.
    """
    if path.exists():
        raise DatasetError(f"{path} exists already; choose another name")
    told = list(episodes)
    tasks = list(dict.fromkeys(one.task for one in told))
    columns: dict[str, list[Array]] = {}
    for one in told:
        for name, value in _columns(one, tasks.index(one.task), len(spec.groups) == 1).items():
            columns.setdefault(name, []).append(value)
    arrays = {name: np.concatenate(parts) for name, parts in columns.items()}
    arrays |= {"tasks": np.array(tasks), "robot_rl": np.array(json.dumps(spec.to_dict()))}
    unfinished = path.with_name(f".new_{path.name}")
    with storage_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with unfinished.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
            unfinished.replace(path)
        finally:
            discard(unfinished)
    return len(told)


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


def _grouped(arrays: Mapping[str, Array], prefix: str, single: str) -> dict[str, Array]:
    """Arrays by group: `observations` is the only group, `observations.x` the group `x`."""
    return {
        name.removeprefix(prefix).removeprefix(".") or single: value
        for name, value in arrays.items()
        if name == prefix or name.startswith(f"{prefix}.")
    }


def _load(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise DatasetError(f"{path} holds a single array; expected a .npz file of several")
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise DatasetError(f"the file {path} is missing") from None
    except _DAMAGE as error:
        if isinstance(error, DatasetError):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if "allow_pickle" in reason:
            reason = "it holds Python objects, which would be executed; save plain arrays"
        raise DatasetError(f"the file {path} cannot be read as .npz: {reason}") from None


_DAMAGE = (
    OSError, ValueError, EOFError, LookupError, RuntimeError, MemoryError, zipfile.BadZipFile,
    zipfile.LargeZipFile, zlib.error,
)  # fmt: skip
"""What numpy and zipfile raise at damaged files; NotImplementedError is a RuntimeError."""
_ROWS = ("actions", "rewards", "terminals", "timeouts", "stamp_ns", "next_stamp_ns", *_MORE)
