"""Multi-layer perceptrons, single and as an ensemble evaluated in one batched product."""

import math
from collections.abc import Sequence
from enum import Enum
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from policies.networks.dense import chain, usable
from robot_rl.core.onednn import is_faster


class Activation(Enum):
    """Nonlinearity between layers."""

    relu = "relu"
    tanh = "tanh"
    silu = "silu"
    elu = "elu"
    gelu = "gelu"


ACTIVATIONS: dict[Activation, type[nn.Module]] = {
    Activation.relu: nn.ReLU,
    Activation.tanh: nn.Tanh,
    Activation.silu: nn.SiLU,
    Activation.elu: nn.ELU,
    Activation.gelu: nn.GELU,
}
"""Module of every nonlinearity."""

LAYER_NORM_EPSILON = 1e-6
"""As in Flax, so that published settings of JAX learners carry over; torch's default is 1e-5."""


def mlp(sizes: Sequence[int], activation: Activation, *, layer_norm: bool = False) -> nn.Sequential:
    """Linear layers with [layer norm and] activation between them, none after the last.

    Args:
        sizes: Widths from input to output, at least two.
        activation: Nonlinearity after every hidden layer.
        layer_norm: Normalise every hidden layer before its activation.
    """
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        layers.append(nn.Linear(inputs, outputs))
        if i < len(sizes) - 2:
            if layer_norm:
                layers.append(nn.LayerNorm(outputs, eps=LAYER_NORM_EPSILON))
            layers.append(ACTIVATIONS[activation]())
    return Dense(*layers)


def ensemble_mlp(
    members: int, sizes: Sequence[int], activation: Activation, *, layer_norm: bool = False
) -> nn.Sequential:
    """Like `mlp`, for E independent members: (E, B, in) or (B, in) -> (E, B, out)."""
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        layers.append(EnsembleLinear(members, inputs, outputs))
        if i < len(sizes) - 2:
            if layer_norm:
                layers.append(EnsembleLayerNorm(members, outputs))
            layers.append(ACTIVATIONS[activation]())
    return Dense(*layers)


class Dense(nn.Sequential):
    """Layers in order, as one operation where `dense` can do that and it pays.

    Under autocast the last layer stays in float32: a value or a mean needs more than eight bits.
    """

    def __init__(self, *layers: nn.Module) -> None:
        """Take over the layers, the last of them linear."""
        super().__init__(*layers)
        self._linear = [one for one in self if isinstance(one, nn.Linear | EnsembleLinear)]
        self._chained = all(isinstance(one, nn.Linear | EnsembleLinear | nn.ReLU) for one in self)
        self._largest = max(math.prod(one.weight.shape[-2:]) for one in self._linear)

    def forward(self, input: Tensor) -> Tensor:
        """(B, in) or (E, B, in) -> (B, out) or (E, B, out)."""
        if self._chained and usable(input) and is_faster(input.shape[-2], self._largest):
            return chain(input, _params(self._linear))
        if torch.is_autocast_enabled(input.device.type):
            return self._mixed(input)
        return super().forward(input)

    def _mixed(self, x: Tensor) -> Tensor:
        *hidden, last = self
        for layer in hidden:
            x = layer(x)
        return in_float32(last, x)


def in_float32(last: nn.Module, x: Tensor) -> Tensor:
    """A network's last layer, in float32 under autocast too: values need more than eight bits."""
    if not torch.is_autocast_enabled(x.device.type):
        return last(x)
    with torch.autocast(x.device.type, enabled=False):
        return last(x.float())


def _params(layers: Sequence[Any]) -> list[Tensor]:
    """Weight and bias of every layer in turn; looked up anew: they may be swapped for one call."""
    return [param for layer in layers for param in (layer.weight, layer.bias)]


class EnsembleLinear(nn.Module):
    """E linear layers as one batched matrix product, initialised as `nn.Linear`."""

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        """Draw the weights of every member on its own.

        Args:
            members: E.
            inputs: Width of the input.
            outputs: Width of the output.
        """
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """(E, B, in), or (B, in) shared by all members -> (E, B, out)."""
        if x.ndim == 2:
            x = x.expand(self.weight.shape[0], *x.shape)
        return torch.baddbmm(self.bias, x, self.weight)


class EnsembleLayerNorm(nn.Module):
    """Layer norm with its own scale and shift for every member."""

    def __init__(self, members: int, size: int) -> None:
        """Start with scale one and shift zero for E members of the given width."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(members, 1, size))
        self.bias = nn.Parameter(torch.zeros(members, 1, size))

    def forward(self, x: Tensor) -> Tensor:
        """(E, B, size) -> (E, B, size)."""
        normal = nn.functional.layer_norm(x, x.shape[-1:], eps=LAYER_NORM_EPSILON)
        return torch.addcmul(self.bias, normal, self.weight)


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
