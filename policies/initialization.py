"""How weights begin: torch's way, or those of published learners in JAX (biases at zero)."""

import math
from collections.abc import Sequence
from enum import Enum

import torch
from torch import Tensor, nn

from policies.mlp import EnsembleLinear


class Initialization(Enum):
    """Distribution of the weights of linear layers in the beginning."""

    torch = "torch"
    """Weights and biases uniform within 1 / sqrt(inputs)."""
    xavier = "xavier"
    """Uniform with variance 2 / (inputs + outputs), zero biases: REDQ, RLPD, SERL."""
    orthogonal = "orthogonal"
    """Orthogonal matrices times sqrt(2), zero biases: WSRL."""


@torch.no_grad()
def initialize(network: nn.Module, kind: Initialization, *, heads: int = 1) -> None:
    """Draw the weights of all linear layers anew; those of `torch` are left as they are.

    Args:
        network: Linear layers, plain or of an ensemble, in the order of its modules.
        kind: Their distribution.
        heads: Layers of equal width that the last layer stands for, each drawn on its own.
    """
    if kind is Initialization.torch:
        return
    layers = [m for m in network.modules() if isinstance(m, (nn.Linear, EnsembleLinear))]
    for layer in layers:
        layer.bias.zero_()
        parts = heads if layer is layers[-1] else 1
        for matrix in _matrices(layer):
            _draw(matrix.chunk(parts), kind)


@torch.no_grad()
def zero_last(network: nn.Module) -> None:
    """Let the last linear layer answer zero to everything in the beginning."""
    last = [m for m in network.modules() if isinstance(m, nn.Linear)][-1]
    last.weight.zero_()
    last.bias.zero_()


def _matrices(layer: nn.Linear | EnsembleLinear) -> list[Tensor]:
    """Views of the weights, (outputs, inputs) each."""
    if isinstance(layer, nn.Linear):
        return [layer.weight]
    return [member.T for member in layer.weight]


def _draw(matrices: Sequence[Tensor], kind: Initialization) -> None:
    for matrix in matrices:
        fresh = torch.empty(matrix.shape)
        if kind is Initialization.xavier:
            nn.init.xavier_uniform_(fresh)
        else:
            nn.init.orthogonal_(fresh, gain=math.sqrt(2.0))
        matrix.copy_(fresh)
