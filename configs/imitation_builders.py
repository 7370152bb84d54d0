"""Learners of demonstrations from typed configs: the network of each, its loss, and its queue."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

import torch
from torch import nn

from policies.bases.cloned_mlp import ClonedMLP, ClonedMLPConfig
from policies.bases.flow import FlowPolicy, FlowPolicyConfig
from policies.bases.queued import QueuedPolicy
from robot_rl.core.env import EnvSpec
from robot_rl.core.seeding import derive_seed
from robot_rl.learners.imitation.cloning import Cloning, CloningConfig, Loss
from robot_rl.learners.imitation.losses import (
    flow_matching,
    negative_log_likelihood,
    squared_error,
)
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
