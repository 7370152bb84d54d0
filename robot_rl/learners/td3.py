"""Twin delayed deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477).

Reads top to bottom in the order in which things happen: act, begin, observe, update (critics,
actor, targets). The options of FastTD3 (Seo et al. 2025, arXiv:2505.22642) are fields: noise of
another strength in every world, next actions of the online actor, targets that move in every
update, distributions in place of values. Networks are handed in; time limits, n-step returns and
seams are resolved in the buffer, so that the target is always `reward + discount * value`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError, ShapeError
from robot_rl.core.transition import Batch
from robot_rl.learners.captured import Outcome
from robot_rl.learners.networks import Critic, DeterministicActor, some_members
from robot_rl.learners.off_policy import OffPolicyConfig, check_ranges
from robot_rl.learners.off_policy_learner import OffPolicyLearner
from robot_rl.learners.optimization import Reduce, autocast, moving_copy, soft_update
from robot_rl.learners.values import TargetRule, ValueConfig, make_values


class ClimbedValue(Enum):
    """Which expected value of the ensemble the actor climbs."""

    first = "first"
    min = "min"
    mean = "mean"


@dataclass(kw_only=True)
class TD3Config(OffPolicyConfig):
    """Hyperparameters; the defaults are those of the paper."""

    batch_size: int = 100
    actor_lr: float = 1e-3
    critic_lr: float = 1e-3
    actor_interval: int = 2
    exploration_min: float = 0.1
    """Smallest standard deviation of a world's exploration noise."""
    exploration_max: float = 0.1
    """Largest; every world draws its own, uniformly, when an episode begins."""
    smoothing_noise: float = 0.2
    """Standard deviation of the noise on next actions, which smooths the target over actions."""
    smoothing_clip: float = 0.5
    """Largest noise on a next action."""
    target_actor: bool = True
    """Next actions come from a slowly moving copy of the actor (paper), or else from the actor."""
    delay_targets: bool = True
    """Targets move only where the actor steps (paper), or else in every update."""
    target_rule: TargetRule = TargetRule.min
    """Which target critic counts: the smallest (paper), their mean, or each its own."""
    actor_value: ClimbedValue = ClimbedValue.first
    """The actor climbs the first critic (paper), the smallest or their mean."""
    values: ValueConfig = field(default_factory=ValueConfig)
    """Scalar values (paper), or distributions over fixed returns."""

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        super().__post_init__()
        check_ranges(self, {
            "exploration_min": (0, 10), "exploration_max": (0, 10), "smoothing_noise": (0, 10),
            "smoothing_clip": (0, 2),
        })  # fmt: skip
        if self.exploration_min > self.exploration_max:
            raise ConfigError(
                f"learner.exploration_min {self.exploration_min} must not lie above "
                f"exploration_max {self.exploration_max}"
            )


class TD3(OffPolicyLearner):
    """Twin delayed DDPG over any deterministic actor and any critic ensemble."""

    def __init__(
        self, config: TD3Config, actor: DeterministicActor, critic: Critic, *, action_size: int,
        device: torch.device, seed: int, reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Take over the networks.

        Args:
            config: Hyperparameters.
            actor: Trained in place.
            critic: Trained in place; has as many outputs as `config.values` asks for.
            action_size: A.
            device: Where the networks live.
            seed: Seed of exploration and of smoothing noise.
            reduce: Joins the gradients of several processes.
        """
        self.config = config
        self.action_size = action_size
        self.actor = actor.to(device)
        self.critic = critic.to(device)
        super().__init__(config, self.actor, self.critic, device=device, seed=seed, reduce=reduce)
        self.target_critic = moving_copy(self.critic)
        self.target_actor = moving_copy(self.actor) if config.target_actor else self.actor
        self.values = make_values(config.values, device)
        self._targets = list(self.target_critic.parameters())
        self._sources = list(self.critic.parameters())
        if config.target_actor:
            self._targets += self.target_actor.parameters()
            self._sources += self.actor.parameters()
        self._first = torch.zeros(1, dtype=torch.int64, device=device)  # index of one critic
        self._sigma = torch.zeros(0, device=device)  # (N,), once episodes have begun

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1].

        Noise is cut off at the bounds before it is handed out, so that the stored action is the
        one that was carried out.

        Raises:
            ShapeError: Exploring in more or fewer worlds than episodes began in.
        """
        action = self.actor(obs)
        if not explore:
            return action
        if len(action) != len(self._sigma):
            raise ShapeError(
                f"exploring in {len(action)} worlds, but episodes began in {len(self._sigma)}; "
                "call begin with a mask of all worlds first"
            )
        return torch.addcmul(action, self._normal(action.shape), self._sigma[:, None]).clamp_(-1, 1)

    def begin(self, mask: Tensor) -> None:
        """Draw the strength of the exploration noise anew where an episode begins.

        Args:
            mask: (N,) bool.
        """
        low, high = self.config.exploration_min, self.config.exploration_max
        unit = torch.rand(mask.shape, generator=self._generator, device=self._device)
        drawn = low + (high - low) * unit
        kept = self._sigma if len(self._sigma) == len(mask) else drawn
        self._sigma = torch.where(mask, drawn, kept)

    def _learn(self, batch: Batch, late: bool) -> Outcome:
        """One step of the critics, in the last of `actor_interval` updates of the actor too.

        Returns:
            Metrics, and the surprise of every row, (B,), as its priority.
        """
        metrics, priority = self._update_critic(batch)
        acting = self._update_actor(batch) if late else {}
        if late or not self.config.delay_targets:
            soft_update(self._targets, self._sources, self.config.tau)
        return metrics, acting, priority

    def _update_critic(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        with torch.no_grad():
            next_action = self._smooth(self._act(self.target_actor, batch.next_obs))
            target = self.values.target(
                self._evaluate(self.target_critic, batch.next_obs, next_action),
                self.reward_scale.scale(batch.reward), batch.discount,
                torch.zeros_like(batch.reward), self.config.target_rule,
            )  # fmt: skip
        output = self._evaluate(self.critic, batch.obs, batch.action)  # (E, B, W)
        loss = self.values.loss(output, target, batch.weight)
        self._critic_optimizer.step(loss)
        output = output.detach()
        metrics = {"critic_loss": loss.detach(), "q_mean": self.values.expectation(output).mean()}
        return metrics, self.values.error(output, target)

    def _update_actor(self, batch: Batch) -> dict[str, Tensor]:
        action = self._act(self.actor, batch.obs)
        with self._at_rest(self.critic):
            value = self._climbed(batch.obs, action)
        loss = -(batch.weight * value).mean()
        self._actor_optimizer.step(loss)
        return {"actor_loss": loss.detach()}

    def _smooth(self, action: Tensor) -> Tensor:
        """Next action with clipped noise, within the bounds (paper, eq. 14)."""
        clip = self.config.smoothing_clip
        noise = (self._normal(action.shape) * self.config.smoothing_noise).clamp_(-clip, clip)
        return (action + noise).clamp_(-1, 1)

    def _climbed(self, obs: Obs, action: Tensor) -> Tensor:
        """Expected value that the actor climbs, (B,)."""
        if self.config.actor_value is ClimbedValue.first:
            with autocast(self._device, self.config.precision):
                output = some_members(self.critic, self._first, obs, action)  # (1, B, W)
            return self.values.expectation(output)[0]
        q = self.values.expectation(self._evaluate(self.critic, obs, action))  # (E, B)
        return q.amin(0) if self.config.actor_value is ClimbedValue.min else q.mean(0)

    def _act(self, actor: DeterministicActor, obs: Obs) -> Tensor:
        with autocast(self._device, self.config.precision):
            return actor(obs).float()

    def _evaluate(self, critic: Critic, obs: Obs, action: Tensor) -> Tensor:
        with autocast(self._device, self.config.precision):
            return critic(obs, action)

    def _normal(self, shape: torch.Size) -> Tensor:
        return torch.randn(shape, generator=self._generator, device=self._device)

    def state_dict(self) -> dict[str, Any]:
        """All parts, and the strength of each world's noise."""
        return {**super().state_dict(), "sigma": self._sigma.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`: the next update and the next action are bit-equal."""
        super().load_state_dict(state)
        self._sigma = state["sigma"].to(self._device, copy=True)

    def _parts(self) -> dict[str, Any]:
        targets: dict[str, Any] = {"target_critic": self.target_critic}
        if self.config.target_actor:
            targets["target_actor"] = self.target_actor
        return super()._parts() | targets
