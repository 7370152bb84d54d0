"""The saved replay of a run as episodes: to keep, to look at, to hand on to other programs.

A replay holds steps of N envs. Each env is cut where an episode ended, where a row is invalid
or does not follow the one before, and where the replay begins and ends; the last two count as
truncations. Whether an episode succeeded is not kept in a replay.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from robot_rl.buffers.saved_rows import Segments, read_steps
from robot_rl.core.errors import ConfigError
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.training.prior import read_saved

Parts = dict[str, NDArray[np.float32]]


def replay_episodes(path: Path) -> tuple[DatasetSpec, Iterator[Episode]]:
    """Read the replay that a run saved last; that of one process at a time is held in memory.

    Raises:
        ConfigError: The run has no replay, or did not save it, or it holds nothing.
        CheckpointError: It is damaged.
    """
    saved, segments = read_saved(path)
    if int(saved[0]["total_steps"]) < 1:
        raise ConfigError(f"{path} holds no transitions yet; let the run go on, or name another")
    about = saved[0]["rows"]
    widths = {name: int(width) for name, width in about["columns"]}
    spec = DatasetSpec(
        groups={n.partition("/")[2]: w for n, w in widths.items() if n.startswith("obs/")},
        action_size=widths["action"], control_dt=float(about["control_dt"]),
        reward_names=tuple(about["reward_names"]), robot=about["robot"], judges_success=False,
        meaning=about.get("meaning", {}),
    )  # fmt: skip
    return spec, (
        episode for one in saved for episode in _episodes(one, segments, widths, spec)
    )


def _episodes(
    saved: Mapping[str, Any], segments: Segments, widths: Mapping[str, int], spec: DatasetSpec
) -> Iterator[Episode]:
    """Of one process that trained the run."""
    total, (steps, envs, width) = int(saved["total_steps"]), saved["shape"]
    held = min(total, steps)
    rows = torch.empty(envs, held, width)
    stamps = torch.zeros(held, 2, dtype=torch.int64)
    for step, one in read_steps(saved["entries"], segments):
        if step >= total - held:
            rows[:, step - (total - held)] = one
            if "stamps" in saved:
                stamps[step - (total - held)] = saved["stamps"][step % steps]
    weights = saved.get("weights", torch.ones(max(1, len(spec.reward_names)))).numpy()
    for env_rows in rows:
        split = env_rows.split(list(widths.values()), dim=-1)
        parts = {name: one.numpy() for name, one in zip(widths, split, strict=True)}
        valid = parts["valid"][:, 0] > 0
        starts = np.flatnonzero(valid & ~np.insert(_goes_on(parts, spec), 0, False))
        ends = np.flatnonzero(valid & ~np.append(_goes_on(parts, spec), False)) + 1
        for start, stop in zip(starts, ends, strict=True):
            yield _episode(parts, slice(int(start), int(stop)), weights, stamps.numpy(), spec)


def _goes_on(parts: Parts, spec: DatasetSpec) -> NDArray[np.bool_]:
    """True where row t + 1 goes on where row t ended, (T - 1,)."""
    going = (parts["terminated"] + parts["truncated"])[:-1, 0] == 0
    going &= (parts["valid"][:-1, 0] > 0) & (parts["valid"][1:, 0] > 0)
    for name in spec.groups:
        going &= (parts[f"next_obs/{name}"][:-1] == parts[f"obs/{name}"][1:]).all(axis=1)
    return going


def _episode(
    parts: Parts,
    part: slice,
    weights: NDArray[np.float32],
    stamps: NDArray[np.int64],
    spec: DatasetSpec,
) -> Episode:
    own: dict[str, Any] = {name: value[part] for name, value in parts.items()}
    steps = len(own["action"])
    last = np.arange(steps) == steps - 1
    terminated = own["terminated"][:, 0] > 0
    none = np.zeros(steps, bool)
    return Episode(
        obs={
            name: np.concatenate([own[f"obs/{name}"], own[f"next_obs/{name}"][-1:]])
            for name in spec.groups
        },
        action=own["action"].copy(),
        reward=(own["reward"] @ weights).astype(np.float32),
        reward_terms=own["reward"].copy() if spec.reward_names else None,
        terminated=terminated,
        truncated=last & ~terminated,
        success=none,
        valid=~none,
        intervened=own["intervened"][:, 0] > 0,
        policy_version=stamps[part, 1].copy(),
        stamp_ns=np.append(stamps[part, 0], stamps[part, 0][-1:]),
    )
