"""Twin delayed deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477).

Reads top to bottom in the order in which things happen: act, begin, observe, update (critics,
actor, targets). The options of FastTD3 (Seo et al. 2025, arXiv:2505.22642) are fields: noise of
another strength in every world, next actions of the online actor, targets that move in every
update, distributions in place of values. So are those of DrQ-v2 (Yarats et al. 2021,
arXiv:2107.09645): images, and noise that fades over the training. Time limits, n-step returns and
seams are resolved in the buffer, so that the target is always `reward + discount * value`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from policies.networks.deterministic_actor import DeterministicActor, DeterministicActorConfig
from policies.networks.images import ImageConfig
from policies.networks.q_ensemble import QEnsembleConfig
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.errors import ConfigError, ShapeError
from robot_rl.core.moving import moving_copy, soft_update
from robot_rl.core.transition import Batch
from robot_rl.learners.compiled.steps import CompiledTD3Step, find_step
from robot_rl.learners.cuda_graphs import UpdateResult
from robot_rl.learners.estimation import EstimationConfig, make_estimation
from robot_rl.learners.images import make_image_learning
from robot_rl.learners.networks import deterministic_actor, make_critic, seed_weights
from robot_rl.learners.off_policy import (
    ActorObjective,
    OffPolicyConfig,
    OffPolicyLearner,
    reduce_members,
)
from robot_rl.learners.optimization import Reduce, check_ranges
from robot_rl.learners.values import TargetRule, ValueConfig, make_values


@dataclass(kw_only=True)
class NoiseScheduleConfig:
    """Noise that fades over the updates, in place of `exploration_*` and `smoothing_noise`."""

    updates: int = 0
    """Updates over which it falls linearly from start to end; 0 for noise that stays as it is."""
    start: float = 1.0
    """Standard deviation in the beginning (DrQ-v2: 1)."""
    end: float = 0.1
    """Standard deviation from then on (DrQ-v2: 0.1)."""

    def __post_init__(self) -> None:
        ranges = {"updates": (0, 1e12), "start": (0, 10), "end": (0, 10)}
        check_ranges(self, ranges, "learner.noise")

    def at(self, updates: int) -> float:
        """Standard deviation after so many updates."""
        return self.start + (self.end - self.start) * min(1.0, updates / max(1, self.updates))


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
    noise: NoiseScheduleConfig = field(default_factory=NoiseScheduleConfig)
    """Noise that fades, in acting and on next actions alike (DrQ-v2)."""
    noisy_objective: bool = False
    """The actor ascends the value of its actions with such noise, too (DrQ-v2)."""
    target_actor: bool = True
    """Next actions come from a slowly moving copy of the actor (paper), or else from the actor."""
    delay_targets: bool = True
    """Targets move only where the actor steps (paper), or else in every update."""
    target_rule: TargetRule = TargetRule.min
    """Target critic that counts: the smallest (paper), their mean, or each its own."""
    actor_value: ActorObjective = ActorObjective.first
    """The actor ascends the first critic (paper), the smallest or their mean."""
    values: ValueConfig = field(default_factory=ValueConfig)
    """Scalar values (paper), or distributions over fixed returns."""
    actor: DeterministicActorConfig = field(default_factory=DeterministicActorConfig)
    """Policy network."""
    critic: QEnsembleConfig = field(default_factory=QEnsembleConfig)
    """Action-value networks."""
    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    """Loss of an encoder beside the actor's."""
    images: ImageConfig = field(default_factory=ImageConfig)
    """Images that are seen, and their encoder."""

    def __post_init__(self) -> None:
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
    """Twin delayed DDPG over a deterministic actor and a critic ensemble."""

    def __init__(
        self, config: TD3Config, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
        reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Make networks and targets; arguments as of `OffPolicyLearner`."""
        self.config = config
        self.values = make_values(config.values, spec.device)
        seed_weights(seed)
        images = make_image_learning(config.images, spec)
        self.actor = deterministic_actor(config.actor, spec, images)
        self.critic = make_critic(config.critic, spec, self.values.width, images)
        super().__init__(
            config, spec, self.actor, self.critic, seed=seed, stream_seed=stream_seed,
            reduce=reduce, images=images,
        )  # fmt: skip
        self.target_critic = moving_copy(self.critic)
        self.target_actor = moving_copy(self.actor) if config.target_actor else self.actor
        self.estimation = make_estimation(config.estimation, config, self.actor, spec, reduce)
        self._targets = list(self.target_critic.parameters())
        self._sources = list(self.critic.parameters())
        if config.target_actor:
            self._targets += self.target_actor.parameters()
            self._sources += self.actor.parameters()
        self._sigma = torch.zeros(0, device=spec.device)  # (N,), once episodes have begun
        self._smoothing = torch.tensor(config.smoothing_noise, device=spec.device)  # std
        if config.noise.updates:
            # Part of the policy: it comes with the weights to those who act elsewhere.
            self._smoothing.fill_(config.noise.start)
            self.actor.register_buffer("noise", self._smoothing)
        self.compiled_step, self.update_method = find_step(CompiledTD3Step, self, TD3)

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1].

        Noise is cut off at the bounds before it is handed out, so that the stored action is the
        one that was carried out.

        Raises:
            ShapeError: Exploring in more or fewer worlds than episodes began in.
        """
        action = self.actor(self.encoded(obs))
        if not explore:
            return action
        if len(action) != len(self._sigma):
            raise ShapeError(
                f"exploring in {len(action)} worlds, but episodes began in {len(self._sigma)}; "
                "call begin with a mask of all worlds first"
            )
        sigma = self._sigma[:, None]
        if self.config.noise.updates:
            sigma = self._smoothing.expand_as(sigma)
        return torch.addcmul(action, self._normal(action.shape), sigma).clamp_(-1, 1)

    def begin(self, mask: Tensor) -> None:
        """Draw the strength of the exploration noise anew where an episode begins.

        Args:
            mask: (N,) bool.
        """
        low, high = self.config.exploration_min, self.config.exploration_max
        unit = torch.rand(mask.shape, generator=self.generator, device=self.device)
        drawn = low + (high - low) * unit
        kept = self._sigma if len(self._sigma) == len(mask) else drawn
        self._sigma = torch.where(mask, drawn, kept)

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """One step of the critics; in the last of `actor_interval`, of the actor too.

        Returns:
            Detached metrics, the actor's those of its last step, and the surprise of every row,
            (B,), as its priority.
        """
        self.updates += 1
        update_actor = self.updates % self.actor_interval == 0
        if self.config.noise.updates:
            self._smoothing.fill_(self.config.noise.at(self.updates))
        if self.compiled_step is not None:
            return self.finish(self.compiled_step(batch, update_actor), batch)
        with self.products:
            return self.finish(self.cuda_graphs.run(self._step, batch, update_actor), batch)

    def _step(self, batch: Batch, update_actor: bool) -> UpdateResult:
        with self.train_mode(batch) as batch:
            batch = self.encode(batch)
            metrics, priority = self._update_critic(batch)
            actor_metrics = self._update_actor(self.of_actor(batch)) if update_actor else {}
            if update_actor or not self.config.delay_targets:
                soft_update(self._targets, self._sources, self.config.tau)
        return UpdateResult(metrics, actor_metrics, priority)

    def _update_critic(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        with torch.no_grad():
            next_action = self._smooth(self._act(self.target_actor, batch.next_obs))
            target = self.values.target(
                self.outputs(self.target_critic, batch.next_obs, next_action),
                self.reward_scale.scale(batch.reward), batch.discount,
                torch.zeros_like(batch.reward), self.config.target_rule,
            )  # fmt: skip
        output = self.outputs(self.critic, batch.obs, batch.action)  # (E, B, W)
        loss = self.values.loss(output, target, batch.weight)
        self.critic_optimizer.step(loss)
        output = output.detach()
        metrics = {"critic_loss": loss.detach(), "q_mean": self.values.expectation(output).mean()}
        return metrics, self.values.error(output, target)

    def _update_actor(self, batch: Batch) -> dict[str, Tensor]:
        with self.routing() as routing:
            action = self._act(self.actor, batch.obs)
        if self.config.noisy_objective:  # cut off at the bounds, with the gradient of the action
            action = action + (self._smooth(action) - action).detach()
        output = self.objective_outputs(self.config.actor_value, batch.obs, action)
        value = reduce_members(self.values.expectation(output), self.config.actor_value)  # (B,)
        loss = routing.add_loss(-(batch.weight * value).mean(), batch.weight)
        self.actor_optimizer.step(loss)
        return {"actor_loss": loss.detach(), **routing.metrics(batch.weight)}

    def _smooth(self, action: Tensor) -> Tensor:
        """Next action with clipped noise, within the bounds (paper, eq. 14)."""
        return (action + self.smoothing_noise(action.shape)).clamp_(-1, 1)

    def smoothing_noise(self, shape: torch.Size) -> Tensor:
        """Clipped noise on next actions, (B, A)."""
        clip = self.config.smoothing_clip
        return (self._normal(shape) * self._smoothing).clamp_(-clip, clip)

    def _act(self, actor: DeterministicActor, obs: Obs) -> Tensor:
        with self.autocast():
            return actor(obs).float()

    def _normal(self, shape: torch.Size) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.device)

    def state_dict(self) -> dict[str, Any]:
        """All parts, and the strength of each world's noise."""
        return {**super().state_dict(), "sigma": self._sigma.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`: the next update and the next action are bit-equal."""
        super().load_state_dict(state)
        self._sigma = state["sigma"].to(self.device, copy=True)

    def _parts(self) -> dict[str, Any]:
        targets: dict[str, Any] = {"target_critic": self.target_critic}
        if self.config.target_actor:
            targets["target_actor"] = self.target_actor
        return super()._parts() | targets
