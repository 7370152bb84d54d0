"""Statistics over seeds and episodes that say how sure a number is.

The interquartile mean (IQM) with bootstrap intervals follows Agarwal et al. 2021, "Deep
Reinforcement Learning at the Edge of the Statistical Precipice", sections 4.1 and 4.3.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.transition import Batch

_LEVEL = 0.95
"""Coverage of the intervals."""


def iqm(values: ArrayLike, axis: int = 0) -> NDArray[np.float64]:
    """Mean of the middle half of the values along `axis`; the plain mean for fewer than four."""
    rows = np.moveaxis(np.asarray(values, dtype=np.float64), axis, 0)
    cut = len(rows) // 4
    parted = np.partition(rows, (cut, len(rows) - cut - 1), axis=0)
    return np.asarray(parted[cut : len(rows) - cut].mean(axis=0))


def bootstrap_interval(
    values: ArrayLike, *, resamples: int = 2000, center: Callable[..., Any] = iqm
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
    """95 % percentile bootstrap interval of the IQM over seeds, or of another centre.

    Args:
        values: (S,) or (S, T), one row per seed; whole rows are drawn, so a curve stays a curve.

    Returns:
        Lower and upper end, () or (T,). Both equal the value where there is one seed only: that
        is no interval, and callers should say so.
    """
    rows = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(0).integers(len(rows), size=(resamples, len(rows)))
    tail = 100 * (1 - _LEVEL) / 2
    low, high = np.percentile(center(rows[draws], axis=1), [tail, 100 - tail], axis=0)
    return np.asarray(low), np.asarray(high)


def wilson_interval(
    successes: int, trials: int, deviations: float | None = None
) -> tuple[float, float]:
    """Interval of a success rate (Wilson 1927); sound for few trials, at 0 and 1.

    Args:
        deviations: Half its width in standard errors; None for the interval of 95 %.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"{successes} successes in {trials} trials is impossible")
    z = NormalDist().inv_cdf(0.5 + _LEVEL / 2) if deviations is None else deviations
    rate = successes / trials
    spread = 1 + z**2 / trials
    centre = (rate + z**2 / (2 * trials)) / spread
    half = z / spread * math.sqrt(rate * (1 - rate) / trials + (z / (2 * trials)) ** 2)
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == trials else min(1.0, centre + half)
    return low, high


def mean_interval(values: ArrayLike) -> tuple[float, float]:
    """95 % interval of the mean of independent values, (N,), Student's; endless for one alone."""
    found = np.asarray(values, dtype=np.float64)
    mean, count = float(found.mean()), len(found)
    if count < 2:
        return -math.inf, math.inf
    half = _student(count - 1) * float(found.std(ddof=1)) / math.sqrt(count)
    return mean - half, mean + half


def _student(freedom: int) -> float:
    """Quantile of Student's t at 97.5 %.

    Tabled up to 4 degrees of freedom; beyond by the expansion of Cornish and Fisher (Abramowitz and
    Stegun 26.7.5), which is 3e-3 off at 5 and less from there on.
    """
    exact = {1: 12.706205, 2: 4.302653, 3: 3.182446, 4: 2.776445}
    if freedom in exact:
        return exact[freedom]
    z, n = NormalDist().inv_cdf(0.5 + _LEVEL / 2), freedom
    terms = (
        (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )  # fmt: skip
    return z + sum(term / n**power for power, term in enumerate(terms, 1))


def permutation_test(first: ArrayLike, second: ArrayLike) -> float:
    """Two-sided p-value of the difference of two means, exact: for a few values, (S,) and (T,).

    It is the share of all splits of the S + T values into S and T whose means lie at least as far
    apart: 252 splits for five and five. 0 where a value is NaN.
    """
    first, second = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    values = np.concatenate([first, second])
    chosen = np.array(list(combinations(range(len(values)), len(first))))  # the first: as given
    sums = values[chosen].sum(axis=1)
    differences = np.abs(sums / len(first) - (values.sum() - sums) / len(second))
    rounding = 1e-12 * np.abs(values).max()
    return float(np.mean(differences >= differences[0] - rounding))


def detectable_difference(
    first: ArrayLike, second: ArrayLike, *, level: float = 0.05
) -> tuple[float, float]:
    """Smallest difference of two means that `permutation_test` would find, given their spread.

    Args:
        first: (S,).
        second: (T,).
        level: p-value that a found difference lies below, in either direction.

    Returns:
        The difference in pooled standard deviations, to 0.01, and in the unit of the values; both
        NaN where no difference of up to ten standard deviations is found.
    """
    first, second = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    around, other = first - first.mean(), second - second.mean()
    pooled = math.sqrt(
        (np.square(around).sum() + np.square(other).sum()) / (len(first) + len(second) - 2)
    )
    for size in np.arange(0.01, 10, 0.01):
        shifts = (size * pooled, -size * pooled)
        if all(permutation_test(around + shift, other) < level for shift in shifts):
            return float(size), float(size * pooled)
    return math.nan, math.nan


_ROWS = 4096
"""Judged at once."""


@dataclass(frozen=True, kw_only=True)
class EpisodePart:
    """Rows that lie in a part of their episodes."""

    begin: float
    """Share of the episode at which it begins."""
    end: float
    """Share at which it ends."""
    rows: int
    returned: float
    """Mean discounted return that was reached."""
    stored: float
    """Mean value of stored actions."""
    policy: float
    """Mean value of the policy's actions."""
    disagreement: float
    """Mean standard deviation over the critics; 0 of a single one."""
    correlation: float
    """Of stored actions' values and returns; NaN where either does not vary."""


def calibrate(
    replay: ReplayBuffer, value: Callable[[Batch], tuple[Tensor, Tensor]], *, parts: int = 4
) -> list[EpisodePart]:
    """Compare values with returns, part by part of the episodes.

    Args:
        replay: Stored steps; rows whose return is not known are left out.
        value: Values of stored actions, (E, B), and of the policy's, (B,), of a batch.
        parts: Equally long parts that every episode is cut into.
    """
    told = replay.trajectories()
    returned = told.returns(replay.gamma).flatten()
    share = _progress(told.numbers()).flatten()
    batch = replay.strided_sample(len(replay))  # all of them, in the same order
    found = [value(batch.take(at, at + _ROWS)) for at in range(0, len(replay), _ROWS)]
    stored = torch.cat([one for one, _ in found], dim=1)  # (E, B)
    policy = torch.cat([other for _, other in found])
    answers: list[EpisodePart] = []
    for number in range(parts):
        begin, end = number / parts, (number + 1) / parts
        chosen = (share >= begin) & (share < end) & returned.isfinite()
        if not bool(chosen.any()):
            continue
        reached, each = returned[chosen].double(), stored[:, chosen].double()
        answers.append(EpisodePart(
            begin=begin, end=end, rows=int(chosen.sum()), returned=float(reached.mean()),
            stored=float(each.mean()), policy=float(policy[chosen].mean()),
            disagreement=float(each.std(0, correction=0).mean()),
            correlation=_correlation(each.mean(0), reached),
        ))  # fmt: skip
    return answers


def _progress(numbers: Tensor) -> Tensor:
    """Share of its episode that lies before every row, (T, N), in [0, 1)."""
    count = int(numbers.max()) + 1
    time = torch.arange(len(numbers), device=numbers.device)[:, None].expand_as(numbers)
    flat, at = numbers.flatten(), time.flatten()
    first = torch.full((count,), len(numbers), device=at.device).scatter_reduce(0, flat, at, "amin")
    length = torch.bincount(flat, minlength=count)
    return (time - first[numbers]) / length[numbers]


def _correlation(one: Tensor, other: Tensor) -> float:
    one, other = one - one.mean(), other - other.mean()
    size = float(one.norm() * other.norm())
    return float(one @ other) / size if size > 0 else math.nan
