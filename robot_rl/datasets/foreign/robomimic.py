"""robomimic HDF5 files (https://robomimic.github.io, "Dataset Contents and Visualization").

`data/demo_<i>` with `obs/<key>`, `next_obs/<key>`, `actions`, `rewards`, `dones`, T rows each.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.foreign.assembly import (
    DIGEST,
    Array,
    ImportChoices,
    RawEpisode,
    Source,
    check_rows,
    check_told,
    cut_at_done,
    note_behind_done,
    note_done,
    note_dropped,
    vectors,
    without_successor,
)
from robot_rl.datasets.foreign.hdf5 import Hdf5File, Hdf5Writer
from robot_rl.datasets.spec import FLAGS, DatasetSpec

_OWN_FIELDS = ("reward_terms", *FLAGS, "policy_version", "stamp_ns")
"""Fields of our own exports beside those that robomimic reads."""


def read_robomimic(path: Path, choices: ImportChoices) -> Source:
    """Read a file."""
    file = Hdf5File(path)
    if not file.groups("data"):
        raise DatasetError(f"{path} has no 'data/demo_0'; expected a file of robomimic")
    about = file.attributes("data")
    own = DatasetSpec.from_note(about.get("robot_rl"), file.path)
    count = about.get("robot_rl_episodes")
    source = Source(path, own=own, control_dt=_control_dt(about), count=count)
    source.raw = _episodes(file, source, choices)
    return source


def _episodes(file: Hdf5File, source: Source, choices: ImportChoices) -> Iterator[RawEpisode]:
    names = [name for name in file.groups("data") if re.fullmatch(r"demo_\d+", name)]
    with file:
        for name in sorted(names, key=lambda one: int(one.partition("_")[2])):
            yield _demonstration(file, name, source, choices)


def _demonstration(file: Hdf5File, name: str, source: Source, choices: ImportChoices) -> RawEpisode:
    where, group = f"{file.path}, {name}", f"data/{name}"
    action = file.array(f"{group}/actions", where)
    rows = len(action)
    about = file.attributes(group)
    check_told(where, about.get("num_samples"), rows)
    obs = vectors(file.arrays(f"{group}/obs"), source)
    if not obs:
        raise DatasetError(f"{where} has no vectors in 'obs'; expected arrays (steps, width)")
    after = vectors(file.arrays(f"{group}/next_obs"), source)
    arrays = {
        key: file.array(f"{group}/{key}", where)
        for key in ("rewards", "dones", *_OWN_FIELDS)
        if key in ("rewards", "dones") or file.has(f"{group}/{key}")
    }
    stamps = arrays.pop("stamp_ns", None)
    named = {f"obs/{k}": v for k, v in obs.items()} | {f"next_obs/{k}": v for k, v in after.items()}
    check_rows(where, arrays | named, rows, "the actions")
    if "terminated" in arrays:
        steps, terminated, truncated = rows, arrays["terminated"], arrays["truncated"]
    else:
        steps, terminated, truncated = cut_at_done(arrays["dones"], choices.done)
        note_done(source, "dones", choices.done)
        note_behind_done(source, arrays["rewards"], steps)
    obs = {key: value[:steps] for key, value in obs.items()}
    frames = _followed(
        obs, {k: v[:steps] for k, v in after.items()}, bool(terminated[-1:].any()), where
    )
    acted, steps = steps, len(next(iter(frames.values()))) - 1
    note_dropped(source.notes, arrays["rewards"][steps:acted])
    more = {key: value[:steps] for key, value in arrays.items() if key in _OWN_FIELDS}
    if stamps is not None:
        more["stamp_ns"] = stamps
    return RawEpisode(
        where=where, frames=frames, action=action[:steps], reward=arrays["rewards"][:steps],
        terminated=terminated[:steps], truncated=truncated[:steps],
        more={k: v for k, v in more.items() if k not in ("terminated", "truncated")},
        task=about.get("task", ""), digest=about.get(DIGEST, ""),
    )  # fmt: skip


def _followed(
    obs: dict[str, Array], after: dict[str, Array], terminated: bool, where: str
) -> dict[str, Array]:
    """Frames out of observations and their successors."""
    if not after:
        return without_successor(obs, terminated)
    if set(obs) != set(after):
        raise DatasetError(
            f"{where}: 'obs' has {sorted(obs)} and 'next_obs' {sorted(after)}; expected the same"
        )
    for key, value in obs.items():
        apart = (value[1:] != after[key][:-1]).any(axis=tuple(range(1, value.ndim)))
        if apart.any():
            step = int(np.argmax(apart)) + 1
            raise DatasetError(
                f"{where}, step {step}: 'obs/{key}' is not the 'next_obs/{key}' of the step "
                "before; expected steps that follow each other"
            )
    return {key: np.concatenate([value, after[key][-1:]]) for key, value in obs.items()}


def _control_dt(about: dict[str, Any]) -> float | None:
    try:
        frequency = float(json.loads(about["env_args"])["env_kwargs"]["control_freq"])
        return 1 / frequency
    except (KeyError, ValueError, TypeError, ZeroDivisionError):
        return None


def write_robomimic(path: Path, spec: DatasetSpec, episodes: Iterable[Episode]) -> int:
    """Write a file that robomimic reads; returns the number of episodes."""
    count = total = 0
    with Hdf5Writer(path) as file:
        for number, one in enumerate(episodes):
            group = f"data/demo_{number}"
            about = {"num_samples": one.num_steps, "task": one.task, DIGEST: one.digest()}
            file.note(group, about)
            file.write_all(f"{group}/obs", {k: value[:-1] for k, value in one.obs.items()})
            file.write_all(f"{group}/next_obs", {k: value[1:] for k, value in one.obs.items()})
            done = (one.terminated | one.truncated).astype(np.int64)
            own = {key: getattr(one, key) for key in _OWN_FIELDS}
            file.write_all(
                group, {"actions": one.action, "rewards": one.reward, "dones": done, **own}
            )
            count, total = number + 1, total + one.num_steps
        env = {"env_name": "robot_rl", "type": 2, "env_kwargs": {"control_freq": spec.rate}}
        about = {"total": total, "env_args": json.dumps(env), "robot_rl_episodes": count}
        file.note("data", {**about, "robot_rl": json.dumps(spec.to_dict())})
    return count
