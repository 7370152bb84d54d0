"""Quality of a success classifier: threshold, precision, recall, calibration, with intervals.

Frames of an episode resemble each other, so that a plain interval over frames would promise too
much. Frame rates therefore have bootstrap intervals over whole episodes; episodes, which are
independent, have Wilson's.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.training.reporting.statistics import wilson_interval

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
LOWEST_THRESHOLD = 0.5
"""Thresholds are never lower: a success is more likely than not."""
_RESAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Precision and recall over all thresholds, from the highest to the lowest."""

    threshold: Floats
    """(K,): frames with at least this probability are called successes."""
    precision: Floats
    """(K,)."""
    recall: Floats
    """(K,)."""


def precision_curve(probability: NDArray[Any], label: Flags) -> Curve:
    """Precision and recall at every probability that occurs, (B,) both; B may be 0."""
    if not len(probability):
        return Curve(threshold=np.zeros(0), precision=np.zeros(0), recall=np.zeros(0))
    order = np.argsort(-np.asarray(probability, np.float64), kind="stable")
    score, hit = np.asarray(probability, np.float64)[order], np.asarray(label, bool)[order]
    last = np.append(np.flatnonzero(np.diff(score)), len(score) - 1)  # of equal probabilities
    found = np.cumsum(hit)[last]
    total = max(1, int(hit.sum()))
    return Curve(threshold=score[last], precision=found / (last + 1), recall=found / total)


def choose_threshold(curve: Curve, precision: float) -> tuple[float, bool]:
    """Lowest threshold of at least one half with this precision, and whether there is one.

    It lies half way to the next lower probability, which is not called a success. Without one, the
    threshold of the highest precision, of these the one that finds most.
    """
    usable = curve.threshold >= LOWEST_THRESHOLD
    if not usable.any():
        return LOWEST_THRESHOLD, False
    good = np.flatnonzero(usable & (curve.precision >= precision))
    if len(good):
        at = int(good[-1])
    else:
        best = curve.precision[usable].max()
        at = int(np.flatnonzero(usable & (curve.precision == best))[-1])
    below = curve.threshold[at + 1] if at + 1 < len(curve.threshold) else 0.0
    return max(LOWEST_THRESHOLD, float(curve.threshold[at] + below) / 2), bool(len(good))


@dataclass(frozen=True, kw_only=True)
class CalibrationBins:
    """Frames by probability, in bins of equal width that hold some."""

    probability: Floats
    """(K,), mean of the bin."""
    frequency: Floats
    """(K,), share of successes in the bin."""
    count: NDArray[np.int64]
    """(K,), frames."""

    @property
    def error(self) -> float:
        """Expected calibration error: mean distance of the two, by frames (Guo et al. 2017)."""
        return float(np.average(np.abs(self.probability - self.frequency), weights=self.count))


def calibration_bins(probability: NDArray[Any], label: Flags, bins: int = 15) -> CalibrationBins:
    """Group frames by their probability, (B,) both."""
    index = np.minimum((np.asarray(probability) * bins).astype(int), bins - 1)
    count = np.bincount(index, minlength=bins)
    held = count > 0
    return CalibrationBins(
        probability=np.bincount(index, probability, bins)[held] / count[held],
        frequency=np.bincount(index, np.asarray(label, np.float64), bins)[held] / count[held],
        count=count[held],
    )


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A share with its 95 % interval; NaN where there was nothing to count."""

    value: float
    low: float
    high: float

    def to_list(self) -> list[float | None]:
        """For JSON."""
        return [None if math.isnan(v) else round(v, 6) for v in (self.value, self.low, self.high)]

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "none to count"
        return f"{100 * self.value:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f})"


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """Decisions beside the truth."""

    true_positive: int
    false_positive: int
    false_negative: int
    true_negative: int
    precision: Rate
    """Share of what was called a success that is one."""
    recall: Rate
    """Share of the successes that were called so."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "true_positive": self.true_positive, "false_positive": self.false_positive,
            "false_negative": self.false_negative, "true_negative": self.true_negative,
            "precision": self.precision.to_list(), "recall": self.recall.to_list(),
        }  # fmt: skip


def frame_confusion(called: Flags, label: Flags, episode: NDArray[np.int64]) -> Confusion:
    """Decisions about frames, (B,) each; intervals by bootstrap over episodes."""
    _, index = np.unique(episode, return_inverse=True)
    pairs = (called & label, called & ~label, ~called & label, ~called & ~label)
    each = np.stack([np.bincount(index, pair, index.max() + 1) for pair in pairs])  # (4, episodes)
    draws = np.random.default_rng(0).integers(each.shape[1], size=(_RESAMPLES, each.shape[1]))
    drawn = each[:, draws].sum(-1)  # (4, resamples)
    hit, false, missed, _ = each.sum(-1).astype(int)
    return Confusion(
        true_positive=int(hit), false_positive=int(false), false_negative=int(missed),
        true_negative=int(each[3].sum()),
        precision=_bootstrapped(hit, false, drawn[0], drawn[1]),
        recall=_bootstrapped(hit, missed, drawn[0], drawn[2]),
    )  # fmt: skip


def episode_confusion(called: Flags, truth: Flags) -> Confusion:
    """Decisions about episodes, (M,) both; Wilson's intervals."""
    hit, false = int((called & truth).sum()), int((called & ~truth).sum())
    missed = int((~called & truth).sum())
    return Confusion(
        true_positive=hit, false_positive=false, false_negative=missed,
        true_negative=int((~called & ~truth).sum()),
        precision=_wilson(hit, hit + false), recall=_wilson(hit, hit + missed),
    )  # fmt: skip


def _bootstrapped(hit: int, other: int, hits: Floats, others: Floats) -> Rate:
    if hit + other == 0:
        return Rate(value=math.nan, low=math.nan, high=math.nan)
    drawn = hits / np.maximum(1, hits + others)
    low, high = np.percentile(drawn[hits + others > 0], [2.5, 97.5])
    return Rate(value=hit / (hit + other), low=float(low), high=float(high))


def _wilson(hit: int, count: int) -> Rate:
    if count == 0:
        return Rate(value=math.nan, low=math.nan, high=math.nan)
    low, high = wilson_interval(hit, count)
    return Rate(value=hit / count, low=low, high=high)
