"""Contents of a data set, printed (`robot-rl data info`) and drawn (`robot-rl data plot`)."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.core.errors import ConfigError, DatasetError
from robot_rl.datasets.episode import Episode, Flags
from robot_rl.datasets.files.manifest import Manifest, faults, read_manifest, read_settled, strays
from robot_rl.datasets.foreign.assembly import Done, ImportChoices
from robot_rl.datasets.foreign.catalog import (
    Format,
    format_of,
    holds_replay,
    read_any,
    write_any,
)
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.training.runs.run_folder import RunFolder
from robot_rl.training.storage.durable import storage_errors

_MAX_LABELLED = 8
"""Of more lines than this, none is named."""


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
            f"go with: robot-rl data repair {folder}"
        )
    return not wrong


def _print_spec(folder: Path, manifest: Manifest) -> None:
    spec = manifest.spec
    seconds = manifest.num_steps * spec.control_dt
    size = sum(file.bytes for one in manifest.additions for file in one.files)
    cameras = (f"{name} {shape[1]}x{shape[0]}" for name, shape in spec.images.items())
    lines = {
        "data set": str(folder),
        "robot": "-" if spec.robot is None else f"{spec.robot['name']} {spec.robot['version']}",
        "groups": _widths(spec.groups),
        **({"images": ", ".join(cameras)} if spec.images else {}),
        **({"states": _widths(spec.states)} if spec.states else {}),
        "action": str(spec.action_size),
        "rewards": ", ".join(spec.reward_names) or "only their sum",
        "rate": f"{spec.rate:g} Hz",
        "episodes": f"{manifest.num_episodes:,}",
        "steps": f"{manifest.num_steps:,} ({seconds / 60:,.1f} min)",
        "size": f"{size / 1e6:,.1f} MB",
        "digest": manifest.digest[:12],
    }
    for word, text in lines.items():
        print(f"{word:<9} {text}")


def _print_contents(dataset: EpisodeDataset) -> None:
    """Read every episode once; none is kept."""
    total, tasks = Counter[str](), Counter[str]()
    returns: list[float] = []
    sources: dict[str, list[bool]] = {}
    for one in dataset:
        total["success"] += int(one.success[-1])
        total["terminated"] += int(one.terminated[-1])
        total["invalid"] += int((~one.valid).sum())
        total["intervened"] += int(one.intervened.sum())
        returns.append(float(one.reward.sum(dtype=np.float64)))
        tasks[one.task] += 1
        who = re.sub(r"/\d+$", "", one.source)  # without the number that `robot-rl collect` adds
        sources.setdefault(who, []).append(bool(one.success[-1]))
    if not returns:
        return
    steps, count = sum(dataset.lengths), len(dataset)
    print(f"lengths   {min(dataset.lengths)} to {max(dataset.lengths)} steps")
    print(f"returns   {min(returns):.4g} to {max(returns):.4g}, mean {np.mean(returns):.4g}")
    judged = dataset.spec.judges_success
    successes = f"{total['success']} of {count} episodes" if judged else "was not judged"
    print(f"success   {successes}")
    print(f"ends      {total['terminated']} terminated, {count - total['terminated']} truncated")
    print(f"people    chose {total['intervened'] / steps:.1%} of the actions")
    print(f"invalid   {total['invalid'] / steps:.1%} of the steps")
    for task, number in tasks.items():
        print(f"task      {number:>6} x {task or '(not said)'}")
    for source, ends in sources.items():
        succeeded = f", {sum(ends)} succeeded" if judged else ""
        print(f"source    {len(ends):>6} x {source or '(not said)'}{succeeded}")


def _widths(parts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {width}" for name, width in parts.items())


def draw(folder: Path, numbers: Sequence[int], out: Path) -> Path:
    """Draw episodes side by side: a row for every group, the actions and the rewards."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if out.suffix[1:] not in known:
        raise ConfigError(
            f"out={out}: a picture of kind '{out.suffix}' cannot be drawn; expected a name that "
            f"ends with one of {', '.join(f'.{one}' for one in known)}"
        )
    dataset = EpisodeDataset(folder, images=False)
    spec, told = dataset.spec, list(dataset.episodes(numbers))
    rows = [*spec.groups, "action", "reward"]
    figure, axes = plt.subplots(
        len(rows), len(told), figsize=(5 * len(told), 2.2 * len(rows)), squeeze=False,
        sharex="col", sharey="row", layout="constrained",
    )  # fmt: skip
    for column, (number, one) in enumerate(zip(numbers, told, strict=True)):
        axes[0, column].set_title(f"episode {number}: {_outcome(one)}")
        axes[-1, column].set_xlabel("time [s]")
        for row, name in enumerate(rows):
            lines, names = _lines(one, name, spec.reward_names)
            time = np.arange(len(lines)) * spec.control_dt
            drawn = axes[row, column].plot(time, lines, linewidth=0.8)
            axes[row, 0].set_ylabel(name)
            if column == 0 and 1 < len(names) <= _MAX_LABELLED:
                axes[row, column].legend(drawn, names, fontsize="x-small")
            _shade(axes[row, column], one.intervened, spec.control_dt)
    with storage_errors("draw", out):
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=110)
    plt.close(figure)
    return out


def _shade(axis: Any, intervened: Flags, control_dt: float) -> None:
    """Mark the steps in which a person chose the action."""
    edges = np.repeat(np.arange(len(intervened) + 1) * control_dt, 2)[1:-1]  # both of each step
    axis.fill_between(
        edges, 0, 1, where=np.repeat(intervened, 2), alpha=0.15, color="tab:red", linewidth=0,
        transform=axis.get_xaxis_transform(),
    )  # fmt: skip


def _outcome(one: Episode) -> str:
    end = "terminated" if one.terminated[-1] else "truncated"
    return f"{end}, success" if one.success[-1] else end


def _lines(one: Episode, name: str, terms: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Values (rows, lines) and the names of the lines."""
    if name in one.obs:
        values = one.obs[name]
    elif name == "action":
        values = one.action
    elif one.reward_terms is not None:
        return np.column_stack([one.reward, one.reward_terms]), ["reward", *terms]
    else:
        return one.reward[:, None], ["reward"]
    return values, [str(i) for i in range(values.shape[1])]


@dataclass(kw_only=True)
class ConvertOptions:
    """Options of `robot-rl data convert`."""

    to: Format | None = None
    """Format to write; None takes it from the ending of the file."""
    groups: dict[str, list[str]] = field(default_factory=dict)
    """Observation groups of ours, each of theirs side by side; empty makes a group of each."""
    control_dt: float | None = None
    """Time between two actions [s]."""
    action_range: list[float] = field(default_factory=list)
    """Values that -1 and 1 stand for in their actions."""
    done: Done = Done.terminated
    """Meaning of a done that says no more."""
    task: str = ""
    """Task, where the data do not say it."""
    robot: str = ""
    """Robot that the data are of, such as panda."""
    name: str = ""
    """Name of a Minari data set, such as arm/lift-v0."""
    only_successes: bool = False
    """Leave out episodes that did not succeed."""
    only_led: bool = False
    """Leave out episodes that no person led, and make steps that no person led invalid."""

    def __post_init__(self) -> None:
        ends = self.action_range
        if ends and not (len(ends) == 2 and ends[0] < ends[1] and all(map(math.isfinite, ends))):
            told = ",".join(f"{end:g}" for end in ends)
            raise DatasetError(f"action_range={told} was asked for; expected LOW,HIGH")
        if not all(self.groups.values()):
            raise DatasetError(
                "groups must name what they consist of, as 'groups={actor:[state,goal]}'"
            )


def convert(dataset: Path, out: Path, options: ConvertOptions) -> None:
    """Convert data of others or the experience of a run into ours, or ours into theirs."""
    choices = ImportChoices(
        groups={name: tuple(keys) for name, keys in options.groups.items()},
        control_dt=options.control_dt,
        action_range=(options.action_range[0], options.action_range[1])
        if options.action_range
        else None,
        done=options.done,
        task=options.task,
        robot=_robot(options.robot) if options.robot else None,
    )
    target = options.to or _format_by_ending(out)
    ours = holds_replay(dataset)
    if (ours or format_of(dataset) is Format.episodes) and choices != ImportChoices():
        raise DatasetError(
            f"{dataset} is ours, which says everything; groups, control_dt, "
            "action_range, done, task and robot are for data of others"
        )
    of_learn = (dataset / "config.yaml").is_file() and RunFolder.open(dataset).is_of_learn
    if of_learn:
        from robot_rl.cli.learning.episodes import learned_episodes  # the link, an extra

        spec, episodes, told = *learned_episodes(dataset), None
    elif ours:
        from robot_rl.training.runs.replay_episodes import replay_episodes  # torch; data need none

        spec, episodes, told = *replay_episodes(dataset), None
    else:
        images = target is Format.episodes  # others have no word for videos
        spec, episodes, told = read_any(dataset, choices, images=images)
    if spec.images and target is not Format.episodes:
        print(f"note: the images of {', '.join(spec.images)} are left out")
    if spec.states and target is not Format.episodes:
        print(f"note: the simulation's states ({', '.join(spec.states)}) are left out")
    if options.only_successes and not spec.judges_success:
        raise DatasetError(
            f"only_successes was asked for, but {dataset} does not say which episodes succeeded"
        )
    chooses = of_learn or options.only_successes or options.only_led
    read = steps = 0

    def counted() -> Iterator[Episode]:
        nonlocal read, steps
        for read, stored in enumerate(episodes, 1):  # noqa: B007 - the last number is what counts
            one = _chosen(stored, options) if chooses else stored
            if one is not None:
                steps += one.num_steps
                yield one
        if chooses and not steps:
            raise DatasetError(f"none of the {read} episodes of {dataset} is one that is wanted")

    count = write_any(out, target, spec, counted(), options.name)
    if count < read:
        print(f"note: {read - count} of {read} episodes are left out, as asked for or discarded")
    for note in told.notes if told else []:
        print(f"note: {note}")
    if told and "actor" not in spec.groups:
        print(
            f"note: the observation groups are {', '.join(spec.groups)}; learners read 'actor' "
            "(and 'critic'): make it of them with 'groups={actor:[KEY,KEY]}'"
        )
    groups = ", ".join(f"{name} {width}" for name, width in spec.groups.items())
    print(
        f"wrote {count} episodes to {out} ({target}): {groups}, action "
        f"{spec.action_size}, {spec.rate:g} Hz, {steps:,} steps"
    )


def _chosen(one: Episode, options: ConvertOptions) -> Episode | None:
    """The episode, as far as it is wanted; None where no step of it may be learned from."""
    if options.only_successes and not one.success[-1]:
        return None
    if options.only_led:
        one = replace(one, valid=one.valid & one.intervened)
    return one if one.valid.any() else None


def _format_by_ending(out: Path) -> Format:
    by_ending = {".npz": Format.npz, ".hdf5": Format.robomimic, ".h5": Format.robomimic}
    return by_ending.get(out.suffix, Format.episodes)


def _robot(name: str) -> Mapping[str, Any]:
    from configs.compose import compose

    config: Any = compose([f"robot={name}"]).config
    return config.robot.spec.identity()
