"""New data sets out of old ones: merged, split, relabelled. The old ones stay as they are."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from robot_rl.core.errors import DatasetError, unknown_name
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.datasets.writer import write_new
from robot_rl.training.storage.durable import storage_errors


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Labels that replace those of episodes; None keeps the old one."""

    task: str | None = None
    """Task in words."""
    success: bool | None = None
    """True if they met the task's success rule at their end."""
    valid: bool | None = None
    """True if their steps may be learned from."""
    weights: Mapping[str, float] = field(default_factory=dict[str, float])
    """Reward term -> weight; the reward becomes their weighted sum. Terms that are not named count
    as 0; empty leaves the reward as it is."""


def merge(folders: Sequence[Path], out: Path) -> int:
    """Put the episodes of several data sets into a new one; returns how many.

    Raises:
        DatasetError: They hold different things; the message names both.
    """
    datasets = [EpisodeDataset(folder) for folder in folders]
    return write_new(out, joint_spec(datasets), (one for dataset in datasets for one in dataset))


def joint_spec(datasets: Sequence[EpisodeDataset]) -> DatasetSpec:
    """Spec of episodes out of all of them; tells a meaning where all do.

    Raises:
        DatasetError: They hold different things; the message names both.
    """
    first = datasets[0]
    told = next((one for one in datasets if one.spec.meaning), first)
    for other in datasets:
        for reference in (first, told):
            reference.spec.check_same(other.spec, str(reference.folder), str(other.folder))
    every = all(one.spec.meaning for one in datasets)
    return replace(first.spec, meaning=told.spec.meaning if every else {})


def split(folder: Path, out: Path, shares: Mapping[str, float], *, seed: int) -> dict[str, int]:
    """Divide whole episodes by chance in parts `out/<name>` of rounded shares; returns their sizes.

    Copies of an episode are in the same part.

    Raises:
        DatasetError: The shares are not of one whole, or leave a part empty.
    """
    dataset = EpisodeDataset(folder)
    for name in shares:
        if not re.fullmatch(r"[\w-]+", name):
            raise DatasetError(
                f"the part '{name}' names a folder: expected letters, digits, '_' and '-'"
            )
    if not (min(shares.values()) > 0 and abs(sum(shares.values()) - 1) <= 1e-6):
        told = " ".join(f"{name}={share:g}" for name, share in shares.items())
        raise DatasetError(
            f"the shares {told} do not add up to 1; expected such as train=0.9 val=0.1"
        )
    alike: dict[str, list[int]] = {}
    for number, digest in enumerate(dataset.episode_digests):
        alike.setdefault(digest, []).append(number)
    copies = list(alike.values())
    order = np.random.default_rng(seed).permutation(len(copies))
    sizes = np.cumsum([len(copies[i]) for i in order])
    ends = np.rint(np.cumsum(list(shares.values())) * len(dataset)).astype(int)
    drawn = np.split(order, np.searchsorted(sizes, ends[:-1], side="right"))
    parts = {
        name: sorted(number for i in part for number in copies[i])
        for name, part in zip(shares, drawn, strict=True)
    }
    for name, numbers in parts.items():
        if not numbers:
            told = f", {dataset.num_copies} of them copies of others" if dataset.num_copies else ""
            raise DatasetError(
                f"the part '{name}' would get none of the {len(dataset)} episodes of {folder}"
                f"{told}; choose a larger share"
            )
    return _write_parts(dataset, out, parts)


def split_by_task(folder: Path, out: Path) -> dict[str, int]:
    """Divide the episodes by their tasks in parts `task_0`, `task_1`, ...; returns their sizes."""
    dataset = EpisodeDataset(folder)
    parts: dict[str, list[int]] = {}
    tasks = dataset.manifest.tasks
    for number, task in enumerate(dataset.tasks):
        parts.setdefault(f"task_{tasks.index(task)}", []).append(number)
    if len(parts) < 2:
        raise DatasetError(f"{folder} has {len(parts)} tasks; expected two or more to divide by")
    return _write_parts(dataset, out, parts)


def relabel(folder: Path, out: Path, labels: Labels, numbers: Sequence[int] | None = None) -> int:
    """Write a data set anew with other labels of some episodes, None for all; returns how many.

    Raises:
        DatasetError: A reward term is unknown, or an episode is, or success would be judged of some
            episodes alone.
    """
    dataset = EpisodeDataset(folder)
    spec = dataset.spec
    for name in labels.weights:
        if name not in spec.reward_names:
            raise DatasetError(f"{folder}: {unknown_name('reward term', name, spec.reward_names)}")
    chosen = set(range(len(dataset)) if numbers is None else numbers)
    beyond = [number for number in chosen if not 0 <= number < len(dataset)]
    if beyond:
        raise DatasetError(
            f"episode {beyond[0]} of {folder} was asked for; it has {len(dataset)}, counted from 0"
        )
    if labels.success is not None:
        others = len(dataset) - len(chosen)
        if others and not spec.judges_success:
            raise DatasetError(
                f"success={str(labels.success).lower()} was asked for of {len(chosen)} of "
                f"{len(dataset)} episodes of {folder}, where nobody judged success: the {others} "
                "others would count as failures; name all of them without episodes=, and then "
                "those that ended otherwise in a second relabel"
            )
        spec = replace(spec, judges_success=True)

    def told() -> Iterator[Episode]:
        for number, one in enumerate(dataset):
            yield _labelled(one, labels, spec) if number in chosen else one

    return write_new(out, spec, told())


def parse_numbers(text: str) -> list[int]:
    """Episode numbers out of such as `0:10,15`; the number after a colon is not among them."""
    found: list[int] = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        try:
            found += range(int(first), int(last)) if colon else [int(first)]
        except ValueError:
            raise DatasetError(
                f"episodes '{text}' were asked for; expected such as 0:10,15"
            ) from None
    if not found:
        raise DatasetError(f"episodes '{text}' names none; expected such as 0:10,15")
    return found


def _write_parts(
    dataset: EpisodeDataset, out: Path, parts: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    taken = [name for name in parts if (out / name).exists()]
    if taken:
        raise DatasetError(f"{out / taken[0]} exists already; choose another folder")
    with storage_errors("write", out):
        out.mkdir(parents=True, exist_ok=True)
    return {
        name: write_new(out / name, dataset.spec, dataset.episodes(numbers))
        for name, numbers in parts.items()
    }


def _labelled(one: Episode, labels: Labels, spec: DatasetSpec) -> Episode:
    if labels.task is not None:
        one = replace(one, task=labels.task)
    if labels.success is not None:
        one = replace(
            one, success=np.arange(one.num_steps) == (one.num_steps - 1 if labels.success else -1)
        )
    if labels.valid is not None:
        one = replace(one, valid=np.full(one.num_steps, labels.valid))
    if labels.weights and one.reward_terms is not None:
        weights = np.array([labels.weights.get(name, 0.0) for name in spec.reward_names])
        one = replace(one, reward=(one.reward_terms @ weights).astype(np.float32))
    return one
