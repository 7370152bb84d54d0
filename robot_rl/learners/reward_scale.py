"""Running scale of rewards, from the discounted returns that were collected.

Rewards are divided by max(deviation of the running return, largest return / `limit`) (FlashSAC,
arXiv:2604.04539; SimbaV2, arXiv:2502.15280): values keep one magnitude whatever the task pays, and
fit the support of categorical critics. Nothing is subtracted, which would make ending an episode
good or bad. Statistics are taken from steps as they are collected, in the order of time per world;
sampled rewards, n-step sums too, are divided by the newest scale.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Protocol

import torch
from torch import Tensor

from robot_rl.core.env import EnvStep


class RewardScaling(Enum):
    """Divisor of sampled rewards."""

    none = "none"
    """One."""
    running = "running"
    """A running scale of the returns that are collected."""


class RewardScale(Protocol):
    """Watches steps and scales sampled rewards."""

    def observe(self, step: EnvStep) -> None:
        """See a step of N worlds as it is collected."""
        ...

    def scale(self, reward: Tensor) -> Tensor:
        """Sampled rewards, (B,), by the newest scale."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides later scales."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        ...


def make_reward_scale(
    scaling: RewardScaling, gamma: float, limit: float, device: torch.device
) -> RewardScale:
    """The scaling that a config asks for."""
    if scaling is RewardScaling.none:
        return UnitRewardScale()
    return RunningRewardScale(gamma, limit=limit, device=device)


class UnitRewardScale:
    """Leaves rewards as they are."""

    def observe(self, step: EnvStep) -> None:
        """Keep nothing."""

    def scale(self, reward: Tensor) -> Tensor:
        """Return the rewards, (B,)."""
        return reward

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore; values of rewards that were divided would be of another size."""
        if state:
            raise ValueError("its rewards were divided, by learner.reward_scale=running")


class RunningRewardScale:
    """Divides by what keeps returns of the size that was collected near or below `limit`.

    The largest return is forgotten slowly (`peak_decay`): one spike, from a contact that exploded,
    shrinks all rewards only for a while. Its share in the deviation fades as steps are counted.
    """

    def __init__(
        self, gamma: float, *, limit: float, device: torch.device, peak_decay: float = 0.9999
    ) -> None:
        """Start without statistics: rewards are left as they are.

        Args:
            gamma: Discount per step.
            limit: Size of the largest return after scaling.
            device: Where rewards live.
            peak_decay: Share of the largest return that is left after a step of all worlds; half
                is forgotten in 6,931 steps.
        """
        self._gamma = gamma
        self._limit = limit
        self._peak_decay = peak_decay
        self._return = torch.zeros(0, device=device)  # (N,), made with the first step
        self._peak = torch.zeros((), device=device)
        # Counted in float64: sums of a long run stay exact beyond 2^24 rows.
        self._count, self._mean, self._squares = torch.zeros(
            3, dtype=torch.float64, device=device
        ).unbind()

    @torch.no_grad()
    def observe(self, step: EnvStep) -> None:
        """Take the running returns of N worlds, the one that ends an episode included.

        An invalid row, or a reward that is not a number, counts for nothing and ends the return.
        """
        if self._return.shape != step.reward.shape:
            self._return = torch.zeros_like(step.reward)
        good = step.valid & step.reward.isfinite()
        total = torch.where(good, self._gamma * self._return + step.reward, 0.0)
        self._count_returns(total.double(), good)
        self._peak.mul_(self._peak_decay).copy_(torch.maximum(self._peak, total.abs().amax()))
        self._return = total * ~step.ended  # only now is the past forgotten

    def _count_returns(self, total: Tensor, good: Tensor) -> None:
        # Parallel variance (Chan et al. 1979); without good rows nothing changes.
        count = good.sum()
        mean = total.sum() / count.clamp_min(1)
        squares = (torch.where(good, total - mean, 0.0) ** 2).sum()
        both = (self._count + count).clamp_min(1)
        shift = mean - self._mean
        self._squares.add_(squares + shift * shift * (self._count * count / both))
        self._mean.add_(shift * (count / both))
        self._count.add_(count)

    def scale(self, reward: Tensor) -> Tensor:
        """Sampled rewards, (B,), divided by the newest scale; as they are before any was paid."""
        deviation = (self._squares / self._count.clamp_min(1)).sqrt().float()
        divisor = torch.maximum(deviation, self._peak / self._limit)
        return reward / torch.where(divisor > 0, divisor, 1.0)

    def state_dict(self) -> dict[str, Any]:
        """Statistics, and the running return of every world."""
        return {name: value.clone() for name, value in self._statistics().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._return = state["return"].to(self._peak.device, copy=True)
        for name, value in self._statistics().items():
            value.copy_(state[name])

    def _statistics(self) -> dict[str, Tensor]:
        return {
            "return": self._return, "peak": self._peak, "count": self._count, "mean": self._mean,
            "squares": self._squares,
        }  # fmt: skip
