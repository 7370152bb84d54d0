"""Any learner of the family, with an encoder in its actor that learns to estimate beside it.

The algorithm inside is untouched: after each of its updates the encoder takes a step of its own on
the same minibatch, with an Adam of its own, as encoders beside SAC do (Yarats et al. 2019,
arXiv:1910.01741).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from robot_rl.core.env import EnvStep, Obs
from robot_rl.core.learner import Learner, Phase
from robot_rl.core.onednn import OneDnnMatmul
from robot_rl.core.transition import Batch
from robot_rl.learners.off_policy import DescentConfig, check_ranges
from robot_rl.learners.optimization import Optimizer, Reduce


@dataclass(kw_only=True)
class EstimationConfig:
    """How an encoder learns beside the actor's loss what `actor.encoder.estimate` names."""

    encoder_lr: float = 1e-3
    """Step size of encoder and decoder on these losses."""
    next_obs: bool = False
    """Reconstruct the present frame of the next observation from the latent (DreamWaQ)."""

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        check_ranges(self, {"encoder_lr": (0, 1)}, "learner.estimation")


class Estimator(Protocol):
    """Losses of an encoder, and what only they need."""

    def parameters(self) -> list[nn.Parameter]:
        """What the losses train."""
        ...

    def losses(self, obs: Obs, next_obs: Obs) -> dict[str, Tensor]:
        """By name, of every row, (B,)."""
        ...

    def update_statistics(self, obs: Obs) -> None:
        """Take what is estimated, (N, ...), into its normaliser."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What the actor does not hold."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        ...


class Algorithm(Learner, Protocol):
    """A learner of the family."""

    products: OneDnnMatmul
    """Entered by every update."""


class Estimating:
    """A learner and an estimator, as one learner."""

    def __init__(
        self, learner: Algorithm, estimator: Estimator, config: EstimationConfig, *,
        descent: DescentConfig, groups: tuple[str, ...], reduce: Reduce | None,
        frozen: bool = False,
    ) -> None:  # fmt: skip
        """Take over both.

        Args:
            learner: Its actor's encoder is the estimator's.
            estimator: Says what is learned beside.
            config: How.
            descent: Adam's constants.
            groups: Observation groups that the losses need.
            reduce: Joins the gradients of several processes.
            frozen: Normalisers take in stored experience alone.
        """
        self.inner = learner
        """The algorithm."""
        self.actor_groups = learner.actor_groups
        """Observation groups that acting needs."""
        named = dict.fromkeys((*learner.critic_groups, *groups))
        self.critic_groups = tuple(name for name in named if name not in self.actor_groups)
        """Observation groups that only learning needs."""
        self.samples_per_update = learner.samples_per_update
        """B: transitions that one `update` eats."""
        self.gamma, self.n_step = learner.gamma, learner.n_step
        self.chunk_length, self.learns_offline = learner.chunk_length, learner.learns_offline
        self.monte_carlo_returns = learner.monte_carlo_returns
        self._estimator, self._frozen = estimator, frozen
        self._optimizer = Optimizer(
            estimator.parameters(), config.encoder_lr, descent, reduce=reduce
        )

    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1]."""
        return self.inner.act(obs, explore)

    def begin(self, mask: Tensor) -> None:
        """Episodes start in the masked worlds, (N,) bool."""
        self.inner.begin(mask)

    def observe(self, step: EnvStep) -> None:
        """Take what is acted on next into all normalisers, unless they are frozen."""
        self.inner.observe(step)
        if not self._frozen:
            self._estimator.update_statistics(step.obs)

    def observe_stored(self, obs: Obs) -> None:
        """Take stored observations, groups (B, ...), into all normalisers."""
        self.inner.observe_stored(obs)
        self._estimator.update_statistics(obs)

    def begin_phase(self, phase: Phase) -> None:
        """The run enters a phase."""
        self.inner.begin_phase(phase)

    def inspect(self, batch: Batch) -> dict[str, Tensor]:
        """Metrics of the algorithm."""
        return self.inner.inspect(batch)

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor | None]:
        """One update of the algorithm, then a step of the encoder.

        Returns:
            Detached metrics, and the algorithm's priorities.
        """
        metrics, priority = self.inner.update(batch)
        with self.inner.products:
            losses = self._estimator.losses(batch.obs, batch.next_obs)
            means = {name: (batch.weight * loss).mean() for name, loss in losses.items()}
            self._optimizer.step(sum(means.values(), start=batch.weight.new_zeros(())))
        return {**metrics, **{name: loss.detach() for name, loss in means.items()}}, priority

    def policy(self) -> nn.Module:
        """The actor, encoder inside; what only the losses need is not in it."""
        return self.inner.policy()

    def state_dict(self) -> dict[str, Any]:
        """The algorithm's, and what is beside it."""
        return {
            **self.inner.state_dict(),
            "estimator": self._estimator.state_dict(),
            "estimator_optimizer": self._optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`: the next update is bit-equal."""
        self.inner.load_state_dict(state)
        self._estimator.load_state_dict(state["estimator"])
        self._optimizer.load_state_dict(state["estimator_optimizer"])
