"""Distributional soft actor-critic with three refinements, DSAC-T (Duan et al. 2023, 2310.05858).

Every critic predicts the mean and the standard deviation of the return. The mean follows an
expected target, the deviation a sampled one that is clipped to three running deviations; both
gradients are scaled by the variance, so that the reward's scale matters little.

Two losses are published under this name, and they learn different deviations: `DSACTLoss` says
which is which. The order is the paper's: the critics step, then the actor meets the new critics. In
the authors' code (Jingliang-Duan/DSAC-v2) the actor's gradient comes from the critics before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from policies.networks.gaussian_actor import GaussianActorConfig
from policies.networks.images import ImageConfig
from policies.networks.q_ensemble import QEnsembleConfig
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.moving import moving_copy, soft_update
from robot_rl.core.transition import Batch
from robot_rl.learners.cuda_graphs import UpdateResult
from robot_rl.learners.estimation import EstimationConfig, make_estimation
from robot_rl.learners.images import make_image_learning
from robot_rl.learners.networks import (
    Critic,
    StochasticActor,
    gaussian_actor,
    make_critic,
    seed_weights,
)
from robot_rl.learners.off_policy import MaximumEntropyConfig, OffPolicyLearner, Temperature
from robot_rl.learners.optimization import Reduce, check_ranges


class DSACTLoss(Enum):
    """The two published losses."""

    paper = "paper"
    """Gradients weighted by the variance (paper; first release c69f7eb of the authors' code; GOPS):
    the variance tends to the mean squared error of the clipped target."""
    huber = "huber"
    """Huber losses with a bounded weight (the authors' code since c5105eb, July 2025): their factor
    1/2 makes the variance tend to half of that."""


@dataclass(kw_only=True)
class DSACTConfig(MaximumEntropyConfig):
    """Hyperparameters beside those of the family."""

    loss: DSACTLoss = DSACTLoss.paper
    """One of the two published losses."""
    scale_tau: float = 0.005
    """Share of a batch's mean deviation in the running deviation of a critic."""
    epsilon: float = 0.1
    """Keeps the variance in denominators away from 0."""
    noise_clip: float = 3.0
    """Sampled targets stay within so many standard normals."""
    target_clip: float = 3.0
    """Sampled targets stay within so many running deviations of the mean."""
    huber_delta: float = 50.0
    """Errors above this count linearly; for `huber`."""
    weight_min: float = 0.1
    """Least weight of a row's variance; for `huber`."""
    weight_max: float = 10.0
    """Largest weight of a row's variance; for `huber`."""
    actor: GaussianActorConfig = field(default_factory=GaussianActorConfig)
    """Policy network."""
    critic: QEnsembleConfig = field(default_factory=QEnsembleConfig)
    """Networks of the return's mean, and of its deviation before softplus."""
    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    """Loss of an encoder beside the actor's."""
    images: ImageConfig = field(default_factory=ImageConfig)
    """Images that are seen, and their encoder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, {
            "scale_tau": (0, 1), "epsilon": (1e-9, 1e3), "noise_clip": (0, 1e3),
            "target_clip": (0, 1e3), "huber_delta": (1e-9, 1e9), "weight_min": (0, 1e6),
            "weight_max": (self.weight_min, 1e6),
        })  # fmt: skip


class DSACT(OffPolicyLearner):
    """DSAC-T over a stochastic actor and an ensemble of critics with two outputs each."""

    def __init__(
        self, config: DSACTConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
        reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Make networks, targets and temperature; arguments as of `OffPolicyLearner`."""
        self.config = config
        seed_weights(seed)
        images = make_image_learning(config.images, spec)
        self.actor = gaussian_actor(config.actor, spec, images)
        self.critic = make_critic(config.critic, spec, 2, images)
        super().__init__(
            config, spec, self.actor, self.critic, seed=seed, stream_seed=stream_seed,
            reduce=reduce, images=images,
        )  # fmt: skip
        self.target_actor = moving_copy(self.actor)
        self.target_critic = moving_copy(self.critic)
        self.temperature = Temperature(
            config, target_entropy=config.target_entropy(spec.action_size), device=spec.device,
            reduce=reduce, interval=config.actor_interval,
        )  # fmt: skip
        self.estimation = make_estimation(config.estimation, config, self.actor, spec, reduce)
        self._sources = [*self.critic.parameters(), *self.actor.parameters()]
        self._targets = [*self.target_critic.parameters(), *self.target_actor.parameters()]
        self.scale = torch.zeros(config.critic.members, device=spec.device)
        """b: running deviation of every critic, (E,); 0 until the first batch."""

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1]."""
        obs = self.encoded(obs)
        return self.actor.explore(obs, self.generator) if explore else self.actor(obs)

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """One step of the critics; actor, temperature and all targets in the last of several.

        Returns:
            Detached metrics, the actor's those of its last step, and the critics' mean absolute
            error of every row, (B,).
        """
        self.updates += 1
        update_actor = self.updates % self.actor_interval == 0
        with self.products:
            return self.finish(self.cuda_graphs.run(self._step, batch, update_actor), batch)

    def _step(self, batch: Batch, update_actor: bool) -> UpdateResult:
        with self.train_mode(batch) as batch:
            batch = self.encode(batch)
            metrics, error = self._update_critic(batch)
            actor_metrics: dict[str, Tensor] = {}
            if update_actor:
                actor_metrics = self._update_actor(self.of_actor(batch))
                soft_update(self._targets, self._sources, self.config.tau)
        return UpdateResult(metrics, actor_metrics, error)

    def _update_critic(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        expected, sampled = self._targets_of(batch)
        mean, std = self._distribution(self.critic, batch.obs, batch.action)  # (E, B)
        self._follow_scale(std.detach(), batch.weight)
        b = self.scale[:, None]
        reach = self.config.target_clip * b
        at = mean.detach()
        sampled = at + (sampled - at).clamp(-reach, reach)  # (E, B)
        pull = paper_loss if self.config.loss is DSACTLoss.paper else huber_loss
        loss = (batch.weight * pull(mean, std, expected, sampled, b, self.config)).mean(-1).sum()
        self.critic_optimizer.step(loss)
        error = expected - at
        # Both losses are made for their gradients alone: the squared error of the means is told.
        squared = (batch.weight * error * error).mean(-1).sum()
        metrics = {"critic_loss": squared, "q_mean": at.mean(), "q_std": std.detach().mean()}
        return metrics, error.abs().mean(0)

    @torch.no_grad()
    def _targets_of(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Expected and sampled return, (B,), of the critic whose mean is the smaller one."""
        next_action, next_log_prob = self._sample(self.target_actor, batch.next_obs)
        mean, std = self._distribution(self.target_critic, batch.next_obs, next_action)
        clip = self.config.noise_clip
        z = torch.randn(mean.shape, generator=self.generator, device=self.device)
        least = mean.argmin(0, keepdim=True)  # (1, B)
        mean, value = (x.gather(0, least)[0] for x in (mean, mean + z.clamp(-clip, clip) * std))
        bonus = -self.temperature.value() * next_log_prob
        reward = self.reward_scale.scale(batch.reward)
        expected = reward + batch.discount * (mean + bonus)
        return expected, reward + batch.discount * (value + bonus)

    def _follow_scale(self, std: Tensor, weight: Tensor) -> None:
        now = (weight * std).sum(-1) / weight.sum()  # (E,)
        now = now.where(weight.sum() > 0, self.scale)  # without a valid row nothing is new
        self.scale.copy_(self.scale.lerp(now, self.config.scale_tau).where(self.scale > 0, now))

    def _update_actor(self, batch: Batch) -> dict[str, Tensor]:
        with self.routing() as routing:
            action, log_prob = self._sample(self.actor, batch.obs)
        with self.eval_mode(self.critic):
            mean, _ = self._distribution(self.critic, batch.obs, action)  # (E, B)
        alpha = self.temperature.value()
        loss = (batch.weight * (alpha * log_prob - mean.amin(0))).mean()
        loss = routing.add_loss(loss, batch.weight)
        self.actor_optimizer.step(loss)  # the critics get no gradient from here
        self.temperature.step(log_prob, batch.weight)
        entropy = -log_prob.detach().mean()
        return {
            "actor_loss": loss.detach(), "entropy": entropy, "temperature": alpha,
            **routing.metrics(batch.weight),
        }  # fmt: skip

    def _sample(self, actor: StochasticActor, obs: Obs) -> tuple[Tensor, Tensor]:
        with self.autocast():
            return actor.sample(obs, self.generator)

    def _distribution(self, critic: Critic, obs: Obs, action: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the return, (E, B) each."""
        output = self.outputs(critic, obs, action).float()  # (E, B, 2)
        return output[..., 0], nn.functional.softplus(output[..., 1])

    def state_dict(self) -> dict[str, Any]:
        """All parts, and the running deviations, which the authors' code forgets."""
        return {**super().state_dict(), "scale": self.scale.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`: the next update is bit-equal."""
        super().load_state_dict(state)
        self.scale.copy_(state["scale"])

    def _parts(self) -> dict[str, Any]:
        return super()._parts() | {
            "target_actor": self.target_actor, "target_critic": self.target_critic,
            "temperature": self.temperature,
        }  # fmt: skip


def paper_loss(
    mean: Tensor, std: Tensor, expected: Tensor, sampled: Tensor, b: Tensor, config: DSACTConfig
) -> Tensor:
    """Loss of every row, (E, B), whose gradient is that of the paper; its value says nothing.

    Args:
        mean: Of the critics, (E, B).
        std: Of the critics, (E, B).
        expected: Target of the mean, (B,).
        sampled: Clipped target of the deviation, (E, B).
        b: Running deviation of every critic, (E, 1).
        config: Its epsilon.
    """
    eps, at, width = config.epsilon, mean.detach(), std.detach()
    of_mean = (expected - at) / (width**2 + eps)
    of_std = ((at - sampled) ** 2 - width**2) / (width**3 + eps)
    return -(b**2 + eps) * (of_mean * mean + of_std * std)


def huber_loss(
    mean: Tensor, std: Tensor, expected: Tensor, sampled: Tensor, b: Tensor, config: DSACTConfig
) -> Tensor:
    """Loss of every row, (E, B), of the authors' later code; arguments as in `paper_loss`."""
    eps, width = config.epsilon, std.detach()
    huber = partial(nn.functional.huber_loss, reduction="none", delta=config.huber_delta)
    weight = (b**2 / (width**2 + eps)).clamp(config.weight_min, config.weight_max)
    of_std = (width**2 - huber(mean.detach(), sampled)) / (width + eps)
    return weight * (huber(mean, expected.expand_as(mean)) + of_std * std)
