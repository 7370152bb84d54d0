"""Every kind of network is what it says in every learner: weights on the sphere, batch norm."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from configs.imitation_builders import (
    BCLearnerConfig,
    FlowLearnerConfig,
    build_bc,
    build_flow,
)
from policies.bases.cloned_mlp import ClonedMLPConfig
from policies.bases.flow import FlowPolicyConfig
from policies.trunks.kinds import NetworkKind
from policies.trunks.layers import UnitBatchNorm, constrained_layers
from robot_rl.core.env import EnvSpec
from tests.fakes import LinearWorld, ToyEnv, random_batch, small_sac
from tests.robot_rl.learners.reference_td3 import small_td3

Make = Callable[[EnvSpec, NetworkKind], Any]


def shape(kind: NetworkKind) -> dict[str, Any]:
    return {"kind": kind, "width": 16, "blocks": 1, "normalize": kind is NetworkKind.simba}


def sac(spec: EnvSpec, kind: NetworkKind) -> Any:
    return small_sac(spec, actor=shape(kind), critic=shape(kind))


def td3(spec: EnvSpec, kind: NetworkKind) -> Any:
    return small_td3(spec, actor=shape(kind), critic=shape(kind), actor_interval=1)


def bc(spec: EnvSpec, kind: NetworkKind) -> Any:
    config = BCLearnerConfig(actor=ClonedMLPConfig(**shape(kind)), batch_size=8)
    return build_bc(config, spec, seed=0)


def averaged_flow(spec: EnvSpec, kind: NetworkKind) -> Any:
    actor = FlowPolicyConfig(**shape(kind))
    config = FlowLearnerConfig(actor=actor, batch_size=8, chunk_length=1, average=0.9)
    return build_flow(config, spec, seed=0)


LEARNERS = (sac, td3, bc, averaged_flow)


def learned(make: Make, kind: NetworkKind) -> Any:
    spec = ToyEnv(LinearWorld(), 4).spec
    learner = make(spec, kind)
    for seed in range(3):
        learner.update(random_batch(spec, 8, seed))
    return learner


def networks(learner: Any) -> Iterator[nn.Module]:
    for name in ("actor", "critic", "network", "_average"):
        if isinstance(network := getattr(learner, name, None), nn.Module):
            yield network


def values(network: nn.Module) -> list[Tensor]:
    return [value.detach().clone() for value in network.parameters()]


@pytest.mark.parametrize("kind", [NetworkKind.simba, NetworkKind.flash])
@pytest.mark.parametrize("make", LEARNERS)
def test_weights_are_on_their_sphere_after_every_update(make: Make, kind: NetworkKind) -> None:
    for network in networks(learned(make, kind)):
        before = values(network)
        with torch.no_grad():
            layers = constrained_layers(network)
            for layer in layers:
                layer.project()
        assert layers
        for old, new in zip(before, values(network), strict=True):
            torch.testing.assert_close(old, new, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", LEARNERS)
def test_batch_norm_learns_the_statistics_of_what_is_learned_from(make: Make) -> None:
    learner = learned(make, NetworkKind.flash)
    for network in networks(learner):
        norms = [layer for layer in network.modules() if isinstance(layer, UnitBatchNorm)]
        assert norms
        assert all(layer.running_mean.abs().sum() > 0 for layer in norms)
