"""The learner contract: acts, watches steps, eats batches, hands out a policy."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from robot_rl.core.env import EnvStep, Obs
from robot_rl.core.transition import Batch


class Phase(Enum):
    """Phase of a run."""

    offline = "offline"
    """Updates from stored experience alone, before any step in the envs."""
    warm_up = "warm_up"
    """Steps at the start in which nothing is learned."""
    online = "online"
    """Steps and updates in turn."""


@dataclass(frozen=True, kw_only=True)
class MonteCarloReturns:
    """Request of a learner: the return that was really reached from every row."""

    failure_reward: float
    """Reward of every step of a failure that never ends; 0 takes returns as recorded."""
    online: bool
    """Of the run's own experience too."""


@runtime_checkable
class Learner(Protocol):
    """An algorithm without an environment, a buffer or a logger."""

    @property
    def update_method(self) -> str:
        """Computation of the updates, for the user of a run: `compiled (...)`, or why it is not."""
        ...

    @property
    def changes_settings(self) -> bool:
        """True if an update changes settings of the process, which products elsewhere depend on."""
        ...

    @property
    def compile(self) -> bool:
        """Leave to take compiled libraries on the CPU, for samples of the replay too."""
        ...

    @property
    def actor_groups(self) -> tuple[str, ...]:
        """Observation groups that acting needs."""
        ...

    @property
    def critic_groups(self) -> tuple[str, ...]:
        """Observation groups that only learning needs."""
        ...

    @property
    def samples_per_update(self) -> int:
        """B: transitions that one `update` eats."""
        ...

    @property
    def gamma(self) -> float:
        """Discount per control step."""
        ...

    @property
    def n_step(self) -> int:
        """Steps per sampled transition."""
        ...

    @property
    def chunk_length(self) -> int:
        """H, actions that are valued at once, which is `n_step` too; 0 for single actions.

        Above 0 `Batch.extra` must have "chunk" (B, H, A), the actions from the row on, and "valid"
        (B, H) bool: those of them that were done in the row's episode.
        """
        ...

    @property
    def monte_carlo_returns(self) -> MonteCarloReturns | None:
        """Returns that `Batch.extra` must have as "monte_carlo_return", (B,): -inf if unknown."""
        ...

    @property
    def intervention_mask(self) -> bool:
        """True if `Batch.extra` must have "intervened", (B,) bool: a person acted in that step."""
        ...

    @property
    def learns_offline(self) -> bool:
        """True if values of untried actions are kept in check, so that stored data suffice."""
        ...

    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1]; deterministic without `explore`."""
        ...

    def begin(self, mask: Tensor) -> None:
        """Episodes start in the masked envs, (N,) bool: exploration noise, recurrent state."""
        ...

    def observe(self, step: EnvStep) -> None:
        """See a step as it is collected: running statistics, reward scale."""
        ...

    def observe_stored(self, obs: Obs) -> None:
        """Take stored observations, groups (B, ...), into the normalisers."""
        ...

    def begin_phase(self, phase: Phase) -> None:
        """The run enters a phase; called again after a state was loaded."""
        ...

    def inspect(self, batch: Batch) -> dict[str, Tensor]:
        """Detached 0-dim metrics of a batch without learning from it, random streams untouched."""
        ...

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor | None]:
        """One update; returns detached 0-dim metrics by name, and new priorities (B,) or None."""
        ...

    def policy(self) -> nn.Module:
        """The deterministic policy, normaliser inside: Obs -> (N, A); shares the live weights."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Nested dicts of tensors and plain numbers that restore bit-equal training."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        ...
