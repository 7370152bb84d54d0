"""Measurements of a race in JSON: page and figure are made from them alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scripts.proofs.pages.results import Trained, open_results


@dataclass(frozen=True, kw_only=True)
class RaceSeed:
    """One training."""

    seed: int
    commit: str
    """Git commit that it was trained with; ends in + where the work tree had changes."""
    seconds: float
    """Wall time, evaluations and checkpoints included [s]."""
    collect_share: float | None
    """Share of the wall time that went into steps of the worlds; None where nobody counted."""
    learn_share: float | None
    """Share that went into updates."""
    steps: list[int]
    """World-steps at each evaluation, (T,)."""
    times: list[float]
    """Wall time at each evaluation [s], (T,)."""
    values: list[float]
    """Description of the track, (T,)."""

    @property
    def area(self) -> float:
        """Mean of the value over the steps, straight lines between evaluations."""
        steps = np.asarray(self.steps, dtype=np.float64)
        if len(steps) < 2:
            return float(self.values[-1])
        return float(np.trapezoid(self.values, steps) / (steps[-1] - steps[0]))


@dataclass(frozen=True, kw_only=True)
class EntrantResult(Trained):
    """All seeds of a learner on a track."""

    seeds: list[RaceSeed]

    @property
    def areas(self) -> list[float]:
        """`RaceSeed.area` of every seed."""
        return [seed.area for seed in self.seeds]


@dataclass(frozen=True, kw_only=True)
class RaceRecord:
    """A whole race."""

    name: str
    command: str
    """Commits and versions that made it."""
    overrides: list[str]
    """Overrides of every training; empty for the real race."""
    origin: dict[str, Any]
    """date, git, python, packages, processor, processors, load_average, jobs."""
    tracks: dict[str, dict[str, EntrantResult]]
    """By track and entrant, in the order of the page."""
    bars: list[dict[str, Any]] = field(default_factory=list)
    """For other programs; the page computes them anew."""


def load_race(path: Path) -> RaceRecord:
    """Read what `save_results` wrote.

    Raises:
        ConfigError: There is no such file, or it is something else.
    """
    with open_results(path, "race") as values:
        tracks = {
            track: {name: _entrant(result) for name, result in entrants.items()}
            for track, entrants in values.pop("tracks").items()
        }
        return RaceRecord(tracks=tracks, **values)


def _entrant(values: Mapping[str, Any]) -> EntrantResult:
    return EntrantResult(**{**values, "seeds": [RaceSeed(**seed) for seed in values["seeds"]]})
