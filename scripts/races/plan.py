"""Parts of a race: tracks, the learners that run on them, and bars."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.core.errors import ConfigError
from robot_rl.training.reporting.metrics import Record
from scripts.proofs.pages.results import Bar
from scripts.proofs.proving.plan import refuse_chosen
from scripts.proofs.proving.training import TrainingJob
from scripts.races.record import RaceRecord


@dataclass(frozen=True, kw_only=True)
class Track:
    """A task, and the value that its races are about."""

    name: str
    about: str
    """For the page, one or two sentences."""
    overrides: tuple[str, ...]
    """The task and how often it is evaluated, for everybody."""
    value: Callable[[Record], float]
    """Of the record of an evaluation; NaN where it has none."""
    what: str
    """Name of the value, with its unit."""
    goal: float = math.nan
    """Value whose first appearance is timed; NaN times nothing."""
    higher_is_better: bool = True

    def reached(self, value: float) -> bool:
        """True if a value is as good as the goal."""
        return value >= self.goal if self.higher_is_better else value <= self.goal


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A learner with its settings."""

    name: str
    about: str
    overrides: dict[str, tuple[str, ...]]
    """Its overrides by track; tracks that are not named are not run by it."""
    script: str = "train"
    """Trainer; see `TrainingJob`."""


@dataclass(frozen=True, kw_only=True)
class Race:
    """Ratios of the contenders' speeds."""

    name: str
    """Of the command and the files."""
    title: str
    about: str
    seeds: int
    tracks: tuple[Track, ...]
    entrants: tuple[Entrant, ...]
    bars: Callable[[RaceRecord], list[Bar]]
    findings: Callable[[RaceRecord], str] = lambda _: ""
    """Text of the page beside the bars, without a verdict."""

    def track(self, name: str) -> Track:
        """A track by its name."""
        return next(track for track in self.tracks if track.name == name)

    def entrant(self, name: str) -> Entrant:
        """An entrant by its name."""
        return next(entrant for entrant in self.entrants if entrant.name == name)

    def jobs(
        self, *, seeds: int, tracks: Sequence[str], overrides: Sequence[str], runs: Path
    ) -> dict[tuple[str, str], list[TrainingJob]]:
        """Trainings by track and entrant.

        Args:
            seeds: Number of seeds; 0 takes the race's own.
            tracks: Names of the tracks; none takes all of them.
            overrides: Changes to every training.
            runs: Folder of all runs.

        Raises:
            ConfigError: A track is unknown, or an override is wrong.
        """
        refuse_chosen(overrides, "a race")
        known = [track.name for track in self.tracks]
        for name in tracks:
            if name not in known:
                raise ConfigError(
                    f"the race {self.name} has no track '{name}'; known: {', '.join(known)}"
                )
        jobs = {
            (track.name, entrant.name): [
                TrainingJob(
                    label=f"{track.name}, {entrant.name}, seed {seed}",
                    overrides=(*track.overrides, *entrant.overrides[track.name], *overrides),
                    seed=seed,
                    runs=runs,
                    script=entrant.script,
                )
                for seed in range(seeds or self.seeds)
            ]
            for track in self.tracks
            if not tracks or track.name in tracks
            for entrant in self.entrants
            if track.name in entrant.overrides
        }
        for seeds_of_one in jobs.values():
            _ = seeds_of_one[0].config  # a mistake is told before anything is trained
        return jobs


def in_turns(jobs: Sequence[Sequence[TrainingJob]]) -> list[TrainingJob]:
    """First seeds of everybody, then second ones: who is raced against runs at the same time."""
    longest = max(map(len, jobs), default=0)
    return [seeds[turn] for turn in range(longest) for seeds in jobs if turn < len(seeds)]
