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
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from policies.networks.gaussian_actor import GaussianActorConfig, LogStdBound
from policies.networks.images import ImageConfig
from policies.networks.q_ensemble import QEnsembleConfig
from policies.networks.trunks import NetworkKind
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.moving import soft_update
from robot_rl.core.seeding import derive_seed
from robot_rl.core.transition import Batch
from robot_rl.learners.cuda_graphs import UpdateResult
from robot_rl.learners.estimation import EstimationConfig, make_estimation
from robot_rl.learners.images import make_image_learning
from robot_rl.learners.networks import (
    batch_statistics,
    gaussian_actor,
    make_critic,
    seed_weights,
    without_invalid,
)
from robot_rl.learners.off_policy import (
    MaximumEntropyConfig,
    OffPolicyLearner,
    Temperature,
    normal_entropy,
)
from robot_rl.learners.optimization import Reduce, ScheduleConfig, check_ranges
from robot_rl.learners.values import RewardScaling, TargetRule, ValueConfig, make_values


def _flash_actor() -> GaussianActorConfig:
    return GaussianActorConfig(
        kind=NetworkKind.flash, log_std_min=-10.0, log_std_bound=LogStdBound.tanh, normalize=False
    )


def _flash_critic() -> QEnsembleConfig:
    return QEnsembleConfig(kind=NetworkKind.flash, normalize=False)


@dataclass(kw_only=True)
class FlashSACConfig(MaximumEntropyConfig):
    """Hyperparameters; the defaults are the authors' for one world on a CPU."""

    batch_size: int = 512
    """Transitions per update."""
    lr_schedule: ScheduleConfig = field(default_factory=lambda: ScheduleConfig(end=0.5))
    """Rise and fall of the step sizes."""
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
    """Meaning of the critics' outputs."""
    reward_scale: RewardScaling = RewardScaling.running
    """Divisor of sampled rewards."""
    noise_exponent: float = 2.0
    """Exploration noise is held for k steps with probability k to the minus this power."""
    noise_longest: int = 16
    """Largest number of steps that noise is held; 1 draws anew in every step."""
    actor: GaussianActorConfig = field(default_factory=_flash_actor)
    """Policy network."""
    critic: QEnsembleConfig = field(default_factory=_flash_critic)
    """Action-value networks."""
    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    """Loss of an encoder beside the actor's."""
    images: ImageConfig = field(default_factory=ImageConfig)
    """Images that are seen, and their encoder."""

    def __post_init__(self) -> None:
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
    """FlashSAC over a stochastic actor and a critic ensemble."""

    def __init__(
        self, config: FlashSACConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
        reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Make networks, targets, temperature and noise; arguments as of `OffPolicyLearner`."""
        self.config = config
        self.values = make_values(config.values, spec.device)
        seed_weights(seed)
        images = make_image_learning(config.images, spec)
        self.actor = gaussian_actor(config.actor, spec, images)
        self.critic = make_critic(config.critic, spec, self.values.width, images)
        super().__init__(
            config, spec, self.actor, self.critic, seed=seed, stream_seed=stream_seed,
            reduce=reduce, images=images,
        )  # fmt: skip
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.temperature = Temperature(
            config, target_entropy=config.with_target_entropy().target_entropy(spec.action_size),
            device=spec.device, reduce=reduce, interval=config.actor_interval,
        )  # fmt: skip
        self.estimation = make_estimation(config.estimation, config, self.actor, spec, reduce)
        self._noise = NoiseRepeat(
            spec.action_size, exponent=config.noise_exponent, longest=config.noise_longest,
            device=spec.device, seed=derive_seed(self.stream_seed, "exploration"),
        )  # fmt: skip
        self._targets = list(self.target_critic.parameters())
        self._sources = list(self.critic.parameters())

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1]."""
        obs = self.encoded(obs)
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

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """One step of the critics; in the last of `actor_interval`, first one of the actor.

        Returns:
            Detached metrics, the actor's those of its last step, and priorities, (B,).
        """
        self.updates += 1
        update_actor = self.updates % self.actor_interval == 0
        with self.products:
            return self.finish(self.cuda_graphs.run(self._step, batch, update_actor), batch)

    def _step(self, batch: Batch, update_actor: bool) -> UpdateResult:
        # Each step says for itself whose batch statistics are those of its rows.
        batch = without_invalid(batch) if self.uses_batch_norm else batch
        batch = self.encode(batch)
        actor_metrics = self._update_actor(self.of_actor(batch)) if update_actor else {}
        metrics, priority = self._update_critic(batch)
        soft_update(self._targets, self._sources, self.config.tau)
        return UpdateResult(metrics, actor_metrics, priority)

    def _update_actor(self, batch: Batch) -> dict[str, Tensor]:
        count, both = batch.weight.shape[0], _rows_and_successors(batch)
        with self.autocast():
            with (
                batch_statistics(self.actor),
                self.routing() as routing,
            ):  # in which successors take part, and only there
                actions, log_probs = self.actor.sample(both, self.generator)  # (2 B, A), (2 B,)
            action, log_prob = actions[:count], log_probs[:count]
            # The critics judge by running statistics: new actions must not move their scales.
            output = self.critic(batch.obs, action)  # (E, B, W)
        value = self.values.expectation(output).amin(0)  # (B,)
        alpha = self.temperature.value()
        rows = batch.weight.repeat(2)  # of batch and successors
        loss = routing.add_loss((batch.weight * (alpha * log_prob - value)).mean(), rows)
        self.actor_optimizer.step(loss)
        self.temperature.step(log_prob, batch.weight)
        entropy = -log_prob.detach().mean()
        return {
            "actor_loss": loss.detach(), "entropy": entropy, "temperature": alpha,
            **routing.metrics(rows),
        }  # fmt: skip

    def _update_critic(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        count, both = batch.weight.shape[0], _rows_and_successors(batch)
        with self.autocast():
            with torch.no_grad():  # by running statistics
                next_action, next_log_prob = self.actor.sample(batch.next_obs, self.generator)
            actions = torch.cat([batch.action, next_action])  # (2 B, A)
            # Rows and successors pass together, so that both are normalised alike. No parameter of
            # the target asks for gradients, and features of images leave their graph behind.
            still = {name: group.detach() for name, group in both.items()}
            with batch_statistics(self.critic, self.target_critic):
                next_output = self.target_critic(still, actions)[:, count:]  # (E, B, W)
                output = self.critic(both, actions)[:, :count]  # (E, B, W)
        target = self.values.target(
            next_output, self.reward_scale.scale(batch.reward), batch.discount,
            -self.temperature.value() * next_log_prob, TargetRule.min,
        )  # fmt: skip
        loss = self.values.loss(output, target, batch.weight)
        self.critic_optimizer.step(loss)
        q_mean = self.values.expectation(output.detach()).mean()
        priority = self.values.error(output.detach(), target)
        return {"critic_loss": loss.detach(), "q_mean": q_mean}, priority

    def _parts(self) -> dict[str, Any]:
        return super()._parts() | {
            "target_critic": self.target_critic, "temperature": self.temperature,
            "noise": self._noise,
        }  # fmt: skip


def _rows_and_successors(batch: Batch) -> Obs:
    """Groups of both, (2 B, ...)."""
    return {name: torch.cat([batch.obs[name], batch.next_obs[name]]) for name in batch.obs}


class NoiseRepeat:
    """Standard normals for N environments, each held for its own number of steps.

    Normals are held for k steps with P(k) proportional to k^-exponent, up to a longest k (after the
    zeta distribution of ez-greedy, Dabney et al. 2021, arXiv:2006.01782). Each environment has its
    own count and draws anew where an episode starts; the authors' code has one count for all.
    """

    def __init__(
        self, action_size: int, *, exponent: float, longest: int, device: torch.device, seed: int
    ) -> None:
        """Hold nothing yet; N is known with the first draw.

        Args:
            action_size: A.
            exponent: Of the power law.
            longest: Largest number of steps; 1 draws anew in every step.
            device: Where the noise lives.
            seed: Of everything that is drawn here.
        """
        weight = torch.arange(1, longest + 1, dtype=torch.float64, device=device) ** -exponent
        # Of a uniform number, the count of bounds below it is k - 1.
        self._bounds = (weight.cumsum(0) / weight.sum())[:-1].float()
        self._generator = torch.Generator(device=device).manual_seed(seed)
        self._noise = torch.zeros(0, action_size, device=device)
        self._left = torch.zeros(0, dtype=torch.int64, device=device)

    def begin(self, mask: Tensor) -> None:
        """Draw anew in the worlds, (N,) bool, where an episode starts."""
        if mask.shape == self._left.shape:
            self._left *= ~mask

    def draw(self, count: int) -> Tensor:
        """Noise of this step, (N, A)."""
        device, size = self._noise.device, self._noise.shape[1]
        if count != self._left.shape[0]:
            self._noise = torch.zeros(count, size, device=device)
            self._left = torch.zeros(count, dtype=torch.int64, device=device)
        # Drawn for all worlds and used where it is time: nothing waits for the device.
        fresh = torch.randn(count, size, generator=self._generator, device=device)
        chance = torch.rand(count, generator=self._generator, device=device)
        over = self._left == 0
        steps = torch.bucketize(chance, self._bounds) + 1
        self._noise = torch.where(over[:, None], fresh, self._noise)
        self._left = torch.where(over, steps, self._left) - 1
        return self._noise

    def state_dict(self) -> dict[str, Any]:
        """Noise, steps left and RNG."""
        return {
            "noise": self._noise.clone(),
            "left": self._left.clone(),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._noise = state["noise"].to(self._noise.device, copy=True)
        self._left = state["left"].to(self._left.device, copy=True)
        self._generator.set_state(state["generator"])
