"""Soft actor-critic with automatic temperature (Haarnoja et al. 2018b, arXiv:1812.05905).

Reads top to bottom: act, update (critics, temperature, actor, targets), losses. Time limits, n-step
returns and seams are resolved in the buffer, so that the target is always `reward + discount *
value`.

Where published learners of this kind differ, there is a field: REDQ, RLPD, SERL, WSRL and FastSAC
are this file with other settings (docs/learners/sac.md). A penalty on the critics makes CQL and
Cal-QL (`cql.py`) and H2O (`h2o.py`) of it, other networks a residual (`residual.py`).
"""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import torch
from torch import Tensor

from policies.networks.gaussian_actor import GaussianActorConfig
from policies.networks.images import ImageConfig, ImageEncoderKind
from policies.networks.q_ensemble import QEnsembleConfig
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import Phase
from robot_rl.core.moving import moving_copy, soft_update
from robot_rl.core.transition import Batch
from robot_rl.learners.compiled.steps import CompiledSACStep, find_step
from robot_rl.learners.cuda_graphs import UpdateResult
from robot_rl.learners.estimation import EstimationConfig, make_estimation
from robot_rl.learners.images import ImageLearning, make_image_learning
from robot_rl.learners.networks import (
    Critic,
    StochasticActor,
    gaussian_actor,
    make_critic,
    repeat_obs,
    seed_weights,
    some_members,
)
from robot_rl.learners.off_policy import (
    ActorObjective,
    MaximumEntropyConfig,
    OffPolicyLearner,
    Temperature,
    reduce_members,
)
from robot_rl.learners.optimization import Reduce, check_ranges
from robot_rl.learners.values import TargetRule, ValueConfig, inspect_values, make_values

_logger = logging.getLogger(__name__)


class EntropyAt(Enum):
    """Observations at which the temperature measures the entropy of the policy."""

    obs = "obs"
    """At observations, with the actions of the actor's loss: the paper, RLPD."""
    next_obs = "next_obs"
    """At next observations, with the actions of the critics' target: SERL, WSRL, FastSAC."""


@dataclass(kw_only=True)
class TargetConfig:
    """Next value that the critics learn from."""

    rule: TargetRule = TargetRule.min
    """Members of the target critic that it is taken from."""
    members: int = 0
    """Members drawn anew for the target of each update (REDQ); 0 takes all of them."""
    replacement: bool = False
    """Draw them with replacement: the same member may come twice (SERL, WSRL)."""
    entropy: bool = True
    """Subtract temperature * log-probability from it."""

    def __post_init__(self) -> None:
        check_ranges(self, {"members": (0, 1e4)}, "learner.target")
        if self.members and self.rule is TargetRule.own:
            raise ConfigError(
                "learner.target.rule=own needs the targets of all members; leave "
                f"learner.target.members at 0, got {self.members}"
            )


@dataclass(kw_only=True)
class ActorStepsConfig:
    """Rows and updates in which actor and temperature step; the defaults are the paper's."""

    on_all: bool = False
    """Both step on all minibatches since their last step, joined (SERL, WSRL), not on the newest
    (RLPD)."""
    entropy_at: EntropyAt = EntropyAt.obs
    """Observations at which the temperature measures entropy."""
    temperature_every_update: bool = False
    """The temperature steps with the critics, not with the actor (FastSAC)."""
    critic_updates: int = 0
    """Updates in the beginning, or after an offline phase, in which the critics learn alone: of a
    policy that is worth keeping, which critics that do not know yet what it is worth, or have just
    lost their penalty, would spoil (ResFiT). A run that begins with the learner of another counts
    from its own beginning."""

    def __post_init__(self) -> None:
        check_ranges(self, {"critic_updates": (0, 1e12)}, "learner.actor_steps")
        if self.temperature_every_update and self.entropy_at is EntropyAt.obs:
            raise ConfigError(
                "learner.actor_steps.temperature_every_update needs entropy_at=next_obs: actions "
                "at the observations are drawn only when the actor steps"
            )


@dataclass(kw_only=True)
class SACConfig(MaximumEntropyConfig):
    """Hyperparameters; the defaults are those of the paper."""

    values: ValueConfig = field(default_factory=ValueConfig)
    """Mean, or distribution, that the critics predict."""
    target: TargetConfig = field(default_factory=TargetConfig)
    """Next value that the critics learn from."""
    actor_value: ActorObjective = ActorObjective.min
    """The actor ascends the smallest critic (paper), their mean, or the first."""
    actor_steps: ActorStepsConfig = field(default_factory=ActorStepsConfig)
    """Rows and updates in which actor and temperature step."""
    noiseless_share: float = 0.0
    """Share of the envs, rounded down, whose actions in training are the policy's mean, as when it
    is deployed: critics see there what swings below the noise of the others."""

    actor: GaussianActorConfig = field(default_factory=GaussianActorConfig)
    """Policy network."""
    critic: QEnsembleConfig = field(default_factory=QEnsembleConfig)
    """Action-value networks."""
    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    """Loss of an encoder beside the actor's."""
    images: ImageConfig = field(default_factory=ImageConfig)
    """Images that are seen, and their encoder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, {"noiseless_share": (0, 1)})
        if self.noiseless_share == 1:
            raise ConfigError("learner.noiseless_share=1 leaves no env that explores; ask for less")
        if self.images.privileged_critic and self.actor_steps.on_all:
            raise ConfigError(
                "learner.actor_steps.on_all=true keeps features that were encoded updates ago, "
                "through which the actor cannot train the encoder: set it to false, or "
                "learner.images.privileged_critic=false"
            )
        if self.target.members > self.critic.members and not self.target.replacement:
            raise ConfigError(
                f"learner.target.members {self.target.members} asks for more critics than "
                f"learner.critic.members has, {self.critic.members}"
            )


@dataclass(frozen=True, kw_only=True)
class CriticView:
    """The critics that count in this update, as a penalty sees them in the middle of it."""

    members: int
    """E: all members, over which a loss is summed."""
    at_data: Tensor
    """Values of the batch's own actions, (M, B), with a graph."""
    value: Callable[[Obs, Tensor], Tensor]
    """Values of other actions, groups (R, ...) and (R, A) -> (M, R), with a graph, of the same
    members."""
    sample: Callable[[Obs], tuple[Tensor, Tensor]]
    """Actions of the policy, (R, A), and their log-probabilities, (R,), without a graph."""


class CriticPenalty(Protocol):
    """Weighs the rows of a batch, and adds a loss to the critics'."""

    offline: bool
    """True if a learner may begin with stored experience alone with it."""

    next_actions: int
    """Actions drawn at every next observation, of which the largest value is the target's."""

    capturable: bool
    """True if an update with it keeps the rules of `learners/cuda_graphs.py`."""

    def coef(self, online_updates: int) -> float:
        """Share of it that is left, in [0, 1], so many updates after the run went online."""
        ...

    def weight(self, batch: Batch) -> Tensor:
        """Importance of the rows in the temporal difference, (B,); may learn from the batch."""
        ...

    def loss(self, batch: Batch, view: CriticView, coef: float) -> tuple[Tensor, dict[str, Tensor]]:
        """Addition to the critics' loss, 0-dim, and detached metrics.

        Args:
            batch: B rows.
            view: The critics.
            coef: Share of it that is left.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides later losses."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        ...


class SAC(OffPolicyLearner):
    """Soft actor-critic over any stochastic actor and any critic ensemble."""

    def __init__(
        self, config: SACConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
        reduce: Reduce | None = None, networks: tuple[StochasticActor, Critic] | None = None,
        images: ImageLearning | None = None,
        penalty: Callable[[torch.Generator], CriticPenalty] | None = None,
    ) -> None:  # fmt: skip
        """Make networks, targets and temperature.

        Args:
            config: Hyperparameters and networks.
            spec: Environment that is learned in.
            seed: Of the initial weights.
            stream_seed: Of exploration and sampled actions, where several processes share initial
                weights; None takes `seed`.
            reduce: Joins the gradients of several processes.
            networks: Actor and critic in place of those that the config describes.
            images: Encoder of images whose features these networks read.
            penalty: Makes what is added to the critics' loss, given the learner's random stream.
        """
        self.config = config
        self.values = make_values(config.values, spec.device)
        if networks is None:
            seed_weights(seed)
            images = make_image_learning(config.images, spec)
            networks = (
                gaussian_actor(config.actor, spec, images),
                make_critic(config.critic, spec, self.values.width, images),
            )
        elif images is None and config.images.encoder is not ImageEncoderKind.none:
            raise ConfigError(
                f"learner.images.encoder={config.images.encoder.value}: this learner brings its "
                "own networks, which read vectors only; choose one of SAC or TD3, such as "
                "learner=drq_sac"
            )
        self.actor, self.critic = networks
        super().__init__(
            config, spec, *networks, seed=seed, stream_seed=stream_seed, reduce=reduce,
            images=images,
        )  # fmt: skip
        self.target_critic = moving_copy(self.critic)
        self.temperature = Temperature(
            config, target_entropy=config.target_entropy(spec.action_size), device=spec.device,
            reduce=reduce,
            interval=1 if config.actor_steps.temperature_every_update else config.actor_interval,
        )  # fmt: skip
        self.penalty = None if penalty is None else penalty(self.generator)
        self.estimation = make_estimation(config.estimation, config, self.actor, spec, reduce)
        self._offline_updates = 0  # updates up to the end of the last offline phase
        self._targets = list(self.target_critic.parameters())
        self._sources = list(self.critic.parameters())
        self._actor_batches = ActorBatchQueue(spec.device)
        # A queue lies elsewhere in every update.
        self.cuda_graphs.allowed &= not config.actor_steps.on_all and (
            self.penalty is None or self.penalty.capturable
        )
        self.compiled_step, self.update_method = find_step(CompiledSACStep, self, SAC)

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1]; exploring, the first `noiseless_share` have no noise."""
        obs = self.encoded(obs)
        if not explore:
            return self.actor(obs)
        action = self.actor.explore(obs, self.generator)
        if calm := int(self.config.noiseless_share * len(action)):
            action[:calm] = self.actor({group: rows[:calm] for group, rows in obs.items()})
        return action

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """One step of the critics; in the last of `actor_interval`, of actor and temperature too.

        Returns:
            Detached metrics, the actor's those of its last step, and the critics' error of every
            row, (B,).
        """
        self.updates += 1
        if self._phase is Phase.offline:
            self._offline_updates = self.updates
        online_updates = self.updates - self._offline_updates
        update_actor = self.updates % self.actor_interval == 0
        critic_only = 0 < online_updates <= self.config.actor_steps.critic_updates
        penalty_coef = self._penalty_coef()
        compiled = self.compiled_step if penalty_coef == 0 else None
        if compiled is not None:
            result = compiled(batch, penalty_coef, update_actor, critic_only)
            return self.finish(result, batch)
        with self.products:
            result = self.cuda_graphs.run(
                self._step, batch, penalty_coef, update_actor, critic_only
            )
            return self.finish(result, batch)

    def _step(
        self, batch: Batch, penalty_coef: float, update_actor: bool, critic_only: bool
    ) -> UpdateResult:
        with self.train_mode(batch) as batch:
            batch = self.encode(batch)
            alpha = self.temperature.value()
            metrics, next_log_prob, error = self._update_critic(batch, alpha, penalty_coef)
            if self.config.actor_steps.temperature_every_update and not critic_only:
                self.temperature.step(next_log_prob, batch.weight)
                alpha = self.temperature.value()
            rows = self.actor_rows(self.of_actor(batch), next_log_prob, update_actor)
            actor_metrics: dict[str, Tensor] = {}
            if update_actor and not critic_only:
                actor_metrics = self._update_actor(rows, alpha)
            soft_update(self._targets, self._sources, self.config.tau)
        return UpdateResult(metrics, actor_metrics, error)

    def _update_critic(
        self, batch: Batch, alpha: Tensor, penalty_coef: float
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Metrics, log-probabilities of the next actions, (B,), and errors, (B,)."""
        penalty = self.penalty if penalty_coef > 0 else None
        target, next_log_prob = self._target(batch, alpha, penalty.next_actions if penalty else 1)
        weight = penalty.weight(batch) if penalty else batch.weight
        output = self.outputs(self.critic, batch.obs, batch.action)  # (E, B, W)
        loss = self.values.loss(output, target, weight)
        metrics = {"critic_loss": loss.detach()}
        if penalty:
            added, further = penalty.loss(batch, self._view(output), penalty_coef)
            loss, metrics = loss + added, metrics | further
        self.critic_optimizer.step(loss)
        output = output.detach()
        metrics["q_mean"] = self.values.expectation(output).mean()
        return metrics, next_log_prob, self.values.error(output, target)

    @torch.no_grad()
    def _target(self, batch: Batch, alpha: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Target of the critics, and log-probabilities of the actions behind it, (B,).

        Args:
            batch: B rows.
            alpha: Temperature.
            count: n, actions at every next observation, of which the largest value counts.
        """
        rule = self.config.target.rule
        next_obs = repeat_obs(batch.next_obs, count) if count > 1 else batch.next_obs
        next_action, next_log_prob = self._sample(next_obs)
        next_output = self._target_outputs(next_obs, next_action)  # (M, n B, W)
        if count > 1:  # the largest over actions of what the members agree on
            each = next_output.unflatten(1, (count, -1))  # (M, n, B, 1)
            if rule is not TargetRule.own:
                over = torch.amin if rule is TargetRule.min else torch.mean
                each = over(each, 0, keepdim=True)
            next_output = each.amax(1)
            next_log_prob = next_log_prob.view(count, -1).mean(0)
        use_entropy = self.config.target.entropy
        bonus = -alpha * next_log_prob if use_entropy else torch.zeros_like(next_log_prob)
        reward = self.reward_scale.scale(batch.reward)
        return self.values.target(next_output, reward, batch.discount, bonus, rule), next_log_prob

    def _target_outputs(self, obs: Obs, action: Tensor) -> Tensor:
        """Of the members of the target critic that count in this update."""
        index = self.drawn_members()
        if index is None:
            return self.outputs(self.target_critic, obs, action)
        with self.autocast():
            return some_members(self.target_critic, index, obs, action)

    def drawn_members(self) -> Tensor | None:
        """Members drawn on the device, for whose indices the host never waits; None: all."""
        members, count = self._targets[0].shape[0], self.config.target.members
        if count == 0:
            return None
        draw = {"generator": self.generator, "device": self.device}
        if self.config.target.replacement:
            return torch.randint(members, (count,), **draw)
        return torch.rand(members, **draw).argsort()[:count]

    def actor_rows(self, batch: Batch, next_log_prob: Tensor, update_actor: bool) -> "ActorBatch":
        """Rows that the actor learns from: this batch, or with `on_all` those that wait too.

        Args:
            batch: B rows.
            next_log_prob: Of the actions drawn at its next observations, (B,).
            update_actor: The actor steps now.
        """
        rows = ActorBatch(batch.obs, batch.weight, next_log_prob)
        if self.config.actor_steps.on_all:
            self._actor_batches.add(rows)
            rows = self._actor_batches.take() if update_actor else rows
        return rows

    def _update_actor(self, rows: "ActorBatch", alpha: Tensor) -> dict[str, Tensor]:
        with self.routing() as routing:
            action, log_prob = self._sample(rows.obs)
        output = self.objective_outputs(self.config.actor_value, rows.obs, action)
        value = reduce_members(self.values.expectation(output), self.config.actor_value)  # (B,)
        loss = (rows.weight * (alpha * log_prob - value)).mean()
        loss = routing.add_loss(loss, rows.weight)
        self.actor_optimizer.step(loss)  # the critics get no gradient from here
        log_prob = log_prob.detach()
        if not self.config.actor_steps.temperature_every_update:
            at_obs = self.config.actor_steps.entropy_at is EntropyAt.obs
            self.temperature.step(log_prob if at_obs else rows.next_log_prob, rows.weight)
        return {
            "actor_loss": loss.detach(), "entropy": -log_prob.mean(), "temperature": alpha,
            **routing.metrics(rows.weight),
        }  # fmt: skip

    def _sample(self, obs: Obs) -> tuple[Tensor, Tensor]:
        with self.autocast():
            return self.actor.sample(obs, self.generator)

    @property
    def changes_settings(self) -> bool:
        """As of `OffPolicyLearner`; while a penalty acts, nothing is compiled."""
        compiled = self.compiled_step is not None and self.penalty is None
        return self.products.changes_setting and not compiled

    @property
    def learns_offline(self) -> bool:
        """True if a penalty keeps values of untried actions in check."""
        return self.penalty is not None and self.penalty.offline

    def begin_phase(self, phase: Phase) -> None:
        """Offline the actor steps in every update; online the penalty may end."""
        self.follow_phase(phase)
        if not self.config.actor_steps.temperature_every_update:
            self.temperature.follow(self.actor_interval)

    def _penalty_coef(self) -> float:
        """Share of a penalty that is added in this update."""
        if self.penalty is None or self._phase is Phase.offline:
            return 0.0 if self.penalty is None else 1.0
        # Without an offline phase there is nothing that could end by and by.
        switch = self._offline_updates
        return self.penalty.coef(self.updates - 1 - switch if switch else sys.maxsize)

    def _view(self, output: Tensor) -> CriticView:
        """The members that a penalty is computed of: as many as the target draws, drawn anew."""
        index = self.drawn_members()
        at_data = self.values.expectation(output)

        def value(obs: Obs, action: Tensor) -> Tensor:
            if index is None:
                return self.values.expectation(self.outputs(self.critic, obs, action))
            with self.autocast():
                return self.values.expectation(some_members(self.critic, index, obs, action))

        return CriticView(
            members=len(at_data), at_data=at_data if index is None else at_data[index],
            value=value, sample=torch.no_grad()(self._sample),
        )  # fmt: skip

    @torch.no_grad()
    def inspect(self, batch: Batch) -> dict[str, Tensor]:
        """Values of stored, random and policy actions, and the error of a plain target."""
        return inspect_values(
            batch if self.images is None else self.images.encoded(batch), self.actor,
            lambda obs, action: self.values.expectation(self.critic(obs, action)),
            lambda obs, action: self.values.expectation(self.target_critic(obs, action)).amin(0),
        )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """All parts, the counters and RNG."""
        return {**super().state_dict(), "switch": self._offline_updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`: the next update is bit-equal."""
        super().load_state_dict(state)
        self._offline_updates = int(state.get("switch", 0))
        fades = self.penalty is not None and 0 < self.penalty.coef(1) < 1
        if (
            "switch" not in state
            and self.updates
            and (fades or self.config.actor_steps.critic_updates)
        ):
            _logger.warning(
                "this state, %d updates old, does not say when an offline phase ended, as newer "
                "ones do: learner.actor_steps.critic_updates=%d counts from its first update, and "
                "a penalty with learner.conservatism.fade_updates has ended; do the offline phase "
                "again if that matters", self.updates, self.config.actor_steps.critic_updates,
            )  # fmt: skip

    def _parts(self) -> dict[str, Any]:
        return super()._parts() | {
            "target_critic": self.target_critic, "temperature": self.temperature,
            "pending": self._actor_batches,
            **({} if self.penalty is None else {"penalty": self.penalty}),
        }  # fmt: skip


@dataclass(frozen=True)
class ActorBatch:
    """Part of a minibatch that the actor learns from, B rows."""

    obs: Obs
    """Groups (B, ...)."""
    weight: Tensor
    """(B,)."""
    next_log_prob: Tensor
    """Of the actions drawn at the next observations, (B,)."""


class ActorBatchQueue:
    """Minibatches since the actor's last step, for `actor_steps.on_all`."""

    def __init__(self, device: torch.device) -> None:
        """Begin empty.

        Args:
            device: Of the tensors.
        """
        self._device = device
        self._waiting: list[ActorBatch] = []

    def add(self, rows: ActorBatch) -> None:
        """Append a minibatch."""
        self._waiting.append(rows)

    def take(self) -> ActorBatch:
        """Remove all that waits, and return it joined."""
        waiting, self._waiting = self._waiting, []
        if len(waiting) == 1:
            return waiting[0]
        return ActorBatch(
            {name: torch.cat([one.obs[name] for one in waiting]) for name in waiting[0].obs},
            torch.cat([one.weight for one in waiting]),
            torch.cat([one.next_log_prob for one in waiting]),
        )

    def state_dict(self) -> list[dict[str, Any]]:
        """Minibatches that wait."""
        return [dict(vars(rows)) for rows in self._waiting]

    def load_state_dict(self, state: Sequence[dict[str, Any]]) -> None:
        """Restore `state_dict`."""
        self._waiting = [
            ActorBatch(
                {name: group.to(self._device) for name, group in entry["obs"].items()},
                entry["weight"].to(self._device),
                entry["next_log_prob"].to(self._device),
            )
            for entry in state
        ]
