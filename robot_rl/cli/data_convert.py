"""Conversion of foreign data sets into ours, and of ours into theirs: `robot-rl data convert`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.foreign.assembly import Done, ImportChoices
from robot_rl.datasets.foreign.catalog import (
    Format,
    format_of,
    holds_replay,
    read_any,
    write_any,
)


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

    def __post_init__(self) -> None:
        """Refuse a range that is none."""
        ends = self.action_range
        if ends and not (len(ends) == 2 and ends[0] < ends[1]):
            told = ",".join(f"{end:g}" for end in ends)
            raise DatasetError(f"action_range={told} was asked for; expected LOW,HIGH")
        if not all(self.groups.values()):
            raise DatasetError(
                "groups must name what they consist of, as 'groups={actor:[state,goal]}'"
            )


def convert(dataset: Path, out: Path, options: ConvertOptions) -> None:
    """Convert data of others or the replay of a run into ours, or ours into theirs."""
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
    if ours:
        from robot_rl.training.runs.replay_episodes import replay_episodes  # torch; data need none

        spec, episodes, told = *replay_episodes(dataset), None
    else:
        images = target is Format.episodes  # others have no word for videos
        spec, episodes, told = read_any(dataset, choices, images=images)
    if spec.images and target is not Format.episodes:
        print(f"note: the images of {', '.join(spec.images)} are left out")
    if spec.states and target is not Format.episodes:
        print(f"note: the simulation's states ({', '.join(spec.states)}) are left out")
    count = write_any(out, target, spec, episodes, options.name)
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
        f"{spec.action_size}, {spec.rate:g} Hz"
    )


def _format_by_ending(out: Path) -> Format:
    by_ending = {".npz": Format.npz, ".hdf5": Format.robomimic, ".h5": Format.robomimic}
    return by_ending.get(out.suffix, Format.episodes)


def _robot(name: str) -> Mapping[str, Any]:
    from configs.compose import compose

    config: Any = compose([f"robot={name}"]).config
    return config.robot.spec.identity()
