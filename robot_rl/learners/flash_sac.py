"""FlashSAC: maximum entropy with few updates of large, normalised networks (arXiv:2604.04539).

Reads top to bottom in the order in which things happen: act, observe, update (actor, temperature,
critics, targets). What it adds to SAC: categorical values of scaled rewards, batch norm across the
batch and its successors, bounded weights (in the networks), and noise that is held for some steps.

Facts are from the authors' code of April 2026. Where that differs from what it says or means, this
file follows the meaning: terminal rewards count in the reward scale, which forgets; noise is held
per world and drawn anew at episode starts; schedules of actor and temperature end where they say;
n-step discounts are those of the steps taken; rows of weight zero reach no statistics.

Batch statistics are those of one process: training with several processes is not what one process
with the joined batch would do.
"""

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.seeding import derive_seed
from robot_rl.core.transition import Batch
from robot_rl.learners.captured import Outcome
from robot_rl.learners.networks import Critic, Network, StochasticActor, batch_statistics
from robot_rl.learners.off_policy import RewardScaling, check_ranges
from robot_rl.learners.off_policy_learner import OffPolicyLearner
from robot_rl.learners.optimization import Reduce, autocast, soft_update
from robot_rl.learners.repeated_noise import RepeatedNoise
from robot_rl.learners.temperature import MaximumEntropyConfig, Temperature, normal_entropy
from robot_rl.learners.values import TargetRule, ValueConfig, make_values


@dataclass(kw_only=True)
class FlashSACConfig(MaximumEntropyConfig):
    """Hyperparameters; the defaults are the authors' for one world on a CPU."""

    batch_size: int = 512
    """Transitions per update."""
    learning_rate_end: float = 0.5
    """Share of the step sizes that is left after `learning_rate_decay` updates: a half cosine."""
    tau: float = 0.01
    """Share of the critics that their targets take over after every update."""
    actor_interval: int = 2
    """The actor steps in the last of every so many updates."""
    init_temperature: float = 0.01
    """Temperature at the start."""
    target_std: float = 0.15
    """The target entropy is that of a normal of this deviation per action entry, before squashing;
    0 takes `target_entropy_per_action` instead."""
    values: ValueConfig = field(default_factory=lambda: ValueConfig(atoms=101, low=-5.0, high=5.0))
    """What the critics' outputs mean."""
    reward_scale: RewardScaling = RewardScaling.running
    """What sampled rewards are divided by."""
    noise_exponent: float = 2.0
    """Exploration noise is held for k steps with probability k to the minus this power."""
    noise_longest: int = 16
    """Largest number of steps that noise is held; 1 draws anew in every step."""

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        super().__post_init__()
        check_ranges(self, {
            "target_std": (0, 10), "noise_exponent": (0, 100), "noise_longest": (1, 1e6),
        })  # fmt: skip
        untouched = MaximumEntropyConfig.target_entropy_per_action
        if self.target_std > 0 and self.target_entropy_per_action != untouched:
            raise ConfigError(
                f"learner.target_entropy_per_action {self.target_entropy_per_action} would have no "
                f"effect beside learner.target_std {self.target_std}; set target_std=0 to use it"
            )

    def with_target_entropy(self) -> "FlashSACConfig":
        """The same, with the entropy in place of the deviation it is given by."""
        if self.target_std == 0:
            return self
        entropy = normal_entropy(self.target_std)
        return replace(self, target_std=0.0, target_entropy_per_action=entropy)


class FlashSAC(OffPolicyLearner):
    """FlashSAC over any actor and any critic ensemble."""

    def __init__(
        self, config: FlashSACConfig, actor: StochasticActor, critic: Critic, *, action_size: int,
        device: torch.device, seed: int, reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Take over the networks.

        Args:
            config: Hyperparameters.
            actor: Trained in place.
            critic: Trained in place; its target is a copy with statistics of its own.
            action_size: A.
            device: Where the networks live.
            seed: Seed of exploration and of sampled actions.
            reduce: Joins the gradients of several processes.
        """
        self.config = config
        self.actor = actor.to(device)
        self.critic = critic.to(device)
        super().__init__(config, self.actor, self.critic, device=device, seed=seed, reduce=reduce)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.temperature = Temperature(
            config.with_target_entropy(), action_size=action_size, device=device, reduce=reduce,
            interval=config.actor_interval,
        )  # fmt: skip
        self.values = make_values(config.values, device)
        self._noise = RepeatedNoise(
            action_size, exponent=config.noise_exponent, longest=config.noise_longest,
            device=device, seed=derive_seed(seed, "exploration"),
        )  # fmt: skip
        self._targets = list(self.target_critic.parameters())
        self._sources = list(self.critic.parameters())

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1]."""
        if not explore:
            return self.actor(obs)
        return self.actor.displace(obs, self._noise.draw(obs[self.actor_groups[0]].shape[0]))

    def begin(self, mask: Tensor) -> None:
        """Held noise ends with its episode."""
        self._noise.begin(mask)

    def observe_stored(self, obs: Obs) -> None:
        """Take observations into the normalisers; the target critic has one of its own."""
        super().observe_stored(obs)
        self.target_critic.update_statistics(obs)

    def _trains(self) -> tuple[Network, ...]:
        """None: each step says for itself whose statistics are those of its rows."""
        return ()

    def _learn(self, batch: Batch, late: bool) -> Outcome:
        """One step of the critics, in the last of `actor_interval` first one of the actor.

        Returns:
            Metrics, and priorities, (B,).
        """
        both = {name: torch.cat([batch.obs[name], batch.next_obs[name]]) for name in batch.obs}
        acting = self._update_actor(batch, both) if late else {}
        metrics, priority = self._update_critic(batch, both)
        soft_update(self._targets, self._sources, self.config.tau)
        return metrics, acting, priority

    def _update_actor(self, batch: Batch, both: Obs) -> dict[str, Tensor]:
        count = batch.weight.shape[0]
        with autocast(self._device, self.config.precision):
            with batch_statistics(self.actor):  # in which successors take part, and only there
                actions, log_probs = self.actor.sample(both, self._generator)  # (2 B, A), (2 B,)
            action, log_prob = actions[:count], log_probs[:count]
            # The critics judge by running statistics: new actions must not move their scales.
            output = self.critic(batch.obs, action)  # (E, B, W)
        value = self.values.expectation(output).amin(0)  # (B,)
        alpha = self.temperature.value()
        loss = (batch.weight * (alpha * log_prob - value)).mean()
        self._actor_optimizer.step(loss)
        self.temperature.step(log_prob, batch.weight)
        entropy = -log_prob.detach().mean()
        return {"actor_loss": loss.detach(), "entropy": entropy, "temperature": alpha}

    def _update_critic(self, batch: Batch, both: Obs) -> tuple[dict[str, Tensor], Tensor]:
        count = batch.weight.shape[0]
        with autocast(self._device, self.config.precision):
            with torch.no_grad():  # by running statistics
                next_action, next_log_prob = self.actor.sample(batch.next_obs, self._generator)
            actions = torch.cat([batch.action, next_action])  # (2 B, A)
            # Rows and successors pass together, so that both are normalised alike. No parameter of
            # the target asks for gradients: there is no graph to switch off.
            with batch_statistics(self.critic, self.target_critic):
                next_output = self.target_critic(both, actions)[:, count:]  # (E, B, W)
                output = self.critic(both, actions)[:, :count]  # (E, B, W)
        target = self.values.target(
            next_output, self.reward_scale.scale(batch.reward), batch.discount,
            -self.temperature.value() * next_log_prob, TargetRule.min,
        )  # fmt: skip
        loss = self.values.loss(output, target, batch.weight)
        self._critic_optimizer.step(loss)
        q_mean = self.values.expectation(output.detach()).mean()
        priority = self.values.error(output.detach(), target)
        return {"critic_loss": loss.detach(), "q_mean": q_mean}, priority

    def _parts(self) -> dict[str, Any]:
        return super()._parts() | {
            "target_critic": self.target_critic, "temperature": self.temperature,
            "noise": self._noise,
        }  # fmt: skip
