"""Minari data sets in HDF5 (https://minari.farama.org, "Dataset Standards").

A folder with `data/main_data.hdf5` and `data/metadata.json`: per episode T + 1 observations, T
actions, rewards, terminations and truncations. Observations may be a tree of named arrays.
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
    RawEpisode,
    Source,
    check_told,
    vectors,
)
from robot_rl.datasets.foreign.hdf5 import Hdf5File, Hdf5Writer
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.training.storage.durable import replace_json

_MAIN, _METADATA = "main_data.hdf5", "metadata.json"
_MINARI_VERSION = "0.5.4"
"""Version of Minari whose layout is written."""
_OWN_GROUP = "infos/robot_rl"
"""Group for fields that Minari has no place for."""
_OWN_FIELDS = ("reward_terms", "success", "valid", "intervened", "policy_version", "stamp_ns")


def is_minari(path: Path) -> bool:
    """True for a folder or file of Minari."""
    return (path / "data" / _MAIN).is_file() or (path / _MAIN).is_file() or path.name == _MAIN


def read_minari(path: Path) -> Source:
    """Read a data set: its folder, the folder `data` in it, or the file itself."""
    candidates = [path / "data" / _MAIN, path / _MAIN, path]
    file = Hdf5File(next(one for one in candidates if one.is_file()))
    about = file.attributes()
    own = DatasetSpec.from_note(about.get("robot_rl"), file.path)
    told = _count(file.path)
    source = Source(file.path, own=own, count=about.get("robot_rl_episodes", told))
    source.raw = _episodes(file, source)
    return source


def _episodes(file: Hdf5File, source: Source) -> Iterator[RawEpisode]:
    names = [name for name in file.groups() if re.fullmatch(r"episode_\d+", name)]
    if not names:
        raise DatasetError(f"{file.path} has no group 'episode_0'; expected a file of Minari")
    with file:
        for name in sorted(names, key=lambda one: int(one.partition("_")[2])):
            where = f"{file.path}, {name}"
            frames = vectors(file.arrays(f"{name}/observations"), source)
            if not frames:
                raise DatasetError(
                    f"{where} has no vectors in 'observations'; expected arrays (steps, width)"
                )
            action, about = file.array(f"{name}/actions", where), file.attributes(name)
            check_told(where, about.get("total_steps"), len(action))
            more = {
                k: v for k, v in file.arrays(f"{name}/{_OWN_GROUP}").items() if k in _OWN_FIELDS
            }
            if not more and file.has(f"{name}/infos") and not source.notes:
                source.notes.append("the infos of the episodes are left out")
            yield RawEpisode(
                where=where,
                frames={key or "actor": value for key, value in frames.items()},
                action=action,
                reward=file.array(f"{name}/rewards", where),
                terminated=file.array(f"{name}/terminations", where),
                truncated=file.array(f"{name}/truncations", where),
                more=more,
                task=about.get("task", ""),
                digest=about.get(DIGEST, ""),
            )


def _count(main: Path) -> int | None:
    """Episodes as the metadata tell it; None where these are missing, or do not say it."""
    path = main.with_name(_METADATA)
    try:
        told = json.loads(path.read_bytes()).get("total_episodes")
        return None if told is None else int(told)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DatasetError(f"the file {path} cannot be read as JSON: {error}") from None


def write_minari(path: Path, spec: DatasetSpec, episodes: Iterable[Episode], name: str) -> int:
    """Write a data set that Minari loads, such as `hover-v0`; returns the number of episodes."""
    count = steps = 0
    with Hdf5Writer(path / "data" / _MAIN) as file:
        file.note("/", {"robot_rl": json.dumps(spec.to_dict())})
        for number, one in enumerate(episodes):
            group = f"episode_{number}"
            about = {"id": number, "total_steps": one.num_steps, "task": one.task,
                     DIGEST: one.digest()}  # fmt: skip
            file.note(group, about)
            file.write_all(f"{group}/observations", one.obs)
            file.write_all(group, {
                "actions": one.action, "rewards": one.reward,
                "terminations": one.terminated, "truncations": one.truncated,
            })  # fmt: skip
            own = {key: getattr(one, key) for key in _OWN_FIELDS}
            file.write_all(f"{group}/{_OWN_GROUP}", own)
            count, steps = number + 1, steps + one.num_steps
        file.note("/", {"robot_rl_episodes": count})
    spaces = {key: _box(width, -np.inf, np.inf) for key, width in sorted(spec.groups.items())}
    metadata = {
        "dataset_id": name if re.search(r"-v\d+$", name) else f"{name}-v0",
        "minari_version": _MINARI_VERSION,
        "data_format": "hdf5",
        "total_episodes": count,
        "total_steps": steps,
        "observation_space": json.dumps({"type": "Dict", "subspaces": spaces}),
        "action_space": json.dumps(_box(spec.action_size, -1.0, 1.0)),
    }
    replace_json(path / "data" / _METADATA, metadata)
    return count


def _box(width: int, low: float, high: float) -> dict[str, Any]:
    return {"type": "Box", "dtype": "float32", "shape": [width], "low": [low] * width,
            "high": [high] * width}  # fmt: skip
