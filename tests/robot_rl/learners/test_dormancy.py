"""Dormant units: counted by hand, by part, with and without fused layers."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from policies.networks import mlp as fused
from policies.networks.deterministic_actor import DeterministicActor, DeterministicActorConfig
from policies.networks.experts import find_mixture
from policies.networks.inputs import EncoderConfig, EncoderKind
from policies.networks.trunks import NetworkKind
from robot_rl.core.env import TermSpec
from robot_rl.learners.dormancy import count_dormant, parts_of

ROWS, INPUTS = 64, 6


def rows(seed: int = 0) -> dict[str, Tensor]:
    return {"actor": torch.randn(ROWS, INPUTS, generator=torch.Generator().manual_seed(seed))}


def layers(made: DeterministicActor) -> Any:
    """Layers of a plain network, by index."""
    return made.network


def actor(kind: NetworkKind = NetworkKind.mlp, **settings: Any) -> DeterministicActor:
    torch.manual_seed(0)
    shape = {"hidden": [16, 8] if kind is NetworkKind.mlp else [16], "normalize": False}
    return DeterministicActor(DeterministicActorConfig(kind=kind, **shape, **settings), INPUTS, 2)


def counted(
    made: DeterministicActor, weight: Tensor | None = None, threshold: float = 0.025
) -> dict[str, tuple[int, int]]:
    weight = torch.ones(ROWS) if weight is None else weight
    found = count_dormant(made.network, lambda: made(rows()), weight, threshold)
    return {name: (int(dormant), units) for name, (dormant, units) in found.items()}


def silence(layer: nn.Module, unit: int, bias: float = -50.0) -> None:
    """Let a ReLU unit never fire."""
    assert isinstance(layer, nn.Linear)
    with torch.no_grad():
        layer.bias[unit] = bias


def test_units_that_never_fire_are_dormant_and_all_layers_have_units(monkeypatch):
    made = actor()
    awake = (layers(made)[0](rows()["actor"]).relu().mean(0) > 0.1).nonzero()[:2, 0].tolist()
    dormant, units = counted(made)["actor"]
    assert units == 16 + 8 + 2
    for unit in awake:
        silence(layers(made)[0], unit)
    assert counted(made) == {"actor": (dormant + 2, 26)}
    silence(layers(made)[2], int(counted_activity(made).argmax()))
    assert counted(made) == {"actor": (dormant + 3, 26)}
    monkeypatch.setattr(fused, "is_faster", lambda *_: True)  # its layers are one operation
    assert counted(made) == {"actor": (dormant + 3, 26)}
    assert made({"actor": rows()["actor"]}).shape == (ROWS, 2)


def counted_activity(made: DeterministicActor) -> Tensor:
    """Mean of the second layer's units."""
    return layers(made)[2](layers(made)[0](rows()["actor"]).relu()).relu().mean(0)


def test_a_unit_is_dormant_up_to_a_share_of_its_layers_mean():
    made = actor()
    outputs: list[Tensor] = []
    hook = layers(made)[1].register_forward_hook(lambda *called: outputs.append(called[-1]))
    fused_before, layers(made).by_layer = layers(made).by_layer, True
    made(rows())
    layers(made).by_layer = fused_before
    hook.remove()
    first = outputs[0].abs().mean(0)
    for threshold in (0.3, 0.6, 1.0):
        weak = int((first <= threshold * first.mean()).sum())
        second = layers(made)[2](outputs[0]).relu().abs().mean(0)
        third = layers(made)[4](layers(made)[2](outputs[0]).relu()).abs().mean(0)
        weak += sum(int((x <= threshold * x.mean()).sum()) for x in (second, third))
        assert counted(made, threshold=threshold) == {"actor": (weak, 26)}
        assert weak > 0


def test_a_mixture_has_parts_and_an_expert_counts_whether_it_is_sent_rows_or_not():
    made = actor(NetworkKind.moe)
    mixture: Any = find_mixture(made.network)
    units = {"trunk": 16, "gate": 64 + 8, "experts": 8 * (64 + 16), "head": 2}
    found = counted(made)
    assert {name: number for name, (_, number) in found.items()} == units
    with torch.no_grad():
        mixture.gate[2].bias.copy_(torch.tensor([90.0, 90, 0, 0, 0, 0, 0, 0]))
    assert counted(made)["experts"] == found["experts"]
    with torch.no_grad():  # experts that give nothing at all
        mixture.experts[0].bias.fill_(-100)
        mixture.experts[2].bias.zero_()
    assert counted(made)["experts"] == (units["experts"], units["experts"])
    assert not mixture.by_layer


def test_rows_of_weight_zero_do_not_count():
    made = actor()
    weight = torch.zeros(ROWS)
    weight[:3] = torch.tensor([0.5, 1.0, 2.0])
    only = count_dormant(
        made.network, lambda: made({"actor": rows()["actor"][:3]}), torch.ones(3), 0.3
    )
    assert counted(made, weight, 0.3) == {"actor": (int(only["actor"][0]), 26)}


@pytest.mark.parametrize("kind", [NetworkKind.simba, NetworkKind.bro, NetworkKind.flash])
def test_networks_of_every_kind_have_units(kind):
    made = actor(kind, width=16, blocks=1)
    dormant, units = counted(made)["actor"]
    assert units > 16
    assert 0 <= dormant <= units


def test_an_encoder_is_a_part_of_its_own():
    config = DeterministicActorConfig(
        kind=NetworkKind.moe, hidden=[16],
        encoder=EncoderConfig(kind=EncoderKind.mlp, hidden=[8], latent=3),
    )  # fmt: skip
    made = DeterministicActor(config, INPUTS, 2, terms=[TermSpec(name="gyro", width=2, history=3)])
    assert list(parts_of(made.network)) == ["encoder", "trunk", "gate", "experts", "head"]
    assert counted(made)["encoder"][1] == 8 + 3
