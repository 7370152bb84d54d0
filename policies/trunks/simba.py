"""SimbaV2: activations and weights on the unit sphere (Lee et al. 2025, arXiv:2502.15280).

Every linear layer has weights of length one along its inputs, every stream of activations is
brought to length one, and what the lengths would have said is said by trained scales. A block mixes
its input with what it computes by a trained share per entry (LERP) instead of adding them.

One deviation: mean and log-std of an actor share the first layer of the head; the authors' have one
each.
"""

import math

from torch import Tensor, nn
from torch.nn.functional import pad, relu

from policies.trunks.layers import Scale, UnitLinear, unit

_SHIFT = 3.0
"""Constant entry beside the input: keeps its length when the row is brought to length one."""
_EXPANSION = 4
"""Width of a block inside, in multiples of the width of the stream."""
_AWAY_FROM_ZERO = 1e-8
"""Added after a block's ReLU: a row of zeros has no direction."""


class Simba(nn.Module):
    """Embedding, LERP blocks and a two-layer head."""

    def __init__(
        self, members: int | None, inputs: int, outputs: int, *, width: int, blocks: int
    ) -> None:
        """Build the network.

        Args:
            members: E, or None for a single network.
            inputs: Width of the input, which should be normalised.
            outputs: Width of the output.
            width: Width of the stream (published: actor 128, critic 512).
            blocks: Residual blocks (published: actor 1, critic 2).
        """
        super().__init__()
        gain = math.sqrt(2 / width)
        self.embed = UnitLinear(members, inputs + 1, width)
        self.embed_scale = Scale(members, width, start=gain, speed=gain)
        self.blocks = nn.Sequential(*(_Block(members, width, blocks) for _ in range(blocks)))
        self.head = UnitLinear(members, width, width)
        self.head_scale = Scale(members, width, start=1.0, speed=1.0)
        self.out = UnitLinear(members, width, outputs, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in) or (E, B, in) -> (..., B, out)."""
        x = unit(pad(x, (0, 1), value=_SHIFT))
        x = unit(self.embed_scale(self.embed(x)))
        return self.out(self.head_scale(self.head(self.blocks(x))))


class _Block(nn.Module):
    """x + share * (f(x) - x), back to length one."""

    def __init__(self, members: int | None, width: int, blocks: int) -> None:
        super().__init__()
        inner = width * _EXPANSION
        gain = math.sqrt(2 / width / _EXPANSION)
        self.up = UnitLinear(members, width, inner)
        self.scale = Scale(members, inner, start=gain, speed=gain)
        self.down = UnitLinear(members, inner, width)
        self.share = Scale(members, width, start=1 / (blocks + 1), speed=1 / math.sqrt(width))

    def forward(self, x: Tensor) -> Tensor:
        inner = relu(self.scale(self.up(x))) + _AWAY_FROM_ZERO
        return unit(x + self.share(unit(self.down(inner)) - x))
