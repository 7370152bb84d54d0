"""Implicit Q-learning (Kostrikov et al. 2021, arXiv:2110.06169): never asks about other actions.

A value of states is fitted to an upper expectile of Q over stored actions (eq. 5), Q to rewards and
that value (eq. 6), the policy to stored actions, the more the better they turned out (eq. 7). All
three losses are taken of the weights as they were before the update.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from policies.networks.deterministic_actor import NormalActorConfig
from policies.networks.q_ensemble import QEnsemble, QEnsembleConfig
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.moving import moving_copy, soft_update
from robot_rl.core.transition import Batch
from robot_rl.learners.cuda_graphs import UpdateResult
from robot_rl.learners.networks import (
    make_critic,
    normal_actor,
    seed_weights,
    some_members,
    uses_batch_norm,
)
from robot_rl.learners.off_policy import OffPolicyConfig, OffPolicyLearner
from robot_rl.learners.optimization import Optimizer, Reduce, check_ranges
from robot_rl.learners.values import inspect_values


@dataclass(kw_only=True)
class IQLConfig(OffPolicyConfig):
    """Hyperparameters; the defaults are the paper's for locomotion."""

    expectile: float = 0.7
    """Expectile of Q that the value of a state is: 0.5 is the mean, 1 the maximum; AntMaze 0.9."""
    advantage_scale: float = 3.0
    """beta: how much more an action weighs that is better by one. AntMaze: 10, kitchen: 0.5."""
    weight_limit: float = 100.0
    """Largest weight of an action."""
    value_lr: float = 3e-4
    """Step size of the value of states."""
    target_members: int = 0
    """Critics drawn anew, with replacement, whose least value counts; 0 takes all of them."""
    actor: NormalActorConfig = field(default_factory=NormalActorConfig)
    """Policy network."""
    critic: QEnsembleConfig = field(default_factory=QEnsembleConfig)
    """Action-value networks."""
    value: QEnsembleConfig = field(default_factory=lambda: QEnsembleConfig(members=1))
    """Network of the value of states; one member."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.expectile < 1:
            raise ConfigError(f"learner.expectile must lie in (0, 1), got {self.expectile}")
        check_ranges(self, {
            "advantage_scale": (0, 1e3), "weight_limit": (1, 1e9), "value_lr": (0, 1),
            "target_members": (0, 1e4),
        })  # fmt: skip
        if self.value.members != 1:
            raise ConfigError(
                f"learner.value.members must be 1, got {self.value.members}; critics are counted "
                "by learner.critic.members"
            )


class IQL(OffPolicyLearner):
    """Three networks: actor, critics of actions, value of states."""

    learns_offline = True
    """Values of actions that nobody has tried are never asked for."""

    def __init__(
        self, config: IQLConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
        reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Make networks and targets; arguments as of `OffPolicyLearner`."""
        self.config = config
        seed_weights(seed)
        self.actor = normal_actor(config.actor, spec)
        self.critic = make_critic(config.critic, spec)
        super().__init__(
            config, spec, self.actor, self.critic, seed=seed, stream_seed=stream_seed,
            reduce=reduce,
        )  # fmt: skip
        group = self.critic.group
        value = QEnsemble(config.value, group, spec.groups[group].shape[0], 0)
        self.value = value.to(spec.device).train(False)
        self.uses_batch_norm |= uses_batch_norm(self.value)
        self.target_critic = moving_copy(self.critic)
        self.value_optimizer = Optimizer(
            self.value.parameters(), config.value_lr, config, after_step=self.value.constrain,
            reduce=reduce,
        )  # fmt: skip
        self._targets = list(self.target_critic.parameters())
        self._sources = list(self.critic.parameters())

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1]."""
        return self.actor.explore(obs, self.generator) if explore else self.actor(obs)

    def observe_stored(self, obs: Obs) -> None:
        """Take observations, groups (B, ...), into the normalisers."""
        super().observe_stored(obs)
        self.value.update_statistics(obs)

    @torch.no_grad()
    def inspect(self, batch: Batch) -> dict[str, Tensor]:
        """Values of stored, random and policy actions, and the error of the critics' own target."""
        scaled = replace(batch, reward=self.reward_scale.scale(batch.reward))
        return inspect_values(
            scaled, self.actor, lambda obs, action: self.plain_outputs(self.critic, obs, action),
            lambda obs, _: self._v(obs),
        )  # fmt: skip

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """One step of the value, of the critics and, every `actor_interval`, of the actor.

        Returns:
            Detached metrics, the actor's those of its last step, and the critics' error of every
            row, (B,).
        """
        self.updates += 1
        update_actor = self.updates % self.actor_interval == 0
        with self.products:
            return self.finish(self.cuda_graphs.run(self._step, batch, update_actor), batch)

    def _step(self, batch: Batch, update_actor: bool) -> UpdateResult:
        with self.train_mode(batch, self.value) as batch:
            weight = batch.weight
            with torch.no_grad():
                best = self._least(batch)  # (B,): of the stored action
                reward = self.reward_scale.scale(batch.reward)
                target = reward + batch.discount * self._v(batch.next_obs)
            value = self._v(batch.obs)  # (B,)
            advantage = best - value
            # |tau - 1(u < 0)| u^2: shortfalls weigh more, so that the value lies high among the Qs.
            side = torch.where(
                advantage.detach() < 0, 1 - self.config.expectile, self.config.expectile
            )
            value_loss = (weight * side * advantage * advantage).mean()
            advantage = advantage.detach()

            q = self.plain_outputs(self.critic, batch.obs, batch.action)  # (E, B)
            error = q - target
            critic_loss = (weight * error * error).mean(-1).sum()  # each critic as if it were alone
            actor_metrics = self._update_actor(batch, advantage) if update_actor else {}
            self.value_optimizer.step(value_loss)
            self.critic_optimizer.step(critic_loss)
            soft_update(self._targets, self._sources, self.config.tau)
            metrics = {
                "critic_loss": critic_loss.detach(), "value_loss": value_loss.detach(),
                "q_mean": q.detach().mean(), "advantage": advantage.mean(),
            }  # fmt: skip
            return UpdateResult(metrics, actor_metrics, error.detach().abs().mean(0))

    def _update_actor(self, batch: Batch, advantage: Tensor) -> dict[str, Tensor]:
        """Likelihood of stored actions, weighed by how good they turned out."""
        count = torch.exp(self.config.advantage_scale * advantage)
        count = count.clamp(max=self.config.weight_limit)  # (B,)
        with self.autocast(), self.routing() as routing:
            log_prob = self.actor.log_prob(batch.obs, batch.action)  # (B,)
        loss = routing.add_loss(-(batch.weight * count * log_prob).mean(), batch.weight)
        self.actor_optimizer.step(loss)
        return {
            "actor_loss": loss.detach(), "action_weight": count.mean(),
            "log_likelihood": log_prob.detach().mean(), **routing.metrics(batch.weight),
        }  # fmt: skip

    def _least(self, batch: Batch) -> Tensor:
        """Least value of the stored action among some or all target critics, (B,)."""
        members, count = self._targets[0].shape[0], self.config.target_members
        if count == 0:
            return self.plain_outputs(self.target_critic, batch.obs, batch.action).amin(0)
        index = torch.randint(members, (count,), generator=self.generator, device=self.device)
        with self.autocast():
            picked = some_members(self.target_critic, index, batch.obs, batch.action)
        return picked.squeeze(-1).float().amin(0)

    def _v(self, obs: Obs) -> Tensor:
        group = obs[self.value.group]
        return self.plain_outputs(self.value, obs, group.new_empty(len(group), 0))[0]  # (B,)

    def _parts(self) -> dict[str, Any]:
        return super()._parts() | {
            "target_critic": self.target_critic, "value": self.value,
            "value_optimizer": self.value_optimizer,
        }  # fmt: skip
