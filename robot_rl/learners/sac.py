"""Soft actor-critic with automatic temperature (Haarnoja et al. 2018b, arXiv:1812.05905).

Reads top to bottom in the order in which things happen: act, observe, update (critics, temperature,
actor, targets). Networks are handed in; time limits, n-step returns and seams are resolved in the
buffer, so that the target is always `reward + discount * value`.

Where published learners of this kind differ, there is a field: REDQ, RLPD, SERL, WSRL and FastSAC
are this file with other settings (docs/learners.md). A penalty on the critics, which is handed in,
makes CQL and Cal-QL of it (`offline/cql.py`) and H2O (`offline/h2o.py`).
"""

import logging
import sys
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import MonteCarloReturns, Phase
from robot_rl.core.transition import Batch
from robot_rl.learners.captured import Outcome
from robot_rl.learners.networks import Critic, StochasticActor, some_members
from robot_rl.learners.off_policy_learner import OffPolicyLearner
from robot_rl.learners.offline.critic_penalty import CriticPenalty, CriticView
from robot_rl.learners.offline.inspection import inspect_values
from robot_rl.learners.optimization import Reduce, autocast, moving_copy, soft_update
from robot_rl.learners.pending import Pending, Seen
from robot_rl.learners.repeated_rows import repeated
from robot_rl.learners.temperature import MaximumEntropyConfig, Temperature
from robot_rl.learners.values import TargetRule, ValueConfig, make_values

_logger = logging.getLogger(__name__)


class ActorValue(Enum):
    """Which value of the ensemble the actor climbs."""

    min = "min"
    mean = "mean"


class EntropyAt(Enum):
    """Where the temperature measures the entropy of the policy."""

    obs = "obs"
    """At observations, with the actions of the actor's loss: the paper, RLPD."""
    next_obs = "next_obs"
    """At next observations, with the actions of the critics' target: SERL, WSRL, FastSAC."""


@dataclass(kw_only=True)
class SACConfig(MaximumEntropyConfig):
    """Hyperparameters; the defaults are those of the paper."""

    values: ValueConfig = field(default_factory=ValueConfig)
    """Whether critics predict a mean or a distribution."""
    target_rule: TargetRule = TargetRule.min
    """Which members of the target critic the next value is taken from."""
    target_members: int = 0
    """Members drawn anew for the target of each update (REDQ); 0 takes all of them."""
    target_replacement: bool = False
    """Draw them with replacement: the same member may come twice (SERL, WSRL)."""
    entropy_in_target: bool = True
    """Subtract temperature * log-probability from the next value."""
    actor_value: ActorValue = ActorValue.min
    """The actor climbs the smallest critic (paper) or their mean."""
    actor_on_all: bool = False
    """Actor and temperature step on all minibatches since their last step, joined (SERL, WSRL), not
    on the newest (RLPD)."""
    entropy_at: EntropyAt = EntropyAt.obs
    """Where the temperature measures entropy."""
    critic_updates: int = 0
    """Updates in the beginning, or after an offline phase, in which the critics learn alone: of a
    policy that is worth keeping, which critics that do not know yet what it is worth, or have just
    lost their penalty, would spoil (ResFiT). A run that begins with the learner of another counts
    from its own beginning."""
    temperature_every_update: bool = False
    """The temperature steps with the critics, not with the actor (FastSAC)."""

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other."""
        super().__post_init__()
        if self.critic_updates < 0:
            raise ConfigError(f"learner.critic_updates must be >= 0, got {self.critic_updates}")
        if self.target_members < 0:
            raise ConfigError(f"learner.target_members must be >= 0, got {self.target_members}")
        if self.target_members and self.target_rule is TargetRule.own:
            raise ConfigError(
                "learner.target_rule=own needs the targets of all members; leave "
                f"target_members at 0, got {self.target_members}"
            )
        if self.temperature_every_update and self.entropy_at is EntropyAt.obs:
            raise ConfigError(
                "learner.temperature_every_update needs entropy_at=next_obs: actions at the "
                "observations are drawn only when the actor steps"
            )


class SAC(OffPolicyLearner):
    """Soft actor-critic over any actor and any critic ensemble."""

    def __init__(
        self, config: SACConfig, actor: StochasticActor, critic: Critic, *, action_size: int,
        device: torch.device, seed: int, reduce: Reduce | None = None,
        penalty: Callable[[torch.Generator], CriticPenalty] | None = None,
        monte_carlo_returns: MonteCarloReturns | None = None,
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
            penalty: Makes what is added to the critics' loss, given the learner's random stream.
            monte_carlo_returns: What that needs of the buffer.
        """
        self.config = config
        self.actor = actor.to(device)
        self.critic = critic.to(device)
        super().__init__(config, self.actor, self.critic, device=device, seed=seed, reduce=reduce)
        self.target_critic = moving_copy(self.critic)
        self.values = make_values(config.values, device)
        self.temperature = Temperature(
            config, action_size=action_size, device=device, reduce=reduce,
            interval=1 if config.temperature_every_update else config.actor_interval,
        )  # fmt: skip
        self.penalty = None if penalty is None else penalty(self._generator)
        self.monte_carlo_returns = monte_carlo_returns
        self._phase = Phase.online
        self._switch = 0  # updates up to the end of the last offline phase
        self._targets = list(self.target_critic.parameters())
        self._sources = list(self.critic.parameters())
        self._pending = Pending(device)
        # What waits from update to update lies elsewhere each time.
        self.captured.allowed = not config.actor_on_all and (
            self.penalty is None or self.penalty.capturable
        )

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1]."""
        return self.actor.explore(obs, self._generator) if explore else self.actor(obs)

    def begin(self, mask: Tensor) -> None:
        """Nothing to prepare: exploration is drawn anew in every step."""

    @property
    def learns_offline(self) -> bool:
        """Whether a penalty keeps values of actions that nobody has tried in check."""
        return self.penalty is not None and self.penalty.offline

    def begin_phase(self, phase: Phase) -> None:
        """Offline the actor steps in every update; online the penalty may end."""
        if (phase is Phase.offline) != (self._phase is Phase.offline):
            self.captured.forget()  # optimisers count other numbers of updates per step
        self._phase = phase
        self._actor_interval = 1 if phase is Phase.offline else self.config.actor_interval
        self._actor_optimizer.interval = self._actor_interval
        if not self.config.temperature_every_update:
            self.temperature.follow(self._actor_interval)

    @torch.no_grad()
    def inspect(self, batch: Batch) -> dict[str, Tensor]:
        """Values of stored, random and policy actions, and the error of a plain target."""
        return inspect_values(
            batch, self.actor,
            lambda obs, action: self.values.expectation(self.critic(obs, action)),
            lambda obs, action: self.values.expectation(self.target_critic(obs, action)).amin(0),
        )  # fmt: skip

    def _decide(self) -> tuple[Hashable, ...]:
        """How much of a penalty, whether it is the actor's turn, whether critics learn alone."""
        share = self._share_of_penalty()
        if self._phase is Phase.offline:
            self._switch = self.updates
        online = self.updates - self._switch
        late = self.updates % self._actor_interval == 0
        return share, late, 0 < online <= self.config.critic_updates

    def _learn(self, batch: Batch, share: float, late: bool, alone: bool) -> Outcome:
        """One step of the critics, in the last of `actor_interval` of actor and temperature too.

        Returns:
            Metrics, and the critics' error of every row, (B,).
        """
        alpha = self.temperature.value()
        metrics, seen, error = self._update_critic(batch, alpha, share)
        if self.config.temperature_every_update and not alone:
            self.temperature.step(seen.next_log_prob, seen.weight)
            alpha = self.temperature.value()
        if self.config.actor_on_all:
            self._pending.add(seen)
            seen = self._pending.take() if late else seen
        acting = self._update_actor(seen, alpha) if late and not alone else {}
        soft_update(self._targets, self._sources, self.config.tau)
        return metrics, acting, error

    def _update_critic(
        self, batch: Batch, alpha: Tensor, share: float
    ) -> tuple[dict[str, Tensor], Seen, Tensor]:
        penalty = self.penalty if share > 0 else None
        count = 1 if penalty is None else penalty.next_actions
        target, next_log_prob = self._target(batch, alpha, count)
        weight = batch.weight if penalty is None else penalty.weight(batch)
        output = self._outputs(self.critic, batch.obs, batch.action)  # (E, B, W)
        loss = self.values.loss(output, target, weight)
        metrics = {"critic_loss": loss.detach()}
        if penalty is not None:
            added, further = penalty.loss(batch, self._view(output), share)
            loss, metrics = loss + added, metrics | further
        self._critic_optimizer.step(loss)
        output = output.detach()
        metrics["q_mean"] = self.values.expectation(output).mean()
        error = self.values.error(output, target)
        return metrics, Seen(batch.obs, batch.weight, next_log_prob), error

    def _share_of_penalty(self) -> float:
        """How much of a penalty is added in this update."""
        if self.penalty is None or self._phase is Phase.offline:
            return 0.0 if self.penalty is None else 1.0
        # Without an offline phase there is nothing that could end by and by.
        return self.penalty.share(self.updates - 1 - self._switch if self._switch else sys.maxsize)

    @torch.no_grad()
    def _target(self, batch: Batch, alpha: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """What the critics move to, and the log-probabilities of the actions behind it, (B,).

        Args:
            batch: B rows.
            alpha: Temperature.
            count: n, actions at every next observation, of which the largest value counts.
        """
        rule = self.config.target_rule
        next_obs = repeated(batch.next_obs, count)
        next_action, next_log_prob = self._sample(next_obs)
        next_output = self._next_outputs(next_obs, next_action)  # (M, n B, W)
        if count > 1:  # the largest over actions of what the members agree on
            each = next_output.unflatten(1, (count, -1))  # (M, n, B, 1)
            if rule is not TargetRule.own:
                over = torch.amin if rule is TargetRule.min else torch.mean
                each = over(each, 0, keepdim=True)
            next_output = each.amax(1)
            next_log_prob = next_log_prob.view(count, -1).mean(0)
        paid = self.config.entropy_in_target
        bonus = -alpha * next_log_prob if paid else torch.zeros_like(next_log_prob)
        reward = self.reward_scale.scale(batch.reward)
        return self.values.target(next_output, reward, batch.discount, bonus, rule), next_log_prob

    def _view(self, output: Tensor) -> CriticView:
        """The members that a penalty is computed of: as many as the target draws, drawn anew."""
        index = self._drawn_members()
        at_data = self.values.expectation(output)

        def value(obs: Obs, action: Tensor) -> Tensor:
            if index is None:
                return self.values.expectation(self._outputs(self.critic, obs, action))
            with autocast(self._device, self.config.precision):
                return self.values.expectation(some_members(self.critic, index, obs, action))

        return CriticView(
            members=len(at_data), at_data=at_data if index is None else at_data[index],
            value=value, sample=torch.no_grad()(self._sample),
        )  # fmt: skip

    def _next_outputs(self, obs: Obs, action: Tensor) -> Tensor:
        """Of the members of the target critic that count in this update."""
        index = self._drawn_members()
        if index is None:
            return self._outputs(self.target_critic, obs, action)
        with autocast(self._device, self.config.precision):
            return some_members(self.target_critic, index, obs, action)

    def _drawn_members(self) -> Tensor | None:
        """Members drawn on the device, for whose indices the host never waits; None: all."""
        members, count = self._targets[0].shape[0], self.config.target_members
        if count == 0:
            return None
        draw = {"generator": self._generator, "device": self._device}
        if self.config.target_replacement:
            return torch.randint(members, (count,), **draw)
        return torch.rand(members, **draw).argsort()[:count]

    def _update_actor(self, seen: Seen, alpha: Tensor) -> dict[str, Tensor]:
        action, log_prob = self._sample(seen.obs)
        with self._at_rest(self.critic):
            q = self.values.expectation(self._outputs(self.critic, seen.obs, action))  # (E, B)
        value = q.amin(0) if self.config.actor_value is ActorValue.min else q.mean(0)
        loss = (seen.weight * (alpha * log_prob - value)).mean()
        self._actor_optimizer.step(loss)  # the critics get no gradient from here
        log_prob = log_prob.detach()
        if not self.config.temperature_every_update:
            at_obs = self.config.entropy_at is EntropyAt.obs
            self.temperature.step(log_prob if at_obs else seen.next_log_prob, seen.weight)
        return {"actor_loss": loss.detach(), "entropy": -log_prob.mean(), "temperature": alpha}

    def _sample(self, obs: Obs) -> tuple[Tensor, Tensor]:
        with autocast(self._device, self.config.precision):
            return self.actor.sample(obs, self._generator)

    def _outputs(self, critic: Critic, obs: Obs, action: Tensor) -> Tensor:
        with autocast(self._device, self.config.precision):
            return critic(obs, action)  # (E, B, W)

    def state_dict(self) -> dict[str, Any]:
        """All parts, the counters and RNG."""
        return {**super().state_dict(), "switch": self._switch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`: the next update is bit-equal."""
        super().load_state_dict(state)
        self._switch = int(state.get("switch", 0))
        fades = self.penalty is not None and 0 < self.penalty.share(1) < 1
        if "switch" not in state and self.updates and (fades or self.config.critic_updates):
            _logger.warning(
                "this state, %d updates old, does not say when an offline phase ended, as newer "
                "ones do: learner.critic_updates=%d counts from its first update, and a penalty "
                "with learner.conservatism.fade_updates has ended; do the offline phase again if "
                "that matters", self.updates, self.config.critic_updates,
            )  # fmt: skip

    def _parts(self) -> dict[str, Any]:
        return super()._parts() | {
            "target_critic": self.target_critic, "temperature": self.temperature,
            "pending": self._pending, **({} if self.penalty is None else {"penalty": self.penalty}),
        }  # fmt: skip
