"""Batches of a learner: sampled transitions whose seams and discounts are already resolved."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from robot_rl.core.env import Obs


@dataclass(frozen=True, kw_only=True)
class Batch:
    """B sampled transitions, one step or n steps long.

    The buffer decides once how episodes end: `discount` is gamma^k after k steps, and 0 where the
    task terminated within them. A learner's target is `reward + discount * value(next_obs)`.
    """

    obs: Obs
    """Groups at the first step, each (B, ...)."""
    action: Tensor
    """(B, A), in [-1, 1], as executed."""
    reward: Tensor
    """(B,): discounted sum over the k steps."""
    discount: Tensor
    """(B,): gamma^k where the future counts, 0 where the task terminated."""
    next_obs: Obs
    """Groups after k steps: the true successor, never a reset observation; each (B, ...)."""
    weight: Tensor
    """(B,): importance weight, 1 for uniform sampling."""
    extra: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    """Further tensors that a learner asked for: chunks, Monte-Carlo returns, source, index."""

    def each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """All tensors changed in the same way, such as to some of their rows."""
        return Batch(
            obs={name: change(group) for name, group in self.obs.items()},
            action=change(self.action),
            reward=change(self.reward),
            discount=change(self.discount),
            next_obs={name: change(group) for name, group in self.next_obs.items()},
            weight=change(self.weight),
            extra={name: change(value) for name, value in self.extra.items()},
        )

    def take(self, start: int, stop: int) -> "Batch":
        """Rows start to stop: one of several minibatches drawn at once."""
        return self.each(lambda tensor: tensor[start:stop])
