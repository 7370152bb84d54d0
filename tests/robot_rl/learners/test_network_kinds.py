"""Every kind of network is what it says in every learner: weights on the sphere, batch norm."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from policies.networks.cloned_mlp import ClonedMLPConfig
from policies.networks.flow import FlowPolicyConfig
from policies.networks.gaussian_actor import GaussianActorConfig
from policies.networks.layers import UnitBatchNorm, constrained_layers
from policies.networks.trunks import NetworkKind
from robot_rl.core.env import EnvSpec
from robot_rl.learners.cloning import BC, BCConfig, Flow, FlowConfig
from robot_rl.learners.distill import Distill, DistillConfig
from robot_rl.learners.networks import gaussian_actor
from robot_rl.learners.off_policy import ActorObjective
from tests.fakes import (
    LinearWorld,
    ToyEnv,
    copied,
    random_batch,
    small_dsac_t,
    small_learner,
    small_sac,
    small_td3,
)
from tests.robot_rl.learners.small_offline import small_h2o, small_iql

Make = Callable[[EnvSpec, NetworkKind], Any]


def shape(kind: NetworkKind) -> dict[str, Any]:
    return {"kind": kind, "width": 16, "blocks": 1, "normalize": kind is NetworkKind.simba}


def of_kind(small: Callable[..., Any], *parts: str, **settings: Any) -> Make:
    return lambda spec, kind: small(spec, **{part: shape(kind) for part in parts}, **settings)


def distilled(spec: EnvSpec, kind: NetworkKind) -> Any:
    config = DistillConfig(actor=GaussianActorConfig(**shape(kind)), batch_size=8)
    torch.manual_seed(0)
    teacher = gaussian_actor(GaussianActorConfig(hidden=[16]), spec)
    return Distill(config, spec, seed=0, teacher=teacher)


LEARNED = ("actor", "critic", "value", "network", "_average")
LEARNERS = {
    "sac": of_kind(small_sac, "actor", "critic"),
    "td3": of_kind(small_td3, "actor", "critic", actor_interval=1),
    "iql": of_kind(small_iql, "actor", "critic", "value"),
    "h2o": of_kind(small_h2o, "actor", "critic"),
    "bc": of_kind(small_learner(BC, BCConfig, {"actor": (ClonedMLPConfig, {})}), "actor"),
    "averaged flow": of_kind(
        small_learner(Flow, FlowConfig, {"actor": (FlowPolicyConfig, {})}), "actor",
        chunk_length=1, average=0.9,
    ),
    "distilled": distilled,
}  # fmt: skip


def learned(name: str, kind: NetworkKind) -> Any:
    spec = ToyEnv(LinearWorld(), 4).spec
    learner = LEARNERS[name](spec, kind)
    for seed in range(3):
        batch = random_batch(spec, 8, seed)
        learner.update(replace(batch, extra={"source": torch.arange(8) % 2}))
    return learner


def networks(learner: Any) -> Iterator[nn.Module]:
    for owner in (learner, getattr(learner, "penalty", None)):
        for name in (*LEARNED, "of_action", "of_successor"):
            if isinstance(network := getattr(owner, name, None), nn.Module):
                yield network


def values(network: nn.Module) -> list[Tensor]:
    return [value.detach().clone() for value in network.parameters()]


@pytest.mark.parametrize("kind", [NetworkKind.simba, NetworkKind.flash])
@pytest.mark.parametrize("name", LEARNERS)
def test_weights_are_on_their_sphere_after_every_update_and_batch_norm_has_learned(name, kind):
    for network in networks(learned(name, kind)):
        norms = [layer for layer in network.modules() if isinstance(layer, UnitBatchNorm)]
        assert bool(norms) == (kind is NetworkKind.flash)
        assert all(layer.running_mean.abs().sum() > 0 for layer in norms)
        before = values(network)
        with torch.no_grad():
            layers = constrained_layers(network)
            for layer in layers:
                layer.project()
        assert layers
        for old, new in zip(before, values(network), strict=True):
            torch.testing.assert_close(old, new, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", LEARNERS)
def test_an_action_does_not_depend_on_who_else_is_asked_nor_is_anything_learned_from_it(name):
    learner = learned(name, NetworkKind.flash)
    obs = random_batch(ToyEnv(LinearWorld(), 4).spec, 8, seed=9).obs
    before = copied(learner.state_dict())
    together = learner.act(obs, explore=False)
    alone = learner.act({name: group[:1] for name, group in obs.items()}, explore=False)
    torch.testing.assert_close(together[:1], alone)
    torch.testing.assert_close(learner.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["sac", "td3", "iql", "distilled"])
def test_rows_of_weight_zero_stay_out_of_batch_norm(name):
    states = []
    for seed in (1, 2):
        learner = learned(name, NetworkKind.flash)
        batch, other = (random_batch(ToyEnv(LinearWorld(), 4).spec, 8, s) for s in (9, seed))
        batch.weight[5:] = 0.0
        for groups, others in ((batch.obs, other.obs), (batch.next_obs, other.next_obs)):
            for key, group in groups.items():
                group[5:] = 100 * others[key][5:]
        learner.update(batch)
        states.append(copied(learner.state_dict()))
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("small", "settings"),
    [
        (small_td3, {"actor_value": ActorObjective.first}),
        (small_td3, {"actor_value": ActorObjective.mean}),
        (small_sac, {}),
        (small_dsac_t, {}),
    ],
)
def test_actions_that_are_tried_leave_batch_norm_of_the_critics_alone(small, settings):
    spec, flash = ToyEnv(LinearWorld(), 4).spec, shape(NetworkKind.flash)
    buffers = []
    for interval in (1, 2):  # the actor steps, or not
        learner = small(spec, actor=flash, critic=flash, actor_interval=interval, **settings)
        learner.update(random_batch(spec, 8))
        assert not any(module.training for module in learner.critic.modules())
        buffers.append([value.clone() for value in learner.critic.buffers()])
    assert buffers[0]
    torch.testing.assert_close(buffers[0], buffers[1], rtol=0, atol=0)
