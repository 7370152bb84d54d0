"""BroNet: a residual network with layer norm after every linear layer.

Nauman et al. 2024 (BRO, arXiv:2405.16158); the shape that BRC uses too (arXiv:2505.23150), whose
published sizes are two blocks of width 512 for critics and one of 256 for actors. It wants weight
decay and, with many outputs, categorical values.
"""

import math

from torch import Tensor, nn

from policies.mlp import LAYER_NORM_EPSILON
from policies.trunks.layers import LayerNorm, Linear

_GAIN = math.sqrt(2)


class BroNet(nn.Module):
    """Embedding, residual blocks and a linear head."""

    def __init__(
        self, members: int | None, inputs: int, outputs: int, *, width: int, blocks: int
    ) -> None:
        """Build the network.

        Args:
            members: E, or None for a single network.
            inputs: Width of the input.
            outputs: Width of the output.
            width: Width of the stream.
            blocks: Residual blocks.
        """
        super().__init__()
        self.embed = nn.Sequential(*_layer(members, inputs, width), nn.ReLU())
        self.blocks = nn.Sequential(*(_Block(members, width) for _ in range(blocks)))
        self.out = Linear(members, width, outputs, gain=_GAIN)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in) or (E, B, in) -> (..., B, out)."""
        return self.out(self.blocks(self.embed(x)))


class _Block(nn.Module):
    """x + norm(linear(relu(norm(linear(x)))))."""

    def __init__(self, members: int | None, width: int) -> None:
        super().__init__()
        first, second = _layer(members, width, width), _layer(members, width, width)
        self.branch = nn.Sequential(*first, nn.ReLU(), *second)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


def _layer(members: int | None, inputs: int, outputs: int) -> tuple[nn.Module, nn.Module]:
    norm = LayerNorm(members, outputs, epsilon=LAYER_NORM_EPSILON)
    return Linear(members, inputs, outputs, gain=_GAIN), norm
