"""Measurements of a proof in JSON: from them alone the page can be written again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.proofs.pages.results import Trained, open_results


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
    evaluations: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """Step and value of the proof's curve, in order; none in results of older versions."""
    more_evaluations: dict[str, list[tuple[float, float]]] = field(
        default_factory=dict[str, list[tuple[float, float]]]
    )
    """The same of the proof's other metrics."""

    @property
    def steps_per_second(self) -> float:
        """World-steps of training per second of wall time."""
        return self.world_steps / self.training_seconds


@dataclass(frozen=True, kw_only=True)
class GroupResult(Trained):
    """Several seeds of the same training."""

    seeds: list[SeedResult]


@dataclass(frozen=True, kw_only=True)
class ProofRecord:
    """A whole proof."""

    name: str
    command: str
    """Commits and versions that made it."""
    overrides: list[str]
    """Overrides of every training; empty for the real proof."""
    origin: dict[str, Any]
    """date, git, python, packages, processor, processors, load_average, jobs."""
    groups: dict[str, GroupResult]
    """By name, in the order of the page."""
    expert: dict[str, TrialResult]
    """The controller that was not learned, by condition; empty where none flies."""
    bars: list[dict[str, Any]] = field(default_factory=list)
    """For other programs; the page computes them anew."""


def load_record(path: Path) -> ProofRecord:
    """Read what `save_results` wrote.

    Raises:
        ConfigError: There is no such file, or it is something else.
    """
    with open_results(path, "proof") as values:
        groups = {name: _group(group) for name, group in values.pop("groups").items()}
        return ProofRecord(groups=groups, expert=_trials(values.pop("expert")), **values)


def _group(values: Mapping[str, Any]) -> GroupResult:
    seeds = [SeedResult(**{**seed, "trials": _trials(seed["trials"])}) for seed in values["seeds"]]
    return GroupResult(**{**values, "seeds": seeds})


def _trials(values: Mapping[str, Any]) -> dict[str, TrialResult]:
    return {name: TrialResult(**trial) for name, trial in values.items()}
