"""What a race has measured, as it is kept in JSON: page and figure are made from it alone."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.core.errors import ConfigError
from robot_rl.training.storage.durable import replace_file, storage_errors


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
    """What the track is about, (T,)."""

    @property
    def area(self) -> float:
        """Mean of the value over the steps, straight lines between evaluations."""
        steps = np.asarray(self.steps, dtype=np.float64)
        if len(steps) < 2:
            return float(self.values[-1])
        return float(np.trapezoid(self.values, steps) / (steps[-1] - steps[0]))


@dataclass(frozen=True, kw_only=True)
class EntrantResult:
    """All seeds of a learner on a track."""

    command: str
    """What trains its first seed."""
    config_sha256: str
    """Of the configuration without seed, folder, logging and video."""
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
    """What made it."""
    overrides: list[str]
    """What was changed in every training; empty for the real race."""
    origin: dict[str, Any]
    """date, git, python, packages, processor, processors, load_average, jobs."""
    tracks: dict[str, dict[str, EntrantResult]]
    """By track and entrant, in the order of the page."""
    bars: list[dict[str, Any]] = field(default_factory=list)
    """For other programs; the page computes them anew."""


def save_race(path: Path, record: RaceRecord) -> None:
    """Write it as JSON, whole or not at all.

    Raises:
        StorageError: The file cannot be written.
    """
    with storage_errors("write the results", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, (json.dumps(asdict(record), indent=1) + "\n").encode())


def load_race(path: Path) -> RaceRecord:
    """Read what `save_race` wrote.

    Raises:
        ConfigError: There is no such file, or it is something else.
    """
    if not path.is_file():
        raise ConfigError(f"there are no results in {path}; run: python scripts/race.py")
    try:
        values = json.loads(path.read_bytes())
        tracks = {
            track: {name: _entrant(result) for name, result in entrants.items()}
            for track, entrants in values.pop("tracks").items()
        }
        return RaceRecord(tracks=tracks, **values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{path} does not hold results of this version: {error}") from error


def _entrant(values: Mapping[str, Any]) -> EntrantResult:
    return EntrantResult(**{**values, "seeds": [RaceSeed(**seed) for seed in values["seeds"]]})
