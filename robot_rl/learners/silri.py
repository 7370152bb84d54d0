"""SiLRI (Zhao et al. 2025, arXiv:2512.24288): imitate people where they are sure, else climb.

A deterministic actor with noise of one size climbs the least of its critics, and is drawn to the
mean of an expert, a network that learns what people do where they act. A multiplier, another
network, says of every state how much: it grows where the actor is farther from the expert than the
expert's own spread allows, and falls where people do now this and now that. Source: the learner of
HanbingYueyu/SiLRI-G2-HIL-RL 1ccd489, policies/silri/modeling_silri.py and learner.py. As coded,
stored experience (`training.prior`) counts as a person's, and next actions are not cut off at the
ends of their range. Deviations:

- The expert steps in every update, on the rows of the minibatch in which a person acted. There it
  takes 50 steps whenever a person has acted.
- The expert's spread is bounded as `expert` says. There the lower bound, -5, is that of a
  logarithm, and bounds nothing.
- Observations are vectors, and every network but the target's sees them by itself.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from policies.networks.deterministic_actor import DeterministicActorConfig
from policies.networks.gaussian_actor import GaussianActorConfig
from policies.networks.gripper import GripperConfig, GripperNetwork, GrippingPolicy, without_gripper
from policies.networks.mlp import zero_last
from policies.networks.q_ensemble import QEnsemble, QEnsembleConfig
from policies.networks.trunks import NetworkKind
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import Phase
from robot_rl.core.moving import moving_copy, soft_update
from robot_rl.core.transition import Batch
from robot_rl.learners.cuda_graphs import UpdateResult
from robot_rl.learners.estimation import EstimationConfig, make_estimation
from robot_rl.learners.networks import (
    deterministic_actor,
    gaussian_actor,
    make_critic,
    seed_weights,
)
from robot_rl.learners.off_policy import OffPolicyConfig, OffPolicyLearner
from robot_rl.learners.optimization import Optimizer, Reduce, check_ranges
from robot_rl.learners.values import inspect_values


@dataclass(kw_only=True)
class SiLRIConfig(OffPolicyConfig):
    """Hyperparameters; the defaults are those of the code."""

    std: float = 0.05
    """Standard deviation of the actor's noise, and of its density offline."""
    tolerance: float = 0.1
    """Squared distance to the expert that is allowed beside the sum of its standard deviations."""
    multiplier_lr: float = 3e-6
    """Step size of the multiplier: a hundredth of the critics'."""
    actor: DeterministicActorConfig = field(default_factory=DeterministicActorConfig)
    """Policy network."""
    critic: QEnsembleConfig = field(default_factory=QEnsembleConfig)
    """Action-value networks."""
    expert: GaussianActorConfig = field(default_factory=GaussianActorConfig)
    """Network of people's actions: a normal around tanh of its mean, not squashed itself; steps
    as large as the actor's."""
    multiplier: QEnsembleConfig = field(default_factory=lambda: QEnsembleConfig(members=1))
    """Network of the multiplier, softplus of its output; it begins at softplus(0) = 0.69."""
    gripper: GripperConfig = field(default_factory=GripperConfig)
    """Commands of the gripper, which are those of people, and nothing else."""
    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    """Loss of an encoder beside the actor's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, {"std": (1e-6, 2), "tolerance": (0, 1e6), "multiplier_lr": (0, 1)})
        if self.expert.groups != self.actor.groups:
            raise ConfigError(
                f"learner.expert.groups {self.expert.groups} must be those of the actor, which "
                f"imitates it: learner.actor.groups is {self.actor.groups}"
            )
        if self.expert.kind is NetworkKind.moe:
            raise ConfigError(
                "learner.expert.kind=moe would have a gate without a loss; expected mlp, simba, "
                "bro or flash"
            )
        if self.multiplier.members != 1 or self.multiplier.kind is not NetworkKind.mlp:
            raise ConfigError(
                "learner.multiplier must be one mlp, whose last layer begins at zero; expected "
                f"members=1 and kind=mlp, got {self.multiplier.members} and "
                f"{self.multiplier.kind.value}"
            )


class SiLRI(OffPolicyLearner):
    """Actor with a slow copy, critics, expert, multiplier, and a gripper where there is one."""

    learns_offline = True
    """Offline expert and actor imitate; nothing is valued."""
    intervention_mask = True
    """Steps of people teach the expert."""

    def __init__(
        self, config: SiLRIConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
        reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Make networks and targets; arguments as of `OffPolicyLearner`.

        Raises:
            ConfigError: Actions have no entry beside the gripper's.
        """
        self.config = config
        arm = without_gripper(spec, config.gripper)
        seed_weights(seed)
        self.actor = deterministic_actor(config.actor, arm)
        self.critic = make_critic(config.critic, arm)
        width = spec.groups["actor"].shape[0]
        self.expert = gaussian_actor(config.expert, arm).to(spec.device)
        self.multiplier = QEnsemble(config.multiplier, "actor", width, 0).to(spec.device)
        with torch.no_grad():
            zero_last(self.multiplier.network)
        self.gripper: GripperNetwork | None = None
        if config.gripper.commands:
            self.gripper = GripperNetwork(config.gripper, width).to(spec.device)
        super().__init__(
            config, arm, self.actor, self.critic, seed=seed, stream_seed=stream_seed, reduce=reduce
        )
        self.target_actor, self.target_critic = moving_copy(self.actor), moving_copy(self.critic)

        def optimizer(network: Any, lr: float, interval: int = 1) -> Optimizer:
            return Optimizer(
                network.parameters(), lr, config, after_step=network.constrain, reduce=reduce,
                interval=interval,
            )  # fmt: skip

        self.expert_optimizer = optimizer(self.expert, config.actor_lr)
        self.multiplier_optimizer = optimizer(
            self.multiplier, config.multiplier_lr, config.actor_interval
        )
        self._acting: nn.Module = self.actor
        if self.gripper is not None:
            self.gripper_optimizer = optimizer(self.gripper, config.actor_lr, config.actor_interval)
            self._acting = GrippingPolicy(self.actor, self.actor_groups, self.gripper)
        self.actor_groups = tuple(dict.fromkeys((*self.actor_groups, "actor")))
        self.estimation = make_estimation(config.estimation, config, self.actor, arm, reduce)
        self._actor, self._target_actor = (
            list(network.parameters()) for network in (self.actor, self.target_actor)
        )
        self._sources = [*self.critic.parameters(), *self._actor]
        self._targets = [*self.target_critic.parameters(), *self._target_actor]

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1]: the mean, or with noise of the one size."""
        if not explore:
            return self._acting(obs)
        mean = self.actor(obs)
        action = (mean + self.config.std * self._normal(mean)).clamp_(-1, 1)
        if self.gripper is None:
            return action
        return torch.cat([action, self.gripper.command(obs)], dim=-1)

    def begin_phase(self, phase: Phase) -> None:
        """Offline the actor imitates in every update."""
        self.follow_phase(phase)
        if self.gripper is not None:
            self.gripper_optimizer.interval = self.actor_interval

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """One step of expert and critics; in the last of `actor_interval`, of all networks.

        Offline one of the expert, the actor and the gripper alone, which imitate.

        Args:
            batch: `extra` has "intervened", (B,) bool, and "source" where there is stored
                experience.

        Returns:
            Detached metrics, the actor's those of its last step, and the critics' error of every
            row, (B,).
        """
        self.updates += 1
        update_actor = self.updates % self.actor_interval == 0
        offline = self._phase is Phase.offline
        with self.products:
            return self.finish(
                self.cuda_graphs.run(self._step, batch, update_actor, offline), batch
            )

    def _step(self, batch: Batch, update_actor: bool, offline: bool) -> UpdateResult:
        with self.train_mode(batch, self.expert) as batch:
            acted = batch.weight if offline else _acted(batch)  # (B,)
            metrics = self._update_expert(batch, acted)
            if offline:
                actor_metrics = self._imitate(batch, acted)
                soft_update(self._target_actor, self._actor, 1.0)  # as coded, where it ends
                return UpdateResult(metrics, actor_metrics, torch.zeros_like(batch.reward))
            of_critic, error = self._update_critic(batch)
            actor_metrics = {}
            if update_actor:
                actor_metrics = self._update_actor(batch)
                actor_metrics |= self._update_multiplier(batch)
                actor_metrics |= self._update_gripper(batch, acted)
            soft_update(self._targets, self._sources, self.config.tau)
        return UpdateResult({**of_critic, **metrics}, actor_metrics, error)

    def _update_expert(self, batch: Batch, acted: Tensor) -> dict[str, Tensor]:
        """Likelihood of what people did; rows of the policy do not count."""
        mean, log_std = self._expert(batch.obs)
        loss = _mean_where(-_log_prob(self._arm(batch), mean, log_std), acted)
        self.expert_optimizer.step(loss)
        return {
            "expert_loss": loss.detach(), "acted": (acted > 0).float().mean(),
            "expert_std": log_std.detach().exp().mean(),
        }  # fmt: skip

    def _update_critic(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        with torch.no_grad():
            with self.autocast():
                next_action = self.target_actor(batch.next_obs).float()
            next_action = next_action + self.config.std * self._normal(next_action)
            least = self.plain_outputs(self.target_critic, batch.next_obs, next_action).amin(0)
            target = self.reward_scale.scale(batch.reward) + batch.discount * least
        return self.step_critics(
            self.plain_outputs(self.critic, batch.obs, self._arm(batch)), target, batch.weight
        )

    def _update_actor(self, batch: Batch) -> dict[str, Tensor]:
        with torch.no_grad():
            multiplier = self._multiplier(batch.obs)  # (B,)
            wanted, _ = self._expert(batch.obs)
        with self.autocast(), self.routing() as routing:
            action = self.actor(batch.obs).float()
        distance = (wanted - action).square().sum(-1)  # (B,)
        with self.eval_mode(self._critic):
            least = self.plain_outputs(self.critic, batch.obs, action).amin(0)
        loss = (batch.weight * (multiplier * distance - least) / (1 + multiplier)).mean()
        loss = routing.add_loss(loss, batch.weight)
        self.actor_optimizer.step(loss)
        return {
            "actor_loss": loss.detach(), "expert_distance": distance.detach().mean(),
            **routing.metrics(batch.weight),
        }  # fmt: skip

    def _update_multiplier(self, batch: Batch) -> dict[str, Tensor]:
        """Up where the actor is farther from the expert than its spread allows, else down."""
        with torch.no_grad():
            wanted, log_std = self._expert(batch.obs)
            with self.autocast():
                action = self.actor(batch.obs).float()
            distance = (wanted - action).square().sum(-1)
            excess = distance - log_std.exp().sum(-1) - self.config.tolerance  # (B,)
        multiplier = self._multiplier(batch.obs)
        loss = -(batch.weight * multiplier * excess).mean()
        self.multiplier_optimizer.step(loss)
        return {"multiplier_loss": loss.detach(), "multiplier": multiplier.detach().mean()}

    def _update_gripper(self, batch: Batch, acted: Tensor) -> dict[str, Tensor]:
        """Cross-entropy to the commands of people."""
        if self.gripper is None:
            return {}
        command = self.gripper.nearest(batch.action[:, -1])
        with self.autocast():
            scores = self.gripper(batch.obs)
        loss = _mean_where(functional.cross_entropy(scores, command, reduction="none"), acted)
        self.gripper_optimizer.step(loss)
        return {"gripper_loss": loss.detach()}

    def _imitate(self, batch: Batch, acted: Tensor) -> dict[str, Tensor]:
        """The actor's step offline: likelihood of what people did, under noise of the one size."""
        with self.autocast(), self.routing() as routing:
            mean = self.actor(batch.obs).float()
        log_std = torch.full_like(mean, self.config.std).log()
        loss = _mean_where(-_log_prob(self._arm(batch), mean, log_std), acted)
        loss = routing.add_loss(loss, acted)
        self.actor_optimizer.step(loss)
        return {"actor_loss": loss.detach(), **self._update_gripper(batch, acted)}

    def observe_stored(self, obs: Obs) -> None:
        """Take observations, groups (B, ...), into the normalisers."""
        super().observe_stored(obs)
        for network in (self.expert, self.multiplier, self.gripper):
            if network is not None:
                network.update_statistics(obs)

    @torch.no_grad()
    def inspect(self, batch: Batch) -> dict[str, Tensor]:
        """Values of stored, random and policy actions, and the error of a plain target."""
        return inspect_values(
            replace(batch, action=self._arm(batch)), self.actor,
            lambda obs, action: self.plain_outputs(self.critic, obs, action),
            lambda obs, action: self.plain_outputs(self.target_critic, obs, action).amin(0),
        )  # fmt: skip

    def policy(self) -> nn.Module:
        """The actor, and the gripper's best command beside it."""
        return self._acting

    def _expert(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """Mean in [-1, 1] and log standard deviation of people's actions, (B, A) each."""
        with self.autocast():
            mean, log_std = self.expert.moments(obs)
        return torch.tanh(mean), log_std

    def _multiplier(self, obs: Obs) -> Tensor:
        none = obs["actor"].new_empty(len(obs["actor"]), 0)
        return functional.softplus(self.plain_outputs(self.multiplier, obs, none)[0])  # (B,)

    def _arm(self, batch: Batch) -> Tensor:
        """Entries of the batch's actions without the gripper's."""
        return batch.action if self.gripper is None else batch.action[:, :-1]

    def _normal(self, like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=self.generator, device=self.device)

    def _parts(self) -> dict[str, Any]:
        own = ["target_critic", "target_actor", "expert", "expert_optimizer", "multiplier"]
        own += ["multiplier_optimizer"]
        if self.gripper is not None:
            own += ["gripper", "gripper_optimizer"]
        return super()._parts() | {name: getattr(self, name) for name in own}


def _acted(batch: Batch) -> Tensor:
    """Weights of the rows in which a person acted, of stored experience all, (B,)."""
    acted, source = batch.extra["intervened"], batch.extra.get("source")
    return batch.weight * (acted if source is None else acted | (source > 0))


def _log_prob(action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Of actions (B, A) under normals that are not squashed, (B,)."""
    z = (action - mean) * torch.exp(-log_std)
    return -(0.5 * z * z + log_std + 0.5 * math.log(2 * math.pi)).sum(-1)


def _mean_where(values: Tensor, weight: Tensor) -> Tensor:
    """Mean of (B,) by weights (B,); 0 where nobody acted."""
    return (weight * values).sum() / weight.sum().clamp_min(1.0)
