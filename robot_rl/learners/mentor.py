"""MENTOR (Huang et al. 2024, arXiv:2410.14972): experts, dormant units, perturbation.

The losses are those of DrQ-v2 (Yarats et al. 2021, arXiv:2107.09645): TD3 without a target actor,
whose noise has one size for exploration, for next actions and for the actions that the actor's
loss tries. What is added: the actor is a mixture of experts (`policies/networks/experts.py`), a
value of states takes part in the critics' target, weights are moved towards those of good agents
(`perturbation.py`), and the share of dormant units (`dormancy.py`) says how large all of that is.

Reads top to bottom in the order in which things happen: act, observe, update (perturbation,
dormant units, value, critics, actor, target). Time limits, n-step returns and seams are resolved in
the buffer. With images the critics' loss trains their encoder, and everything else sees features
without a gradient; no perturbation moves the encoder. Settings are those of suninghuang19/mentor
f4fa81f; its perturbation stops with an error, so that there the paper's formula counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from policies.networks.deterministic_actor import DeterministicActorConfig
from policies.networks.images import ImageConfig
from policies.networks.q_ensemble import QEnsembleConfig
from policies.networks.trunks import NetworkKind
from robot_rl.core.env import EnvSpec, EnvStep, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.moving import moving_copy, soft_update
from robot_rl.core.transition import Batch
from robot_rl.learners.cuda_graphs import UpdateResult
from robot_rl.learners.dormancy import count_dormant, layers_of, parts_of
from robot_rl.learners.estimation import EstimationConfig, make_estimation
from robot_rl.learners.images import make_image_learning
from robot_rl.learners.networks import (
    deterministic_actor,
    make_critic,
    seed_weights,
    uses_batch_norm,
)
from robot_rl.learners.off_policy import ActorObjective, OffPolicyConfig, OffPolicyLearner
from robot_rl.learners.optimization import Optimizer, Reduce, check_ranges
from robot_rl.learners.perturbation import Perturbation, PerturbationConfig
from robot_rl.learners.values import inspect_values

_MIDDLE = 0.2
"""Share of dormant units at which noise and mixing are half of their largest."""
_NOISE_SLOPE, _MIX_SLOPE = 10.0, 50.0
"""Steepness of the two sigmoids."""


@dataclass(kw_only=True)
class MENTORConfig(OffPolicyConfig):
    """Hyperparameters; the defaults are the authors' for the DeepMind suite, sizes apart."""

    n_step: int = 3
    actor_lr: float = 1e-4
    critic_lr: float = 1e-4
    value_lr: float = 1e-4
    """Step size of the value of states."""
    tau: float = 0.01
    actor_grad_norm: float = 0.0
    """The actor's gradient is scaled down to this norm; 0 leaves it to `max_grad_norm`. The authors
    have 0.001, which before Adam mostly makes steps alike."""
    exploration_max: float = 0.8
    """Standard deviation of the noise where all units are dormant; it is this times
    sigmoid(10 (beta - 0.2)) at a share of beta. Meta-World, Adroit: 1.0."""
    exploration_start: float = 0.0
    """Least noise at the first update, from which it goes in a line to `exploration_end`."""
    exploration_end: float = 0.0
    """Least noise after `exploration_updates`. DrQ-v2 has such a line alone, from 1.0 to 0.1."""
    exploration_updates: int = 1
    """Updates of that line."""
    smoothing_clip: float = 0.3
    """Largest noise on next actions and in the actor's loss."""
    expectile: float = 0.9
    """Expectile of the critics' values of stored actions that the value of a state is: 0.5 is the
    mean, 1 the maximum. Adroit 0.7."""
    value_share: float = 0.6
    """Share of the value of states in the target where no unit is dormant; it is this times
    sigmoid(-50 (beta - 0.2))."""
    dormant_threshold: float = 0.025
    """A unit is dormant up to this share of its layer's mean magnitude."""
    dormant_interval: int = 1
    """Updates between two counts of dormant units, for which all experts see all rows."""
    perturbation: PerturbationConfig = field(default_factory=PerturbationConfig)
    """Movement of the weights towards those of good agents."""
    actor: DeterministicActorConfig = field(
        default_factory=lambda: DeterministicActorConfig(kind=NetworkKind.moe, hidden=[256])
    )
    """Policy network: a mixture of experts, or any other kind."""
    critic: QEnsembleConfig = field(default_factory=QEnsembleConfig)
    """Action-value networks."""
    value: QEnsembleConfig = field(default_factory=lambda: QEnsembleConfig(members=1))
    """Network of the value of states; one member."""
    images: ImageConfig = field(default_factory=ImageConfig)
    """Images that are seen, and their encoder."""
    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    """Loss of an encoder beside the actor's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, {
            "value_lr": (0, 1), "actor_grad_norm": (0, 1e9), "exploration_max": (0, 10),
            "exploration_start": (0, 10), "exploration_end": (0, 10),
            "exploration_updates": (1, 1e12), "smoothing_clip": (0, 2), "value_share": (0, 1),
            "dormant_threshold": (0, 1), "dormant_interval": (1, 1e9),
        })  # fmt: skip
        if not 0 < self.expectile < 1:
            raise ConfigError(f"learner.expectile must lie in (0, 1), got {self.expectile}")
        if self.value.members != 1:
            raise ConfigError(
                f"learner.value.members must be 1, got {self.value.members}; critics are counted "
                "by learner.critic.members"
            )


class MENTOR(OffPolicyLearner):
    """Three networks: actor, critics of actions, value of states."""

    def __init__(
        self, config: MENTORConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
        reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Make networks and target; arguments as of `OffPolicyLearner`.

        Raises:
            ConfigError: Several processes learn, whose weights perturbations would part.
        """
        if reduce is not None:
            raise ConfigError(
                "learner=mentor learns in one process: the share of dormant units, and with it the "
                "perturbation, is another in each; leave torchrun out"
            )
        self.config = config
        seed_weights(seed)
        images = make_image_learning(config.images, spec)
        self.actor = deterministic_actor(config.actor, spec, images)
        self.critic = make_critic(config.critic, spec, images=images)
        super().__init__(
            config, spec, self.actor, self.critic, seed=seed, stream_seed=stream_seed,
            images=images, actor_grad_norm=config.actor_grad_norm or None,
        )  # fmt: skip
        value = make_critic(config.value, replace(spec, action_size=0), images=images)
        self.value = value.to(spec.device).train(False)
        self.uses_batch_norm |= uses_batch_norm(self.value)
        self.target_critic = moving_copy(self.critic)
        self.value_optimizer = Optimizer(
            self.value.parameters(), config.value_lr, config, after_step=self.value.constrain
        )
        self.estimation = make_estimation(config.estimation, config, self.actor, spec, None)
        self._targets = list(self.target_critic.parameters())
        self._sources = list(self.critic.parameters())
        self._names = tuple(parts_of(self.actor.network))
        # Shares of all and of each part; none is known to work before the first count.
        self._dormant = torch.ones(1 + len(self._names), device=spec.device)
        self._least_noise = torch.full((), config.exploration_start, device=spec.device)
        # Part of the policy, so that it comes with the weights to those who act elsewhere.
        self.actor.register_buffer("noise", self._noise())
        actor_parts = parts_of(self.actor.network)
        parts = {**actor_parts, "critic": self.critic.network, "value": self.value.network}
        self.perturbation = Perturbation(
            config.perturbation, {name: _weights(part) for name, part in parts.items()},
            {"critic": _weights(self.target_critic.network)}, spec.device,
        )  # fmt: skip

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1]; exploring with the noise of now, cut off at the bounds."""
        action = self.actor(self.encoded(obs))
        if not explore:
            return action
        return torch.addcmul(action, self._normal(action.shape), self.noise).clamp_(-1, 1)

    def observe(self, step: EnvStep) -> None:
        """Take returns for the perturbation, and what is acted on next into the normalisers."""
        super().observe(step)
        self.perturbation.returns.observe(step)

    def observe_stored(self, obs: Obs) -> None:
        """Take observations, groups (B, ...), into the normalisers."""
        super().observe_stored(obs)
        self.value.update_statistics(obs)

    @property
    def noise(self) -> Tensor:
        """Standard deviation of the noise (sigma), 0-dim."""
        return self.actor.get_buffer("noise")

    @property
    def value_share(self) -> Tensor:
        """Share of the value of states in the critics' target (lambda), 0-dim."""
        return self.config.value_share * torch.sigmoid(_MIX_SLOPE * (_MIDDLE - self._dormant[0]))

    @property
    def kept(self) -> Tensor:
        """Share of the weights that a perturbation keeps (rho), 0-dim."""
        low, high = self.config.perturbation.keep_min, self.config.perturbation.keep_max
        return (1 - 2 * self._dormant[0]).clamp(low, high)

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """One step of the value, of the critics and, every `actor_interval`, of the actor.

        Returns:
            Detached metrics, the actor's those of its last step, and the critics' error of every
            row, (B,).
        """
        self.updates += 1
        passed = min(1.0, self.updates / self.config.exploration_updates)
        start, end = self.config.exploration_start, self.config.exploration_end
        self._least_noise.fill_(start + passed * (end - start))
        self._perturb()
        update_actor = self.updates % self.actor_interval == 0
        count = (self.updates - 1) % self.config.dormant_interval == 0
        with self.products:
            result = self.cuda_graphs.run(self._step, batch, update_actor, count)
        metrics, error = self.finish(result, batch)
        numbers = {
            "agents": self.perturbation.agents.count, "perturbations": self.perturbation.count
        }  # fmt: skip
        return metrics | {
            name: torch.full((), float(number), device=self.device)
            for name, number in numbers.items()
        }, error

    def _perturb(self) -> None:
        """Judge the present agent, and move its weights where it is time."""
        self.perturbation.judge(self.updates)
        if not self.perturbation.due(self.updates):
            return
        self.perturbation.move(self.kept, self.generator)
        with torch.no_grad():
            for network in (self.actor, self.critic, self.target_critic, self.value):
                network.constrain()
        if self.config.perturbation.reset_optimizers:
            moved = self.perturbation.names
            if set(moved) & set(self._names):
                self.actor_optimizer.forget()
            if "critic" in moved:
                self.critic_optimizer.forget()
            if "value" in moved:
                self.value_optimizer.forget()

    def _step(self, batch: Batch, update_actor: bool, count: bool) -> UpdateResult:
        batch = self.encode(batch)
        if count:
            self._count_dormant(batch)
        self.noise.copy_(self._noise())
        with self.train_mode(batch, self.value) as batch:
            metrics = self._update_value(self.of_actor(batch))
            of_critic, error = self._update_critic(batch)
            actor_metrics = self._update_actor(self.of_actor(batch)) if update_actor else {}
            soft_update(self._targets, self._sources, self.config.tau)
        metrics = {
            **of_critic, **metrics, "noise": self.noise.clone(),
            "value_share": self.value_share, "dormant": self._dormant[0].clone(),
        }  # fmt: skip
        for i, name in enumerate(self._names, start=1):
            metrics[f"dormant_{name}"] = self._dormant[i].clone()
        return UpdateResult(metrics, actor_metrics, error)

    def _count_dormant(self, batch: Batch) -> None:
        """Share of dormant units of the actor at the batch's observations."""
        with self.routing():
            found = count_dormant(
                self.actor.network, lambda: self._act(batch.obs), batch.weight,
                self.config.dormant_threshold,
            )  # fmt: skip
        counts = torch.stack([dormant for dormant, _ in found.values()])
        units = [number for _, number in found.values()]
        shares = [dormant / number for dormant, number in zip(counts, units, strict=True)]
        now = torch.stack([counts.sum() / sum(units), *shares])
        self._dormant.copy_(now.where((batch.weight > 0).any(), self._dormant))

    def _update_value(self, batch: Batch) -> dict[str, Tensor]:
        """Step towards an upper expectile of the stored actions' values."""
        with torch.no_grad():
            least = self.plain_outputs(self.critic, batch.obs, batch.action).amin(0)  # (B,)
        excess = self._v(batch.obs) - least
        high = self.config.expectile
        side = torch.where(excess.detach() > 0, 1 - high, high)
        loss = (batch.weight * side * excess * excess).mean()
        self.value_optimizer.step(loss)
        return {"value_loss": loss.detach()}

    def _update_critic(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        with torch.no_grad():
            with self.routing():
                next_action = self._act(batch.next_obs)
            next_action = (next_action + self._clipped_noise(next_action.shape)).clamp_(-1, 1)
            least = self.plain_outputs(self.target_critic, batch.next_obs, next_action).amin(
                0
            )  # (B,)
            next_value = least.lerp(self._v(batch.next_obs), self.value_share)
            target = self.reward_scale.scale(batch.reward) + batch.discount * next_value
        return self.step_critics(
            self.plain_outputs(self.critic, batch.obs, batch.action), target, batch.weight
        )

    def _update_actor(self, batch: Batch) -> dict[str, Tensor]:
        with self.routing() as routing:
            action = self._act(batch.obs)
        action = action + self._clipped_noise(action.shape)
        action = action + (action.clamp(-1, 1) - action).detach()  # the gradient goes on at a bound
        output = self.objective_outputs(ActorObjective.min, batch.obs, action)
        value = output.squeeze(-1).float().amin(0)  # (B,)
        loss = routing.add_loss(-(batch.weight * value).mean(), batch.weight)
        self.actor_optimizer.step(loss)
        return {"actor_loss": loss.detach(), **routing.metrics(batch.weight)}

    @torch.no_grad()
    def inspect(self, batch: Batch) -> dict[str, Tensor]:
        """Values of stored, random and policy actions, and the error of a plain target."""
        if self.images is not None:
            batch = self.images.encoded(batch)
        return inspect_values(
            batch, self.actor, lambda obs, action: self.plain_outputs(self.critic, obs, action),
            lambda obs, action: self.plain_outputs(self.target_critic, obs, action).amin(0),
        )  # fmt: skip

    def _noise(self) -> Tensor:
        """Standard deviation of the noise at the share of dormant units of now, 0-dim."""
        found = torch.sigmoid(_NOISE_SLOPE * (self._dormant[0] - _MIDDLE))
        return torch.maximum(self.config.exploration_max * found, self._least_noise)

    def _act(self, obs: Obs) -> Tensor:
        with self.autocast():
            return self.actor(obs).float()

    def _v(self, obs: Obs) -> Tensor:
        none = torch.empty(len(next(iter(obs.values()))), 0, device=self.device)
        return self.plain_outputs(self.value, obs, none)[0]  # (B,)

    def _clipped_noise(self, shape: torch.Size) -> Tensor:
        clip = self.config.smoothing_clip
        return (self._normal(shape) * self.noise).clamp_(-clip, clip)

    def _normal(self, shape: torch.Size) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.device)

    def state_dict(self) -> dict[str, Any]:
        """All parts, the shares of dormant units and the least noise."""
        return {
            **super().state_dict(), "dormant": self._dormant.clone(),
            "least_noise": self._least_noise.clone(),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`: the next update and the next action are bit-equal."""
        super().load_state_dict(state)
        self._dormant.copy_(state["dormant"])
        self._least_noise.copy_(state["least_noise"])

    def _parts(self) -> dict[str, Any]:
        return super()._parts() | {
            "target_critic": self.target_critic, "value": self.value,
            "value_optimizer": self.value_optimizer, "perturbation": self.perturbation,
        }  # fmt: skip


def _weights(part: Any) -> list[Tensor]:
    """Weights and biases of its linear layers; norms are left as they are."""
    return [weight for layer in layers_of(part) for weight in layer.parameters()]
