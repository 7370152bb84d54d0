"""Soft actor-critic over a few choices (Christodoulou 2019, arXiv:1910.07207).

Where an action is one of K, nothing needs to be drawn in an update: the critics give a value to
every choice, the actor a probability, and expectations are sums over the K. Reads top to bottom:
act, update (critics, actor and temperature, targets). The paper's target entropy, 98 % of the
largest, leaves little to learn; here it is a share that is chosen. Time limits, n-step returns and
seams are resolved in the buffer, so that the target is always `reward + discount * value`.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from policies.networks.categorical_actor import CategoricalActorConfig
from policies.networks.images import ImageConfig
from policies.networks.q_ensemble import QEnsembleConfig
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.moving import moving_copy, soft_update
from robot_rl.core.transition import Batch
from robot_rl.learners.cuda_graphs import UpdateResult
from robot_rl.learners.images import make_image_learning
from robot_rl.learners.networks import Critic, categorical_actor, make_critic, seed_weights
from robot_rl.learners.off_policy import OffPolicyLearner, Temperature, TemperatureConfig
from robot_rl.learners.optimization import Reduce, check_ranges
from robot_rl.learners.values import inspect_values


@dataclass(kw_only=True)
class DiscreteSACConfig(TemperatureConfig):
    """Hyperparameters; the defaults are those of the paper but for the target entropy."""

    target_entropy_share: float = 0.3
    """Target entropy divided by that of choosing evenly, log(K)."""
    actor: CategoricalActorConfig = field(default_factory=CategoricalActorConfig)
    """Policy network."""
    critic: QEnsembleConfig = field(default_factory=QEnsembleConfig)
    """Networks of the values, K outputs each."""
    images: ImageConfig = field(default_factory=ImageConfig)
    """Images that are seen, and their encoder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, {"target_entropy_share": (0, 1)})


class DiscreteSAC(OffPolicyLearner):
    """Soft actor-critic of a categorical actor and critics that value every choice."""

    def __init__(
        self, config: DiscreteSACConfig, spec: EnvSpec, *, seed: int,
        stream_seed: int | None = None, reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Make networks, targets and temperature; arguments as of `SAC`.

        Raises:
            ConfigError: There are no choices, or an encoder estimates.
        """
        if spec.action_size < 2:
            raise ConfigError(
                f"learner=discrete_sac chooses among several, and there are {spec.action_size}"
            )
        if config.actor.encoder.estimate:
            raise ConfigError(
                f"learner.actor.encoder.estimate={list(config.actor.encoder.estimate)} has no loss "
                "in learner=discrete_sac; leave it out"
            )
        self.config = config
        seed_weights(seed)
        images = make_image_learning(config.images, spec)
        self.actor = categorical_actor(config.actor, spec, images)
        states = replace(spec, action_size=0)  # the choice is no input
        self.critic = make_critic(config.critic, states, spec.action_size, images)
        super().__init__(
            config, spec, self.actor, self.critic, seed=seed, stream_seed=stream_seed,
            reduce=reduce, images=images,
        )  # fmt: skip
        self.target_critic = moving_copy(self.critic)
        self.temperature = Temperature(
            config, target_entropy=config.target_entropy_share * math.log(spec.action_size),
            device=spec.device, reduce=reduce, interval=config.actor_interval,
        )  # fmt: skip
        self._targets = list(self.target_critic.parameters())
        self._sources = list(self.critic.parameters())

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Choices, (N, K): 1 at what is chosen and -1 elsewhere."""
        obs = self.encoded(obs)
        return self.actor.explore(obs, self.generator) if explore else self.actor(obs)

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """One step of the critics; in the last of `actor_interval`, of actor and temperature too.

        Returns:
            Detached metrics, the actor's those of its last step, and the critics' error of every
            row, (B,).
        """
        self.updates += 1
        update_actor = self.updates % self.actor_interval == 0
        with self.products:
            result = self.cuda_graphs.run(self._step, batch, update_actor)
            return self.finish(result, batch)

    def _step(self, batch: Batch, update_actor: bool) -> UpdateResult:
        with self.train_mode(batch) as batch:
            batch = self.encode(batch)
            alpha = self.temperature.value()
            target = self._target(batch, alpha)
            q = of_choice(self._values(self.critic, batch.obs), batch.action)  # (E, B)
            metrics, error = self.step_critics(q, target, batch.weight)
            rows, actor_metrics = self.of_actor(batch), dict[str, Tensor]()
            if update_actor:
                actor_metrics = self._update_actor(rows.obs, rows.weight, alpha)
            soft_update(self._targets, self._sources, self.config.tau)
        return UpdateResult(metrics, actor_metrics, error)

    @torch.no_grad()
    def _target(self, batch: Batch, alpha: Tensor) -> Tensor:
        """Reward and discounted value of what follows, entropy included, (B,)."""
        with self.autocast():
            log_probs = self.actor.log_probs(batch.next_obs)  # (B, K)
        value = self._values(self.target_critic, batch.next_obs).amin(0)  # (B, K)
        next_value = (log_probs.exp() * (value - alpha * log_probs)).sum(-1)
        return self.reward_scale.scale(batch.reward) + batch.discount * next_value

    def _update_actor(self, obs: Obs, weight: Tensor, alpha: Tensor) -> dict[str, Tensor]:
        with torch.no_grad(), self.eval_mode(self.critic):
            value = self._values(self.critic, obs).amin(0)  # (B, K)
        with self.routing() as routing, self.autocast():
            log_probs = self.actor.log_probs(obs)
        probs = log_probs.exp()
        loss = (weight * (probs * (alpha * log_probs - value)).sum(-1)).mean()
        loss = routing.add_loss(loss, weight)
        self.actor_optimizer.step(loss)
        entropy = -(probs * log_probs).sum(-1).detach()  # (B,)
        self.temperature.step(-entropy, weight)
        return {
            "actor_loss": loss.detach(), "entropy": entropy.mean(), "temperature": alpha,
            **routing.metrics(weight),
        }  # fmt: skip

    def _values(self, critic: Critic, obs: Obs) -> Tensor:
        """Values of all choices by all members, (E, B, K)."""
        rows = next(iter(obs.values()))
        nothing = torch.zeros(len(rows), 0, device=rows.device)
        return self.outputs(critic, obs, nothing).float()

    @torch.no_grad()
    def inspect(self, batch: Batch) -> dict[str, Tensor]:
        """Values of stored, random and policy choices, and the error of a plain target."""
        return inspect_values(
            batch if self.images is None else self.images.encoded(batch), self.actor,
            lambda obs, action: of_choice(self._values(self.critic, obs), action),
            lambda obs, action: of_choice(self._values(self.target_critic, obs), action).amin(0),
        )  # fmt: skip

    def _parts(self) -> dict[str, Any]:
        return super()._parts() | {
            "target_critic": self.target_critic, "temperature": self.temperature,
        }  # fmt: skip


def of_choice(values: Tensor, action: Tensor) -> Tensor:
    """Values, (E, B), of what rows of actions (B, K) choose, out of those of all (E, B, K)."""
    chosen = action.argmax(-1).expand(len(values), -1)
    # A NaN in a stored action would choose something: it must show in the loss.
    return values.gather(-1, chosen[..., None])[..., 0] + 0.0 * action.sum(-1)
