"""Returns and successes of the episodes that rows of a ring belong to.

All of it in whole tensors: a sum along an episode is made by doubling, T steps in log2(T) passes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import MonteCarloReturns


@dataclass(frozen=True, kw_only=True)
class Trajectories:
    """Rows of N envs in order of time, (T, N) each."""

    reward: Tensor
    """As it is valued now."""
    valid: Tensor
    """bool."""
    ended: Tensor
    """bool: terminated or truncated."""
    goes_on: Tensor
    """bool: the row after it is of the same episode."""

    @classmethod
    def of(cls, reward: Tensor, valid: Tensor, ended: Tensor) -> "Trajectories":
        """Cut where an episode ended, at invalid rows, and behind the newest row."""
        goes_on = valid & ~ended
        goes_on[:-1] &= valid[1:]
        goes_on[-1] = False
        return cls(reward=reward, valid=valid, ended=ended & valid, goes_on=goes_on)

    def numbers(self) -> Tensor:
        """Number of every row's episode, (T, N) int64, counted env by env."""
        begins = torch.ones_like(self.goes_on)
        begins[1:] = ~self.goes_on[:-1]
        return (begins.T.reshape(-1).cumsum(0) - 1).view(begins.shape[1], -1).T

    def totals(self) -> Tensor:
        """Undiscounted return of every row's episode, as much of it as is held, (T, N)."""
        numbers = self.numbers()
        sums = torch.zeros(numbers.numel(), dtype=torch.float64, device=self.reward.device)
        paid = torch.where(self.valid, self.reward, 0.0).double()
        sums.index_add_(0, numbers.flatten(), paid.flatten())
        return sums[numbers].float()

    def any_in_episode(self, flag: Tensor) -> Tensor:
        """True where a flag (T, N) is set somewhere in the row's episode, (T, N) bool."""
        numbers = self.numbers()
        counts = torch.zeros(numbers.numel(), dtype=torch.int64, device=flag.device)
        counts.index_add_(0, numbers.flatten(), (flag & self.valid).flatten().long())
        return counts[numbers] > 0

    def returns(self, gamma: float) -> Tensor:
        """Discounted return from every row to its episode's end, (T, N).

        What would have followed a time limit is not in it. -inf where the end is not held: behind
        the newest row, and before a row that is invalid.
        """
        total = torch.where(self.valid, self.reward, 0.0).double()
        going = self.goes_on.clone()
        factor = gamma * going.double()
        unknown = ~self.goes_on & ~self.ended
        step, rows = 1, len(total)
        while step < rows and bool(going.any()):
            total[:-step] = total[:-step] + factor[:-step] * total[step:]
            unknown[:-step] |= going[:-step] & unknown[step:]
            factor[:-step] = factor[:-step] * factor[step:]
            going[:-step] = going[:-step] & going[step:]
            factor[-step:], going[-step:] = 0.0, False
            step *= 2
        return torch.where(unknown, -torch.inf, total).float()


class MonteCarlo:
    """The return that was reached from every row of a ring, found anew as the ring moves on."""

    def __init__(
        self,
        steps: int,
        num_envs: int,
        wanted: MonteCarloReturns,
        gamma: float,
        device: torch.device,
    ) -> None:
        """Begin with nothing known.

        Raises:
            ConfigError: A failure that is never ended has no finite return.
        """
        if wanted.failure_reward and gamma == 1:
            raise ConfigError(
                f"learner.conservatism.failure_reward {wanted.failure_reward} asks for the return "
                "of failing for ever, which with learner.gamma=1 is infinite; take a gamma below 1"
            )
        self._wanted, self._gamma = wanted, gamma
        self.success = torch.zeros(steps, num_envs, dtype=torch.bool, device=device)
        """By slot."""
        self.value = torch.full((steps, num_envs), -torch.inf, device=device)
        """By slot."""
        self._weights: Tensor | None = None
        self._found_at = 0

    def on_add(self, slot: int, success: Tensor) -> None:
        """A new step, (N,) bool, lies in a slot; its return is not known yet."""
        self.success[slot] = success
        self.value[slot] = -torch.inf

    def forget(self) -> None:
        """A step that was stored was judged anew: what was found does not hold any more."""
        self._weights = None

    def due(self, total_steps: int, held: int, weights: Tensor) -> bool:
        """True if returns are out of date: much was added, or rewards are weighted anew."""
        late = total_steps - self._found_at > held // 256
        stale = self._weights is None or not torch.equal(self._weights, weights)
        return (late and total_steps > self._found_at) or stale

    def find(
        self, told: Trajectories, slots: Tensor, total_steps: int, weights: Tensor
    ) -> None:  # fmt: skip
        """Compute all returns.

        Args:
            slots: Where each of their steps lies, (T,).
            weights: Of the reward terms, by which they are valued.
        """
        value = told.returns(self._gamma)
        if self._wanted.failure_reward:
            failed = ~told.any_in_episode(self.success[slots]) & value.isfinite()
            value[failed] = self._wanted.failure_reward / (1 - self._gamma)
        self.value[slots] = value
        self._weights, self._found_at = weights.clone(), total_steps

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides later answers."""
        return {
            "success": self.success.clone(), "value": self.value.clone(),
            "weights": {} if self._weights is None else {"weights": self._weights.clone()},
            "found_at": self._found_at,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.success.copy_(state["success"])
        self.value.copy_(state["value"])
        saved = state["weights"].get("weights")
        self._weights = None if saved is None else saved.to(self.value.device)
        self._found_at = int(state["found_at"])
