"""What critics think of stored steps beside what really came of them.

A return stops where time ended the episode, and a value goes on: in the last part of an episode a
value above the return is no mistake. Returns are those of who acted, values those of the policy.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.transition import Batch

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
