"""What a data set holds: `data.py info`."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.files.manifest import Manifest, faults, read_manifest, read_settled, strays
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.datasets.spec import DatasetSpec


def show(folder: Path) -> bool:
    """Print what a data set holds; returns whether it is whole."""
    try:
        manifest = read_settled(folder)
    except DatasetError:
        manifest = read_manifest(folder)  # of what cannot be read at all, this tells
    wrong = list(faults(folder, manifest))
    _print_spec(folder, manifest)
    if not wrong:
        _print_contents(EpisodeDataset(folder, images=False))
    for sentence in wrong:
        print(f"damaged   {sentence}")
    left = strays(folder, manifest)
    if left or manifest.torn:
        print(
            f"left over {len(left)} files of a write that did not end; they are not counted, and "
            f"go with: python scripts/data.py repair {folder}"
        )
    return not wrong


def _print_spec(folder: Path, manifest: Manifest) -> None:
    spec = manifest.spec
    frames = manifest.num_steps * spec.control_dt
    lines = {
        "data set": str(folder),
        "robot": "-" if spec.robot is None else f"{spec.robot['name']} {spec.robot['version']}",
        "groups": _widths(spec.groups),
        **({"images": _cameras(spec)} if spec.images else {}),
        **({"states": _widths(spec.states)} if spec.states else {}),
        "action": str(spec.action_size),
        "rewards": ", ".join(spec.reward_names) or "only their sum",
        "rate": f"{spec.rate:g} Hz",
        "episodes": f"{manifest.num_episodes:,}",
        "steps": f"{manifest.num_steps:,} ({frames / 60:,.1f} min)",
        "size": f"{_size(manifest) / 1e6:,.1f} MB",
        "digest": manifest.digest[:12],
    }
    for word, text in lines.items():
        print(f"{word:<9} {text}")


def _print_contents(dataset: EpisodeDataset) -> None:
    """Read every episode once; none is kept."""
    total: dict[str, int] = {}
    returns: list[float] = []
    tasks: dict[str, int] = {}
    sources: dict[str, list[bool]] = {}
    for one in dataset:
        for name, count in _counts(one).items():
            total[name] = total.get(name, 0) + count
        returns.append(float(one.reward.sum(dtype=np.float64)))
        tasks[one.task] = tasks.get(one.task, 0) + 1
        sources.setdefault(_who(one.source), []).append(bool(one.success[-1]))
    if not returns:
        return
    steps, count = sum(dataset.lengths), len(dataset)
    print(f"lengths   {min(dataset.lengths)} to {max(dataset.lengths)} steps")
    print(f"returns   {min(returns):.4g} to {max(returns):.4g}, mean {np.mean(returns):.4g}")
    print(f"success   {_success(dataset.spec, total['success'], count)}")
    print(f"ends      {total['terminated']} terminated, {count - total['terminated']} truncated")
    print(f"people    chose {total['intervened'] / steps:.1%} of the actions")
    print(f"invalid   {total['invalid'] / steps:.1%} of the steps")
    for task, number in tasks.items():
        print(f"task      {number:>6} x {task or '(not said)'}")
    for source, ends in sources.items():
        succeeded = f", {sum(ends)} succeeded" if dataset.spec.judges_success else ""
        print(f"source    {len(ends):>6} x {source or '(not said)'}{succeeded}")


def _who(source: str) -> str:
    """Who acted, without the number of the episode that `collect.py` puts behind it."""
    return re.sub(r"/\d+$", "", source)


def _counts(one: Episode) -> dict[str, int]:
    return {
        "success": int(one.success[-1]),
        "terminated": int(one.terminated[-1]),
        "invalid": int((~one.valid).sum()),
        "intervened": int(one.intervened.sum()),
    }


def _widths(parts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {width}" for name, width in parts.items())


def _cameras(spec: DatasetSpec) -> str:
    return ", ".join(f"{name} {shape[1]}x{shape[0]}" for name, shape in spec.images.items())


def _success(spec: DatasetSpec, successes: int, count: int) -> str:
    return f"{successes} of {count} episodes" if spec.judges_success else "was not judged"


def _size(manifest: Manifest) -> int:
    return sum(file.bytes for one in manifest.additions for file in one.files)
