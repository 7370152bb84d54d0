"""The networks of FlashSAC (arXiv:2604.04539; layers as in the authors' code of April 2026).

Batch norm on the raw input, inverted bottlenecks with batch norm whose branch is never negative, so
that the stream only grows until the RMS norm before the head. Every norm is bounded: weights of
length one along the inputs, norms of length sqrt(size). Statistics are taken in float32 and from
the batch that is learned from; `UnitBatchNorm` says when.
"""

from torch import Tensor, nn

from policies.trunks.layers import UnitBatchNorm, UnitLinear, UnitRMSNorm

_EXPANSION = 4
"""Width of a block inside, in multiples of the width of the stream."""


class Flash(nn.Module):
    """Batch norm, embedding, inverted bottlenecks, RMS norm and a linear head."""

    def __init__(
        self, members: int | None, inputs: int, outputs: int, *, width: int, blocks: int
    ) -> None:
        """Build the network.

        Args:
            members: E, or None for a single network.
            inputs: Width of the input; need not be normalised.
            outputs: Width of the output.
            width: Width of the stream (published: actor 128, critic 256).
            blocks: Residual blocks (published: 2).
        """
        super().__init__()
        self.norm = UnitBatchNorm(members, inputs)
        self.embed = UnitLinear(members, inputs, width)
        self.blocks = nn.Sequential(*(_Block(members, width) for _ in range(blocks)))
        self.out_norm = UnitRMSNorm(members, width, epsilon=1e-6)
        self.out = UnitLinear(members, width, outputs, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in) or (E, B, in) -> (..., B, out)."""
        return self.out(self.out_norm(self.blocks(self.embed(self.norm(x)))))


class _Block(nn.Module):
    """x + relu(norm(linear(relu(norm(linear(x))))))."""

    def __init__(self, members: int | None, width: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            UnitLinear(members, width, width * _EXPANSION),
            UnitBatchNorm(members, width * _EXPANSION),
            nn.ReLU(),
            UnitLinear(members, width * _EXPANSION, width),
            UnitBatchNorm(members, width),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)
