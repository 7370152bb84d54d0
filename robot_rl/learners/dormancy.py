"""Dormant units of a network (Sokar et al. 2023, arXiv:2302.12902), counted by its parts.

A unit is dormant where its mean magnitude over the rows is at most `threshold` times that of its
layer. As MENTOR's authors count (suninghuang19/mentor f4fa81f), every linear layer has units, also
the last one, a unit is taken after the ReLU that follows it directly and before any other
nonlinearity, and every expert sees all rows, whatever its gate says. One deviation: a layer that
is zero everywhere is dormant; there it is not.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from policies.networks.experts import MixtureNetwork, MixtureOfExperts
from policies.networks.inputs import EncodedNetwork
from policies.networks.layers import Linear
from policies.networks.mlp import Dense, EnsembleLinear

LINEAR = (nn.Linear, EnsembleLinear, Linear)
"""Layers that have units, and whose weights are those of an agent."""


def parts_of(network: nn.Module) -> dict[str, nn.Module]:
    """Parts of an actor's network by name: of a mixture of experts its own, else `actor`."""
    if isinstance(network, MixtureNetwork):
        return network.parts()
    if isinstance(network, EncodedNetwork) and isinstance(network.body, MixtureNetwork):
        return {"encoder": network.encoder, **network.body.parts()}
    return {"actor": network}


def layers_of(part: nn.Module) -> list[nn.Module]:
    """Linear layers of a part."""
    return [module for module in part.modules() if isinstance(module, LINEAR)]


@torch.no_grad()
def count_dormant(
    network: nn.Module, run: Callable[[], Any], weight: Tensor, threshold: float
) -> dict[str, tuple[Tensor, int]]:
    """Dormant units, 0-dim, and all units, by part of the network.

    Args:
        network: Of an actor.
        run: Sends the rows through it.
        weight: Of the rows, (B,); those of weight 0 do not count.
        threshold: tau: share of the layer's mean magnitude.
    """
    valid = (weight > 0).float()
    rows = valid / valid.sum().clamp_min(1.0)
    with _recording(network) as outputs:
        run()
    found: dict[str, tuple[Tensor, int]] = {}
    for name, part in parts_of(network).items():
        dormant, units = weight.new_zeros(()), 0
        for layer in layers_of(part):
            output = outputs[layer].float().abs()  # (B, W), or (E, B, W)
            activity = (rows[:, None] * output).sum(-2)  # ([E,] W)
            limit = threshold * activity.mean(-1, keepdim=True)
            dormant = dormant + (activity <= limit).sum()
            units += activity.numel()
        found[name] = (dormant, units)
    return found


@contextmanager
def _recording(network: nn.Module) -> Iterator[Mapping[nn.Module, Tensor]]:
    """Context in which the outputs of linear layers are kept, after a ReLU that follows."""
    outputs: dict[nn.Module, Tensor] = {}
    newest: list[nn.Module] = []

    def keep(layer: nn.Module, _: Any, output: Tensor) -> None:
        outputs[layer] = output
        newest[:] = [layer]

    def rectify(_: nn.Module, given: tuple[Tensor], output: Tensor) -> None:
        if newest and outputs[newest[0]] is given[0]:
            outputs[newest[0]] = output

    fused = [one for one in network.modules() if isinstance(one, Dense | MixtureOfExperts)]
    hooks = [layer.register_forward_hook(keep) for layer in layers_of(network)]
    relus = [module for module in network.modules() if isinstance(module, nn.ReLU)]
    hooks += [module.register_forward_hook(rectify) for module in relus]
    try:
        for one in fused:
            one.by_layer = True
        yield outputs
    finally:
        for one in fused:
            one.by_layer = False
        for hook in hooks:
            hook.remove()
