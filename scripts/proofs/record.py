"""What a proof has measured, as it is kept in JSON: from it alone the page can be written again."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from robot_rl.core.errors import ConfigError
from robot_rl.training.storage.durable import replace_file, storage_errors


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """One episode in each of many worlds."""

    episodes: int
    """N."""
    success: float
    """Share of the episodes that succeeded."""
    low: float
    """Lower end of its 95 % interval (Wilson)."""
    high: float
    """Upper end."""
    ended: float
    """Share of the episodes that the task ended before their time."""
    metrics: dict[str, dict[str, float | None]]
    """mean, median, p95 and max of each final metric; None where no episode has one."""

    def metric(self, name: str, statistic: str = "mean") -> float:
        """A statistic of a metric; NaN where no episode has one."""
        value = self.metrics[name][statistic]
        return float("nan") if value is None else value


@dataclass(frozen=True, kw_only=True)
class SeedResult:
    """One training run and how its best policy flew."""

    seed: int
    run: str
    """Name of the run's folder."""
    commit: str
    """Git commit that it was trained with; ends in + where the work tree had changes."""
    training_seconds: float
    """Wall time of training, evaluations and checkpoints included [s]."""
    world_steps: int
    """Steps of all worlds together."""
    learner_share: float | None
    """Share of the wall time that went into updates."""
    checkpoint_step: int
    """World-steps at the best checkpoint: the one that flew."""
    trials: dict[str, TrialResult]
    """By condition."""

    @property
    def steps_per_second(self) -> float:
        """World-steps of training per second of wall time."""
        return self.world_steps / self.training_seconds


@dataclass(frozen=True, kw_only=True)
class GroupResult:
    """Several seeds of the same training."""

    command: str
    """What trains its first seed."""
    config_sha256: str
    """Of the configuration without seed, folder, logging and video."""
    seeds: list[SeedResult]


@dataclass(frozen=True, kw_only=True)
class ProofRecord:
    """A whole proof."""

    name: str
    command: str
    """What made it."""
    overrides: list[str]
    """What was changed in every training; empty for the real proof."""
    origin: dict[str, Any]
    """date, git, python, packages, processor, processors, load_average, jobs."""
    groups: dict[str, GroupResult]
    """By name, in the order of the page."""
    expert: dict[str, TrialResult]
    """The controller with full knowledge, by condition; empty where it does not fly."""
    bars: list[dict[str, Any]] = field(default_factory=list)
    """For other programs; the page computes them anew."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A value and what it must reach."""

    what: str
    value: float
    limit: float
    at_least: bool = True
    """False where the value must not exceed the limit."""
    unit: str = ""
    """"%" shows shares as percentages."""

    @property
    def passed(self) -> bool:
        """Whether the value reaches the limit; NaN never does."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def save_record(path: Path, record: ProofRecord) -> None:
    """Write it as JSON, whole or not at all.

    Raises:
        StorageError: The file cannot be written.
    """
    with storage_errors("write the results", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, (json.dumps(asdict(record), indent=1) + "\n").encode())


def load_record(path: Path) -> ProofRecord:
    """Read what `save_record` wrote.

    Raises:
        ConfigError: There is no such file, or it is something else.
    """
    if not path.is_file():
        raise ConfigError(f"there are no results in {path}; run: python scripts/proof.py")
    try:
        values = json.loads(path.read_bytes())
        groups = {name: _group(group) for name, group in values.pop("groups").items()}
        return ProofRecord(groups=groups, expert=_trials(values.pop("expert")), **values)
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path} does not hold results of this version: {error}") from error


def _group(values: Mapping[str, Any]) -> GroupResult:
    seeds = [SeedResult(**{**seed, "trials": _trials(seed["trials"])}) for seed in values["seeds"]]
    return GroupResult(**{**values, "seeds": seeds})


def _trials(values: Mapping[str, Any]) -> dict[str, TrialResult]:
    return {name: TrialResult(**trial) for name, trial in values.items()}
