"""Meaning of a critic's outputs: an expected return, or a distribution over fixed returns.

The distribution is categorical (C51, Bellemare et al. 2017, arXiv:1707.06887): K atoms at equal
distances from `low` to `high`, one logit for each. A learner asks here for expectations, targets
and losses, and so reads the same with either kind. Everything is computed in float32, whatever
precision the networks ran in.

Shapes: E members of the critic, M of the target critic (E of them with `TargetRule.own`), B rows,
W outputs of one member (1, or K logits).

Rewards may be divided by max(deviation of the running return, largest return / `limit`) (FlashSAC,
arXiv:2604.04539; SimbaV2, arXiv:2502.15280): values keep one magnitude whatever the task pays, and
fit the support of categorical critics. Nothing is subtracted, which would make ending an episode
good or bad. Statistics are taken from steps as they are collected, in the order of time per env;
sampled rewards, n-step sums too, are divided by the newest scale.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env import EnvStep, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.transition import Batch

_INSPECTION_SEED = 20_211
"""Inspected actions come from the same stream every time: curves do not jump for that."""


class TargetRule(Enum):
    """Members of the target critic that the next value is taken from."""

    min = "min"
    """The member with the smallest mean; of categories, its whole distribution."""
    mean = "mean"
    """All of them: the mean value; of categories, the even mixture."""
    own = "own"
    """Every member learns from its own target."""


@dataclass(kw_only=True)
class ValueConfig:
    """Scalar or categorical values."""

    atoms: int = 0
    """K: returns that the categories stand for; 0 learns the mean alone."""
    low: float = -10.0
    """Smallest return that the categories can express."""
    high: float = 10.0
    """Largest return that the categories can express."""

    def __post_init__(self) -> None:
        if self.atoms < 0 or self.atoms == 1:
            raise ConfigError(f"values.atoms must be 0 (scalar) or at least 2, got {self.atoms}")
        if not -math.inf < self.low < self.high < math.inf:
            raise ConfigError(
                f"values.low {self.low} must lie below values.high {self.high}, and both be finite"
            )


class ScalarValues:
    """One output: the expected return."""

    width = 1
    """W: outputs that a member needs."""

    def expectation(self, output: Tensor) -> Tensor:
        """Expected returns, (E, B), of outputs (E, B, W)."""
        return output.squeeze(-1).float()

    @torch.no_grad()
    def target(
        self, output: Tensor, reward: Tensor, discount: Tensor, bonus: Tensor, rule: TargetRule
    ) -> Tensor:
        """Reward + discount * (value + bonus), (B,), or (E, B) with `own`, without gradient.

        Args:
            output: Of the target critic at the next observations, (M, B, W).
            reward: (B,).
            discount: (B,).
            bonus: Added to the next value, (B,): -alpha * log-probability, or zeros.
            rule: Which members count.
        """
        value = self.expectation(output)
        if rule is TargetRule.min:
            value = value.amin(0)
        elif rule is TargetRule.mean:
            value = value.mean(0)
        return reward + discount * (value + bonus)

    def loss(self, output: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """Squared error, 0-dim, without a factor 1/2: mean over rows weighted by (B,)."""
        error = self.expectation(output) - target  # (E, B)
        # Mean over the batch, sum over members: each critic learns as if it were alone.
        return (weight / weight.shape[0] * error * error).sum()

    @torch.no_grad()
    def error(self, output: Tensor, target: Tensor) -> Tensor:
        """Absolute error of every row, (B,), mean over members, for priorities."""
        return (self.expectation(output) - target).abs().mean(0)


class CategoricalValues:
    """K logits: probabilities of the returns low, low + spacing, ..., high.

    Methods are those of `ScalarValues`; a target is probabilities, (B, K), or (E, B, K) with `own`.
    """

    def __init__(self, config: ValueConfig, device: torch.device) -> None:
        """Lay out the atoms.

        Args:
            config: Number of atoms, at least 2, and the support.
            device: Where the critics live.
        """
        self.width = config.atoms
        self._low = config.low
        self._spacing = (config.high - config.low) / (config.atoms - 1)
        self._places = torch.arange(config.atoms, dtype=torch.float32, device=device)  # (K,)
        self._atoms = self._low + self._spacing * self._places  # (K,)

    def expectation(self, output: Tensor) -> Tensor:
        """(E, B, K) -> (E, B)."""
        return self._mean(torch.softmax(output.float(), -1))

    @torch.no_grad()
    def target(
        self, output: Tensor, reward: Tensor, discount: Tensor, bonus: Tensor, rule: TargetRule
    ) -> Tensor:
        """Projection of reward + discount * (Z + bonus) onto the atoms."""
        probability = torch.softmax(output.float(), -1)  # (M, B, K)
        if rule is TargetRule.min:
            # Clipped double learning chooses a member, not the smaller of each probability.
            smallest = self._mean(probability).argmin(0)  # (B,)
            rows = torch.arange(smallest.shape[0], device=smallest.device)
            probability = probability[smallest, rows]  # (B, K)
        elif rule is TargetRule.mean:
            probability = probability.mean(0)
        return self.project(probability, reward + discount * bonus, discount)

    def project(self, probability: Tensor, shift: Tensor, discount: Tensor) -> Tensor:
        """Distribution of shift + discount * Z on the atoms (Bellemare et al. 2017, eq. 7).

        Each atom's mass is shared by the two atoms beside its new place, so that the mean is kept;
        what lies beyond the support is moved to its edge. On CUDA the sums run in no fixed order:
        bit-equal runs need `torch.use_deterministic_algorithms`.

        Args:
            probability: Of Z, (..., B, K).
            shift: (B,).
            discount: (B,).

        Returns:
            Probabilities, (..., B, K).
        """
        # Places are counted in spacings from `low`. So written, a shift by whole spacings with
        # discount 1 lands on whole numbers.
        first = (shift - (1 - discount) * self._low) / self._spacing  # (B,)
        place = torch.addcmul(first[:, None], discount[:, None], self._places)  # (B, K)
        place = place.clamp_(0, self.width - 1)
        # The lower neighbour is never the last atom: on a whole number one share is all of the
        # mass and the other nothing, at the upper edge too. A NaN gets a valid index and stays a
        # NaN in the shares.
        lower = place.long().clamp_(0, self.width - 2)  # (B, K)
        upper_share = probability * (place - lower)  # (..., B, K)
        rows = torch.arange(probability[..., 0].numel(), device=place.device) * self.width
        index = (lower + rows.view(*probability.shape[:-1], 1)).flatten()
        # Flat sums by index: 25 times as fast on a CPU as the dense form max(0, 1 - |distance|) at
        # 256 rows and 101 atoms, 100 times at 8,192 rows.
        projected = torch.zeros_like(probability).flatten()
        projected.index_add_(0, index, (probability - upper_share).flatten())
        projected.index_add_(0, index.add_(1), upper_share.flatten())
        return projected.view_as(probability)

    def loss(self, output: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """Cross-entropy from the target's probabilities."""
        log_probability = torch.log_softmax(output.float(), -1)  # (E, B, K)
        return -(weight * (target * log_probability).sum(-1)).mean(-1).sum()

    @torch.no_grad()
    def error(self, output: Tensor, target: Tensor) -> Tensor:
        """Divergence KL(target | prediction), mean over members (Hessel et al. 2018).

        The cross-entropy itself would call a row surprising whose return is merely random.
        """
        log_probability = torch.log_softmax(output.float(), -1)  # (E, B, K)
        entropy = torch.special.entr(target).sum(-1)  # (B,) or (E, B)
        cross = -(target * log_probability).sum(-1)  # (E, B)
        return (cross - entropy).clamp_min(0).mean(0)

    def _mean(self, probability: Tensor) -> Tensor:
        # Not a matrix product: autocast would round that to bfloat16.
        return (probability * self._atoms).sum(-1)


Values = ScalarValues | CategoricalValues
"""Turns outputs of critics into expectations, targets and losses."""


def make_values(config: ValueConfig, device: torch.device) -> Values:
    """The kind of values that a config asks for."""
    return CategoricalValues(config, device) if config.atoms else ScalarValues()


def inspect_values(
    batch: Batch, actor: Callable[[Obs], Tensor], value: Callable[[Obs, Tensor], Tensor],
    next_value: Callable[[Obs, Tensor], Tensor],
) -> dict[str, Tensor]:  # fmt: skip
    """Values of a batch's actions, of random ones and of the policy's.

    Offline learning is read by them, after Kumar et al. 2021, "A Workflow for Offline Model-Free
    Robotic Reinforcement Learning" (arXiv:2109.10813).

    Args:
        batch: B rows.
        actor: The policy's action.
        value: Values of all critics, (E, B).
        next_value: Value of the target critics, (B,).

    Returns:
        Means over the rows whose weight is not 0: `q_data`, `q_random`, `q_policy`, and `td_error`,
        the squared error of one step of the policy without entropy.
    """
    generator = torch.Generator(device=batch.action.device)
    generator.manual_seed(_INSPECTION_SEED)
    uniform = torch.empty_like(batch.action).uniform_(-1, 1, generator=generator)
    q = value(batch.obs, batch.action)  # (E, B)
    target = batch.reward + batch.discount * next_value(batch.next_obs, actor(batch.next_obs))
    known = (batch.weight > 0).to(q.dtype)  # rows that are not valid hold zeros

    def mean(each: Tensor) -> Tensor:  # (E, B)
        return (each * known).sum(-1).mean() / known.sum().clamp(min=1.0)

    return {
        "q_data": mean(q),
        "q_random": mean(value(batch.obs, uniform)),
        "q_policy": mean(value(batch.obs, actor(batch.obs))),
        "td_error": mean((q - target) ** 2),
    }


class RewardScaling(Enum):
    """Divisor of sampled rewards."""

    none = "none"
    """One."""
    running = "running"
    """A running scale of the returns that are collected."""


class UnitRewardScale:
    """Leaves rewards as they are."""

    def observe(self, step: EnvStep) -> None:
        """See a step of N envs as it is collected; keeps nothing."""

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
            peak_decay: Share of the largest return that is left after a step of all envs; half
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
        """Take the running returns of N envs, the one that ends an episode included.

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
        """Statistics, and the running return of every env."""
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


RewardScale = UnitRewardScale | RunningRewardScale
"""Watches steps and scales sampled rewards."""


def make_reward_scale(
    scaling: RewardScaling, gamma: float, limit: float, device: torch.device
) -> RewardScale:
    """The scaling that a config asks for."""
    if scaling is RewardScaling.none:
        return UnitRewardScale()
    return RunningRewardScale(gamma, limit=limit, device=device)
