"""Learners of demonstrations from typed configs: the network of each, its loss, and its queue."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

import torch
from torch import nn

from policies.bases.act import ACTPolicy, ACTPolicyConfig
from policies.bases.cloned_mlp import ClonedMLP, ClonedMLPConfig
from policies.bases.flow import FlowPolicy, FlowPolicyConfig
from policies.bases.queued import QueuedPolicy
from robot_rl.core.env import EnvSpec
from robot_rl.core.errors import ConfigError
from robot_rl.core.seeding import derive_seed
from robot_rl.learners.imitation.cloning import Cloning, CloningConfig, Loss
from robot_rl.learners.imitation.losses import (
    AutoencodedChunks,
    flow_matching,
    negative_log_likelihood,
    squared_error,
)
from robot_rl.learners.off_policy import check_ranges
from robot_rl.learners.optimization import Reduce


class CloningLoss(Enum):
    """What a network that answers with an action is trained by."""

    mse = "mse"
    """Squared error of the mean."""
    nll = "nll"
    """Negative log-likelihood of a normal distribution whose spread is learned too."""


@dataclass(kw_only=True)
class BCLearnerConfig(CloningConfig):
    """Behaviour cloning and the network that is handed to it."""

    actor: ClonedMLPConfig = field(default_factory=ClonedMLPConfig)
    """Policy network."""
    loss: CloningLoss = CloningLoss.mse
    """mse, or nll."""


@dataclass(kw_only=True)
class FlowLearnerConfig(CloningConfig):
    """Flow matching and the network that is handed to it."""

    actor: FlowPolicyConfig = field(default_factory=FlowPolicyConfig)
    """Velocity network."""


@dataclass(kw_only=True)
class ACTLearnerConfig(CloningConfig):
    """Action chunking with a transformer, and the network that is handed to it."""

    actor: ACTPolicyConfig = field(default_factory=ACTPolicyConfig)
    """Transformer."""
    divergence_weight: float = 10.0
    """Weight of the style's divergence from its prior."""
    ensemble: bool = False
    """Run in every step, and do the mean of all that was planned for it; for a replan_interval of
    1."""
    ensemble_decay: float = 0.01
    """How much less a plan weighs that is a step younger; 0 weighs all alike."""

    def __post_init__(self) -> None:
        """Refuse ensembles that are none."""
        super().__post_init__()
        check_ranges(self, {"divergence_weight": (0, 1e6), "ensemble_decay": (0, 1e3)})
        if self.ensemble and (self.replan_interval != 1 or self.chunk_length == 1):
            raise ConfigError(
                "learner.ensemble=true joins the chunks of every step; expected "
                "learner.replan_interval=1 and chunks of more than one action, got "
                f"{self.replan_interval} and {self.chunk_length}"
            )


def build_bc(
    config: BCLearnerConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
    reduce: Reduce | None = None,
) -> Cloning:  # fmt: skip
    """Behaviour cloning for an environment."""
    loss = squared_error if config.loss is CloningLoss.mse else negative_log_likelihood
    network = partial(ClonedMLP, config.actor)
    return _cloning(config, network, loss, spec, seed, stream_seed, reduce)


def build_flow(
    config: FlowLearnerConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
    reduce: Reduce | None = None,
) -> Cloning:  # fmt: skip
    """Flow matching for an environment."""
    network = partial(FlowPolicy, config.actor)
    return _cloning(config, network, flow_matching, spec, seed, stream_seed, reduce)


def build_act(
    config: ACTLearnerConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
    reduce: Reduce | None = None,
) -> Cloning:  # fmt: skip
    """Action chunking with a transformer for an environment."""
    network = partial(ACTPolicy, config.actor)
    decay = config.ensemble_decay if config.ensemble else None
    loss = AutoencodedChunks(config.divergence_weight)
    return _cloning(config, network, loss, spec, seed, stream_seed, reduce, decay)


def _cloning(
    config: CloningConfig, network: Callable[[int, int, int], nn.Module], loss: Loss,
    spec: EnvSpec, seed: int, stream_seed: int | None, reduce: Reduce | None,
    ensemble_decay: float | None = None,
) -> Cloning:  # fmt: skip
    torch.manual_seed(derive_seed(seed, "initial weights"))
    length = config.chunk_length

    def queued(network: nn.Module) -> nn.Module:
        if length == 1:
            return network
        return QueuedPolicy(
            network, chunk_length=length, replan_interval=config.replan_interval,
            ensemble_decay=ensemble_decay,
        )  # fmt: skip

    return Cloning(
        config, network(spec.groups["actor"].shape[0], spec.action_size, length), loss,
        device=spec.device, seed=seed if stream_seed is None else stream_seed, reduce=reduce,
        wrap=queued,
    )  # fmt: skip
