"""Soft actor-critic with automatic temperature (Haarnoja et al. 2018b, arXiv:1812.05905).

Reads top to bottom in the order in which things happen: act, observe, update (critics, actor,
temperature, targets). Networks are handed in; time limits, n-step returns and seams are resolved in
the buffer, so that the target is always `reward + discount * value`.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

from robot_rl.core.env import EnvStep, Obs
from robot_rl.core.seeding import derive_seed
from robot_rl.core.transition import Batch
from robot_rl.learners.networks import Critic, StochasticActor
from robot_rl.learners.optimization import Optimizer, Reduce, autocast, soft_update
from robot_rl.learners.temperature import MaximumEntropyConfig, Temperature


class ActorValue(Enum):
    """Which value of the ensemble the actor climbs."""

    min = "min"
    mean = "mean"


@dataclass(kw_only=True)
class SACConfig(MaximumEntropyConfig):
    """Hyperparameters; the defaults are those of the paper."""

    entropy_in_target: bool = True
    """Subtract temperature * log-probability from the next value."""
    actor_value: ActorValue = ActorValue.min
    """The actor climbs the smallest critic (paper) or their mean."""


class SAC:
    """Soft actor-critic over any actor and any critic ensemble."""

    def __init__(
        self, config: SACConfig, actor: StochasticActor, critic: Critic, *, action_size: int,
        device: torch.device, seed: int, reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Take over the networks.

        Args:
            config: Hyperparameters.
            actor: Trained in place.
            critic: Trained in place; its target is a copy.
            action_size: A.
            device: Where the networks live.
            seed: Seed of exploration and of sampled actions.
            reduce: Joins the gradients of several processes.
        """
        self.config = config
        self.actor = actor.to(device)
        self.critic = critic.to(device)
        # The target shares the normaliser's statistics with the critic: one scale for both.
        shared = {id(buffer): buffer for buffer in self.critic.buffers()}
        self.target_critic = copy.deepcopy(self.critic, shared).requires_grad_(False)
        self.updates = 0
        """Updates done."""
        interval = config.actor_interval
        self._actor_optimizer = Optimizer(
            self.actor.parameters(), config.actor_lr, config, after_step=self.actor.constrain,
            reduce=reduce, interval=interval,
        )  # fmt: skip
        self._critic_optimizer = Optimizer(
            self.critic.parameters(), config.critic_lr, config, after_step=self.critic.constrain,
            reduce=reduce,
        )  # fmt: skip
        self.temperature = Temperature(
            config, action_size=action_size, device=device, reduce=reduce, interval=interval
        )
        self._targets = list(self.target_critic.parameters())
        self._sources = list(self.critic.parameters())
        self._device = device
        self._generator = torch.Generator(device=device)
        self._generator.manual_seed(derive_seed(seed, "policy samples"))
        self._actor_metrics: dict[str, Tensor] = {}

    @property
    def actor_groups(self) -> tuple[str, ...]:
        """Observation groups that acting needs."""
        return ("actor",)

    @property
    def critic_groups(self) -> tuple[str, ...]:
        """Observation groups that only learning needs."""
        return () if self.critic.group == "actor" else (self.critic.group,)

    @property
    def samples_per_update(self) -> int:
        """B: transitions that one `update` eats."""
        return self.config.batch_size

    @property
    def gamma(self) -> float:
        """Discount per control step."""
        return self.config.gamma

    @property
    def n_step(self) -> int:
        """Steps per sampled transition."""
        return self.config.n_step

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1]."""
        return self.actor.explore(obs, self._generator) if explore else self.actor(obs)

    def begin(self, mask: Tensor) -> None:
        """Nothing to prepare: exploration is drawn anew in every step."""

    def observe(self, step: EnvStep) -> None:
        """Take the observations that are acted on next into the normalisers."""
        self.actor.update_statistics(step.obs)
        self.critic.update_statistics(step.obs)

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], None]:
        """One step of the critics, in the last of `actor_interval` of actor and temperature too.

        Returns:
            Detached metrics, and None: SAC sets no priorities.
        """
        metrics = self._update_critic(batch)
        self.updates += 1
        if self.updates % self.config.actor_interval == 0:
            self._actor_metrics = self._update_actor(batch)
        soft_update(self._targets, self._sources, self.config.tau)
        return {**metrics, **self._actor_metrics}, None

    def _update_critic(self, batch: Batch) -> dict[str, Tensor]:
        with torch.no_grad():
            next_action, next_log_prob = self._sample(batch.next_obs)
            next_value = self._values(self.target_critic, batch.next_obs, next_action).amin(0)
            if self.config.entropy_in_target:
                next_value = next_value - self.temperature.value() * next_log_prob
            target = batch.reward + batch.discount * next_value  # (B,)
        q = self._values(self.critic, batch.obs, batch.action)  # (E, B)
        error = q - target
        # Mean over the batch, sum over members: each critic learns as if it were alone.
        loss = (batch.weight * error * error).mean(-1).sum()
        self._critic_optimizer.step(loss)
        return {"critic_loss": loss.detach(), "q_mean": q.detach().mean()}

    def _update_actor(self, batch: Batch) -> dict[str, Tensor]:
        action, log_prob = self._sample(batch.obs)
        q = self._values(self.critic, batch.obs, action)  # (E, B)
        value = q.amin(0) if self.config.actor_value is ActorValue.min else q.mean(0)
        alpha = self.temperature.value()
        loss = (batch.weight * (alpha * log_prob - value)).mean()
        self._actor_optimizer.step(loss)
        self.temperature.step(log_prob, batch.weight)
        entropy = -log_prob.detach().mean()
        return {"actor_loss": loss.detach(), "entropy": entropy, "temperature": alpha}

    def _sample(self, obs: Obs) -> tuple[Tensor, Tensor]:
        with autocast(self._device, self.config.precision):
            return self.actor.sample(obs, self._generator)

    def _values(self, critic: Critic, obs: Obs, action: Tensor) -> Tensor:
        with autocast(self._device, self.config.precision):
            output = critic(obs, action)  # (E, B, 1)
        return output[..., 0].float()

    def policy(self) -> nn.Module:
        """The actor, whose forward is the deterministic policy."""
        assert isinstance(self.actor, nn.Module)
        return self.actor

    def state_dict(self) -> dict[str, Any]:
        """Networks, targets, optimisers, temperature, counters and RNG."""
        return {
            "actor": self.actor.state_dict(),
            "critic": self.critic.state_dict(),
            "target_critic": self.target_critic.state_dict(),
            "temperature": self.temperature.state_dict(),
            "optimizers": [o.state_dict() for o in self._optimizers()],
            "generator": self._generator.get_state(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`: the next update is bit-equal."""
        self.actor.load_state_dict(state["actor"])
        self.critic.load_state_dict(state["critic"])
        self.target_critic.load_state_dict(state["target_critic"])
        self.temperature.load_state_dict(state["temperature"])
        for optimizer, saved in zip(self._optimizers(), state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self._generator.set_state(state["generator"])
        self.updates = int(state["updates"])

    def _optimizers(self) -> list[Optimizer]:
        return [self._actor_optimizer, self._critic_optimizer]
