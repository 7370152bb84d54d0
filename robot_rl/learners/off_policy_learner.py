"""What every learner of the family has and tells: optimisers, random stream, reward scale."""

import math
from collections.abc import Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from robot_rl.core.env import EnvStep, Obs
from robot_rl.core.learner import MonteCarloReturns, Phase
from robot_rl.core.onednn import OneDnnMatmul, is_faster
from robot_rl.core.seeding import derive_seed
from robot_rl.core.transition import Batch
from robot_rl.learners.captured import CapturedSteps, GraphRecorder, Outcome, Step
from robot_rl.learners.networks import (
    Actor,
    Critic,
    Network,
    batch_statistics,
    rows_meet,
    running_statistics,
    without_invalid,
)
from robot_rl.learners.off_policy import OffPolicyConfig
from robot_rl.learners.optimization import Optimizer, Reduce
from robot_rl.learners.reward_scale import make_reward_scale


class OffPolicyLearner:
    """The part of a learner in which the family does not differ; algorithms stand above it."""

    _learn: Step
    """The algorithm's: an update, of a batch and what `_decide` says; keeps the rules of
    `captured.py`."""

    chunk_length = 0
    """Single actions."""
    learns_offline = False
    """Values of untried actions are not kept in check."""
    monte_carlo_returns: MonteCarloReturns | None = None
    """None are needed."""

    def __init__(
        self, config: OffPolicyConfig, actor: Actor, critic: Critic, *, device: torch.device,
        seed: int, reduce: Reduce | None,
    ) -> None:  # fmt: skip
        """Make an optimiser for each of the networks.

        Args:
            config: Hyperparameters.
            actor: Lies on the device already.
            critic: So does this.
            device: Where all of it lives.
            seed: Seed of exploration and of all else that the learner draws.
            reduce: Joins the gradients of several processes.
        """
        self.actor_groups = tuple(actor.groups)
        """Observation groups that acting needs."""
        self.critic_groups = tuple({critic.group} - set(self.actor_groups))
        """Observation groups that only learning needs."""
        self.samples_per_update = config.batch_size
        """B: transitions that one `update` eats."""
        self.gamma = config.gamma
        """Discount per control step."""
        self.n_step = config.n_step
        """Steps per sampled transition."""
        self.updates = 0
        """Updates done."""
        self.reward_scale = make_reward_scale(config, device)
        """What sampled rewards are divided by."""
        largest = max(math.prod(p.shape[-2:]) for p in [*actor.parameters(), *critic.parameters()])
        self.products = OneDnnMatmul(device.type == "cpu" and is_faster(config.batch_size, largest))
        """Entered by every update."""
        self._frozen = config.freeze_normalizers
        self._actor_interval = config.actor_interval
        self._rows_meet = rows_meet(actor) or rows_meet(critic)
        self._policy, self._critic = actor.train(False), critic.train(False)
        self._actor_optimizer = Optimizer(
            actor.parameters(), config.actor_lr, config, after_step=actor.constrain,
            reduce=reduce, interval=config.actor_interval,
        )  # fmt: skip
        self._critic_optimizer = Optimizer(
            critic.parameters(), config.critic_lr, config, after_step=critic.constrain,
            reduce=reduce,
        )  # fmt: skip
        self._device = device
        self._generator = torch.Generator(device=device)
        self._generator.manual_seed(derive_seed(seed, "policy samples"))
        self._actor_metrics: dict[str, Tensor] = {}
        captures = config.capture and device.type == "cuda" and reduce is None
        self.captured = CapturedSteps(
            GraphRecorder(device, [self._generator]) if captures else None
        )
        """What does the steps of updates, or plays them."""

    def observe(self, step: EnvStep) -> None:
        """Take rewards into their scale, and what is acted on next into the normalisers."""
        self.reward_scale.observe(step)
        if not self._frozen:
            self.observe_stored(step.obs)

    def observe_stored(self, obs: Obs) -> None:
        """Take observations, groups (B, ...), into the normalisers."""
        self._policy.update_statistics(obs)
        self._critic.update_statistics(obs)

    def begin_phase(self, phase: Phase) -> None:
        """Every phase is the same."""

    def inspect(self, batch: Batch) -> dict[str, Tensor]:
        """Nothing to show."""
        return {}

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """One update, as the algorithm's `_learn` does it.

        Returns:
            Detached metrics, the actor's those of its last step, and the error of every row, (B,).
        """
        self.updates += 1
        moves = self._decide()
        with self.products:
            metrics, acting, error = self.captured.run(self._learn_of_valid, batch, *moves)
        self._actor_metrics = acting or self._actor_metrics
        return {**metrics, **self._actor_metrics}, error

    def _learn_of_valid(self, batch: Batch, *moves: Hashable) -> Outcome:
        if not self._rows_meet:
            return self._learn(batch, *moves)
        with batch_statistics(*self._trains()):
            return self._learn(without_invalid(batch), *moves)

    def _trains(self) -> tuple[Network, ...]:
        """Networks that take the statistics of what is learned from, where they have batch norm."""
        return self._policy, self._critic

    def _at_rest(self, critic: Critic) -> AbstractContextManager[None]:
        """In which the critic judges new actions, which must not move its batch statistics."""
        return running_statistics(critic) if self._rows_meet else nullcontext()

    def _decide(self) -> tuple[Hashable, ...]:
        """Plain values beside the batch for `_learn` in this update: whether the actor steps."""
        return (self.updates % self._actor_interval == 0,)

    def policy(self) -> nn.Module:
        """The actor, whose forward is the deterministic policy."""
        assert isinstance(self._policy, nn.Module)
        return self._policy

    def state_dict(self) -> dict[str, Any]:
        """All parts, the counter and RNG."""
        return {
            **{name: part.state_dict() for name, part in self._parts().items()},
            "generator": self._generator.get_state(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`: the next update is bit-equal."""
        self.captured.forget()  # optimisers get other tensors
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self._generator.set_state(state["generator"])
        self.updates = int(state["updates"])

    def _parts(self) -> dict[str, Any]:
        """What has a state of its own, by the name it is saved under; algorithms add theirs."""
        return {
            "actor": self._policy, "critic": self._critic,
            "actor_optimizer": self._actor_optimizer, "critic_optimizer": self._critic_optimizer,
            "reward_scale": self.reward_scale,
        }  # fmt: skip
