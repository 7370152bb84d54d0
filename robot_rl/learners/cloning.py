"""Cloning: a network learns to answer observations as demonstrations did (`BC`, `Flow`, `ACT`).

The kinds differ in network and loss: the mean of the actions, their likelihood, the velocity of a
flow, a transformer of chunks. Observations are normalised by the statistics of the demonstrations,
taken once. A loss is a mean over the entries that count: a chunk that begins near the end of an
episode is longer than what was demonstrated, and what lies beyond is left out.
"""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

from policies.networks.act import ACTPolicy, ACTPolicyConfig
from policies.networks.cloned_mlp import ClonedMLP, ClonedMLPConfig
from policies.networks.flow import FlowPolicy, FlowPolicyConfig
from policies.networks.images import ImageConfig, SeeingNetwork
from policies.networks.inputs import make_normalizer
from policies.networks.queued import QueuedPolicy
from policies.networks.trunks import NetworkConfig
from robot_rl.core.env import EnvSpec, EnvStep, Obs
from robot_rl.core.episodic import begin_episodes
from robot_rl.core.errors import ConfigError
from robot_rl.core.moving import soft_update
from robot_rl.core.seeding import derive_seed
from robot_rl.core.transition import Batch
from robot_rl.learners.images import ImageLearning, check_no_critic, make_image_learning
from robot_rl.learners.networks import seed_weights
from robot_rl.learners.off_policy import BatchLearner
from robot_rl.learners.optimization import DescentConfig, Optimizer, Reduce, autocast, check_ranges

Loss = Callable[[Any, Obs, Tensor, Tensor, torch.Generator], Tensor]
"""(network, obs, chunk (B, H, A), valid (B, H), generator) -> 0-dim."""


class CloningLoss(Enum):
    """Loss of a network that answers with an action."""

    mse = "mse"
    """Squared error of the mean."""
    nll = "nll"
    """Negative log-likelihood of a normal distribution whose spread is learned too."""


@dataclass(kw_only=True)
class CloningConfig(DescentConfig):
    """Settings of learning from demonstrations."""

    batch_size: int = 256
    """Chunks per update."""
    actor_lr: float = 1e-3
    """Step size."""
    average: float = 0.0
    """Share that a running mean of the weights keeps in every update; it is what acts, is evaluated
    and deployed. 0 takes the weights as they are."""
    chunk_length: int = 1
    """H: actions that one run of the network gives."""
    replan_interval: int = 1
    """Actions that are done before it runs again."""
    images: ImageConfig = field(default_factory=ImageConfig)
    """Images that are seen beside the vectors."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, {
            "batch_size": (1, 1e9), "actor_lr": (0, 1), "average": (0, 0.999999),
            "chunk_length": (1, 1000), "replan_interval": (1, self.chunk_length),
        })  # fmt: skip
        check_no_critic(self.images)


class Cloning(BatchLearner):
    """A `Learner` whose batches are demonstrations; rewards and what came next do not count."""

    critic_groups: tuple[str, ...] = ()
    gamma = 1.0
    n_step = 1

    def __init__(
        self, config: CloningConfig, spec: EnvSpec, network: Callable[..., nn.Module],
        actor: NetworkConfig | ACTPolicyConfig, loss: Loss, *, seed: int,
        stream_seed: int | None = None, reduce: Reduce | None = None,
        ensemble_decay: float | None = None,
    ) -> None:  # fmt: skip
        """Make the network, and the queue of what it plans.

        Args:
            config: Hyperparameters.
            spec: Environment that is learned for.
            network: Makes the network, of its config, the width of what it sees, A and H.
            actor: Config of the network.
            loss: Loss that it is trained by.
            seed: Of the initial weights.
            stream_seed: Of what losses draw, where several processes share initial weights; None
                takes `seed`.
            reduce: Joins the gradients of several processes.
            ensemble_decay: Of the weights of plans that are averaged; None does the newest.
        """
        self.config = config
        self.samples_per_update = config.batch_size
        self.chunk_length = length = config.chunk_length
        """H: actions in a demonstrated chunk."""
        self.updates = 0
        seed_weights(seed)
        self.images = make_image_learning(config.images, spec)
        sizes = spec.groups["actor"].shape[0], spec.action_size, length
        made = _network(network, actor, sizes, self.images)
        self.network: Any = made.to(spec.device)
        self.actor_groups: tuple[str, ...] = getattr(made, "groups", ("actor",))
        """Observation groups that are seen."""
        self._loss = loss
        shared = {id(buffer): buffer for buffer in self.network.buffers()}
        self._average: Any = self.network
        if config.average > 0:
            self._average = copy.deepcopy(self.network, shared).requires_grad_(False)
        self._policy = self._average if length == 1 else QueuedPolicy(
            self._average, chunk_length=length, replan_interval=config.replan_interval,
            ensemble_decay=ensemble_decay,
        )  # fmt: skip
        self._drops = any(isinstance(m, nn.Dropout) and m.p > 0 for m in self.network.modules())
        self._seed = seed if stream_seed is None else stream_seed
        self.network.eval()
        self._average.eval()
        self._optimizer = Optimizer(
            self.network.parameters(), config.actor_lr, config,
            after_step=self.network.constrain, reduce=reduce,
        )  # fmt: skip
        self._device = spec.device
        self.generator = torch.Generator(device=spec.device)
        self.generator.manual_seed(derive_seed(self._seed, "losses"))

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1]; nothing is explored."""
        return self._policy(obs)

    def begin(self, mask: Tensor) -> None:
        """Forget what was planned in the masked worlds, (N,) bool."""
        begin_episodes(self._policy, mask)

    def observe(self, step: EnvStep) -> None:
        """Nothing: the statistics are those of the demonstrations."""

    def observe_stored(self, obs: Obs) -> None:
        """Take demonstrated observations, groups (N, D), into the normaliser."""
        self.network.update_statistics(obs)

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], None]:
        """One step down the loss.

        Args:
            batch: `extra` has `chunk` (B, H, A) and `valid` (B, H) where H is more than 1.

        Returns:
            Detached metrics, and no priorities.
        """
        with self._training():
            with autocast(self._device, self.config.precision):
                shown = self._demonstrated(batch)
                obs = batch.obs
                if self.images is not None:
                    obs = self.images.shifted(obs, self.generator)
                loss = self._loss(*_bare(self.network, obs), *shown, self.generator)
            self._optimizer.step(loss)
        self.updates += 1
        if self._average is not self.network:
            sources = list(self.network.parameters())
            soft_update(list(self._average.parameters()), sources, 1 - self.config.average)
            with torch.no_grad():
                self._average.constrain()
        return {"actor_loss": loss.detach()}, None

    @torch.no_grad()
    def held_out_loss(self, batch: Batch) -> Tensor:
        """Loss of what acts, on a batch that it does not learn from; the same draws every time."""
        generator = torch.Generator(device=self._device).manual_seed(0)
        shown = self._demonstrated(batch)
        return self._loss(*_bare(self._average, batch.obs), *shown, generator)

    def policy(self) -> nn.Module:
        """The network that acts, or the queue around it."""
        return self._policy

    def _parts(self) -> dict[str, Any]:
        return {"actor": self.network, "average": self._average, "optimizer": self._optimizer}

    @contextmanager
    def _training(self) -> Iterator[None]:
        """Batch norm sees demonstrations; dropout draws by the update: torch's RNG is not saved."""
        on_cuda = self._device.type == "cuda"
        devices = [self._device] if on_cuda else []
        with torch.random.fork_rng(devices) if self._drops else nullcontext():
            if self._drops:
                torch.manual_seed(derive_seed(self._seed, f"dropout {self.updates}"))
            self.network.train()
            yield
            self.network.eval()

    def _demonstrated(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Chunk (B, H, A), and which of its actions were demonstrated, (B, H) bool."""
        if "chunk" in batch.extra:
            return batch.extra["chunk"], batch.extra["valid"]
        valid = torch.ones_like(batch.action[:, :1], dtype=torch.bool)
        return batch.action[:, None], valid


def _network(
    make: Callable[..., nn.Module], config: Any, sizes: tuple[int, int, int],
    images: ImageLearning | None,
) -> nn.Module:  # fmt: skip
    """The network of vectors, or one behind an encoder of images."""
    if images is None:
        return make(config, *sizes)
    trunk = images.trunk()
    inner = make(replace(config, normalize=False), sizes[0] + trunk.size, *sizes[1:])
    normalizer = make_normalizer(sizes[0], wanted=config.normalize)
    return SeeingNetwork(images.encoder, trunk, normalizer, inner)


def _bare(network: Any, obs: Obs) -> tuple[Any, Obs]:
    """The network that losses know, and what it sees: vectors, and features of images."""
    if isinstance(network, SeeingNetwork):
        return network.inner, network.seen(obs)
    return network, obs


@dataclass(kw_only=True)
class BCConfig(CloningConfig):
    """Behaviour cloning."""

    actor: ClonedMLPConfig = field(default_factory=ClonedMLPConfig)
    """Policy network."""
    loss: CloningLoss = CloningLoss.mse
    """mse, or nll."""


class BC(Cloning):
    """Behaviour cloning of single actions or chunks."""

    def __init__(
        self, config: BCConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
        reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Choose network and loss; arguments as of the other learners."""
        super().__init__(
            config, spec, ClonedMLP, config.actor,
            squared_error if config.loss is CloningLoss.mse else negative_log_likelihood,
            seed=seed, stream_seed=stream_seed, reduce=reduce,
        )  # fmt: skip


@dataclass(kw_only=True)
class FlowConfig(CloningConfig):
    """Flow matching."""

    actor: FlowPolicyConfig = field(default_factory=FlowPolicyConfig)
    """Velocity network."""


class Flow(Cloning):
    """Flow matching (Lipman et al. 2022, arXiv:2210.02747)."""

    def __init__(
        self, config: FlowConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
        reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Choose network and loss; arguments as of the other learners."""
        super().__init__(
            config, spec, FlowPolicy, config.actor, flow_matching, seed=seed,
            stream_seed=stream_seed, reduce=reduce,
        )  # fmt: skip


@dataclass(kw_only=True)
class ACTConfig(CloningConfig):
    """Action chunking with a transformer."""

    actor: ACTPolicyConfig = field(default_factory=ACTPolicyConfig)
    """Transformer."""
    divergence_weight: float = 10.0
    """Weight of the style's divergence from its prior."""
    ensemble: bool = False
    """Run in every step, and do the mean of all that was planned for it; for a replan_interval of
    1."""
    ensemble_decay: float = 0.01
    """Decay of a plan's weight for each step that it is younger; 0 weighs all alike."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, {"divergence_weight": (0, 1e6), "ensemble_decay": (0, 1e3)})
        if self.ensemble and (self.replan_interval != 1 or self.chunk_length == 1):
            raise ConfigError(
                "learner.ensemble=true joins the chunks of every step; expected "
                "learner.replan_interval=1 and chunks of more than one action, got "
                f"{self.replan_interval} and {self.chunk_length}"
            )


class ACT(Cloning):
    """Action chunking with a transformer (Zhao et al. 2023)."""

    def __init__(
        self, config: ACTConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
        reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Choose network and loss; arguments as of the other learners."""
        super().__init__(
            config, spec, ACTPolicy, config.actor,
            AutoencodedChunks(config.divergence_weight), seed=seed, stream_seed=stream_seed,
            reduce=reduce, ensemble_decay=config.ensemble_decay if config.ensemble else None,
        )  # fmt: skip


def counted_mean(values: Tensor, valid: Tensor) -> Tensor:
    """Mean of (B, H, A) over entries of valid actions, (B, H) bool, or as (B, H) weighs them."""
    weight = valid.to(values.dtype)[..., None]
    return (values * weight).sum() / (weight.sum() * values.shape[-1]).clamp_min(1.0)


def squared_error(
    policy: ClonedMLP, obs: Obs, chunk: Tensor, valid: Tensor, generator: torch.Generator
) -> Tensor:
    """Squared distance of the mean from the demonstrated actions."""
    mean, _ = policy.moments(obs)
    return counted_mean((mean - chunk).square(), valid)


def negative_log_likelihood(
    policy: ClonedMLP, obs: Obs, chunk: Tensor, valid: Tensor, generator: torch.Generator
) -> Tensor:
    """Of a normal distribution that is not squashed: demonstrations touch -1 and 1."""
    mean, log_std = policy.moments(obs)
    standardised = (chunk - mean) * (-log_std).exp()
    return counted_mean(0.5 * standardised.square() + log_std + 0.5 * math.log(2 * math.pi), valid)


def flow_matching(
    policy: FlowPolicy, obs: Obs, chunk: Tensor, valid: Tensor, generator: torch.Generator
) -> Tensor:
    """Squared distance of the velocity from that of a straight way (Lipman et al. 2022, eq. 23).

    The way leads from normal noise at time 0 to the chunk at time 1; the time is uniform.
    """
    draw = {"generator": generator, "device": chunk.device}
    noise = torch.randn(chunk.shape, **draw)
    time = torch.rand(len(chunk), 1, **draw)
    now = torch.lerp(noise, chunk, time[..., None])
    return counted_mean((policy.velocity(obs, now, time) - (chunk - noise)).square(), valid)


class AutoencodedChunks:
    """Absolute error, plus the style's divergence from its prior (Zhao et al. 2023)."""

    def __init__(self, divergence_weight: float) -> None:
        """Say how much the divergence weighs."""
        self._weight = divergence_weight

    def __call__(
        self, policy: ACTPolicy, obs: Obs, chunk: Tensor, valid: Tensor,
        generator: torch.Generator,
    ) -> Tensor:  # fmt: skip
        """Loss, 0-dim; the style is drawn from what the demonstration says about it."""
        if not policy.config.latent:
            return counted_mean((policy.decode(obs, None) - chunk).abs(), valid)
        mean, log_variance = policy.encode(obs, chunk, valid)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        z = mean + noise * (0.5 * log_variance).exp()
        error = counted_mean((policy.decode(obs, z) - chunk).abs(), valid)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1).mean()
        return error + self._weight * divergence
