"""The deterministic actor: bounds, its first actions, its export."""

from typing import Any

import pytest
import torch
from torch import Tensor

from policies.networks.deterministic_actor import DeterministicActor, DeterministicActorConfig
from policies.networks.trunks import NetworkKind


def actor(obs_size: int = 3, actions: int = 2, **changes: Any) -> DeterministicActor:
    torch.manual_seed(0)
    return DeterministicActor(
        DeterministicActorConfig(**{"hidden": [16], **changes}), obs_size, actions
    )


def obs(count: int, width: int = 3, scale: float = 1.0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {"actor": scale * torch.randn(count, width, generator=generator)}


def test_the_action_is_the_squashed_output_of_the_network():
    plain = actor(normalize=False)
    seen = obs(50)
    expected = torch.tanh(plain.network(seen["actor"]))
    assert torch.equal(plain(seen), expected)
    assert plain(obs(50, scale=1e6)).abs().max() <= 1.0


def test_a_small_last_layer_begins_near_the_middle_of_the_range():
    small, free = actor(last_layer_std=0.001), actor()
    assert not small.get_parameter("network.2.bias").any()
    wide = actor(hidden=[400], actions=50, last_layer_std=0.01)
    assert wide.get_parameter("network.2.weight").std().item() == pytest.approx(
        0.01, rel=0.02
    )  # of 20,000 draws
    assert small(obs(50)).abs().mean() < 0.1 * free(obs(50)).abs().mean()


def test_weights_are_brought_back_to_their_constraints():
    policy = actor(kind=NetworkKind.flash, width=8, blocks=1)
    weights = {name: p.detach().clone() for name, p in policy.named_parameters()}
    with torch.no_grad():
        for p in policy.parameters():
            p.mul_(3.0)
        policy.constrain()
    back = [n for n, p in policy.named_parameters() if torch.allclose(p, weights[n], atol=1e-6)]
    assert "network.embed.weight" in back
