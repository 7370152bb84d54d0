"""The deterministic actor: bounds, its first actions, its export."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor

from policies.export import export_bundle
from policies.networks.deterministic_actor import DeterministicActor, DeterministicActorConfig
from policies.networks.inputs import IdentityNormalizer
from policies.networks.trunks import NetworkKind
from robot_rl.core.errors import ConfigError


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


def test_normalising_is_an_option_and_acts_before_the_network():
    plain, normal = actor(normalize=False), actor()
    assert isinstance(plain.normalizer, IdentityNormalizer)
    seen = obs(100)
    assert torch.equal(normal(seen), plain(seen))
    for network in (normal, plain):
        network.update_statistics({"actor": 3 * seen["actor"] + 1})
    assert torch.equal(plain({"actor": normal.normalizer(seen["actor"])}), normal(seen))


def test_actions_are_in_full_precision_whatever_the_network_runs_in():
    with torch.autocast("cpu", torch.bfloat16):
        action = actor()(obs(50))
    assert action.dtype is torch.float32
    assert not torch.equal(action, action.bfloat16().float())


def test_the_exported_bundle_acts_as_the_actor_does(tmp_path, arguments):
    policy = actor(29, 4, hidden=[32, 16], layer_norm=True)
    policy.update_statistics(obs(500, 29, scale=3.0))
    folder = export_bundle(tmp_path / "b", **arguments(policy=policy))
    session = onnxruntime.InferenceSession((folder / "policy.onnx").read_bytes())
    for count in (1, 7):
        seen = obs(count, 29, scale=3.0)
        (action,) = session.run(["action"], {"actor": seen["actor"].numpy()})
        with torch.no_grad():
            expected = policy(seen).numpy()
        assert np.abs(np.asarray(action) - expected).max() <= 1e-5


@pytest.mark.parametrize("kind", [NetworkKind.simba, NetworkKind.bro, NetworkKind.flash])
def test_every_kind_of_network_acts_and_is_brought_back_to_its_constraints(kind):
    policy = actor(kind=kind, width=8, blocks=1)
    action = policy(obs(50))
    assert action.shape == (50, 2)
    assert action.abs().max() <= 1.0
    weights = {name: p.detach().clone() for name, p in policy.named_parameters()}
    bound = {name for name, p in weights.items() if kind is not NetworkKind.bro}
    with torch.no_grad():
        for p in policy.parameters():
            p.mul_(3.0)
        policy.constrain()
    back = {n for n, p in policy.named_parameters() if torch.allclose(p, weights[n], atol=1e-6)}
    assert bool(back & bound) == bool(bound)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"hidden": []}, "hidden"), ({"hidden": [0]}, "hidden"), ({"last_layer_std": -1.0}, "last"),
        ({"last_layer_std": 0.01, "kind": NetworkKind.simba}, "last_layer_std 0.01 is for an mlp"),
    ],
)  # fmt: skip
def test_an_actor_that_cannot_be_built_is_refused(changes, name):
    with pytest.raises(ConfigError, match=rf"actor\.{name}"):
        DeterministicActorConfig(**changes)
