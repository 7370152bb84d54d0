"""Conversion of foreign data sets into ours, and of ours into theirs: `robot-rl data convert`."""

import argparse
from collections.abc import Mapping, Sequence
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


def convert(options: argparse.Namespace) -> None:
    """Convert what the command line says."""
    choices = ImportChoices(
        groups=_groups(options.group),
        control_dt=options.control_dt,
        action_range=_range(options.action_range),
        done=Done(options.done),
        task=options.task,
        robot=None if options.robot is None else _robot(options.robot),
    )
    target = _target(options.to, options.out)
    ours = holds_replay(options.dataset)
    if (ours or format_of(options.dataset) is Format.episodes) and choices != ImportChoices():
        raise DatasetError(
            f"{options.dataset} is ours, which says everything; --group, --control-dt, "
            "--action-range, --done, --task and --robot are for data of others"
        )
    if ours:
        from robot_rl.training.runs.replay_episodes import replay_episodes  # torch; data need none

        spec, episodes, told = *replay_episodes(options.dataset), None
    else:
        images = target is Format.episodes  # others have no word for videos
        spec, episodes, told = read_any(options.dataset, choices, images=images)
    if spec.images and target is not Format.episodes:
        print(f"note: the images of {', '.join(spec.images)} are left out")
    if spec.states and target is not Format.episodes:
        print(f"note: the simulation's states ({', '.join(spec.states)}) are left out")
    count = write_any(options.out, target, spec, episodes, options.name)
    for note in told.notes if told else []:
        print(f"note: {note}")
    if told and "actor" not in spec.groups:
        print(
            f"note: the observation groups are {', '.join(spec.groups)}; learners read 'actor' "
            "(and 'critic'): make it of them with --group actor=KEY,KEY"
        )
    groups = ", ".join(f"{name} {width}" for name, width in spec.groups.items())
    print(
        f"wrote {count} episodes to {options.out} ({target}): {groups}, action "
        f"{spec.action_size}, {spec.rate:g} Hz"
    )


def _target(asked: str | None, out: Path) -> Format:
    if asked is not None:
        return Format(asked)
    by_ending = {".npz": Format.npz, ".hdf5": Format.robomimic, ".h5": Format.robomimic}
    return by_ending.get(out.suffix, Format.episodes)


def _groups(lines: Sequence[str]) -> dict[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {}
    for line in lines:
        name, _, keys = line.partition("=")
        if not name or not keys or "" in keys.split(","):
            raise DatasetError(f"--group {line} was asked for; expected such as actor=state,goal")
        groups[name] = tuple(keys.split(","))
    return groups


def _range(ends: Sequence[float] | None) -> tuple[float, float] | None:
    if ends is None:
        return None
    low, high = ends
    if not low < high:
        raise DatasetError(f"--action-range {low:g} {high:g} was asked for; expected LOW < HIGH")
    return low, high


def _robot(name: str) -> Mapping[str, Any]:
    from configs.compose import compose

    config: Any = compose([f"robot={name}"]).config
    return config.robot.spec.identity()
