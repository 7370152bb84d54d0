"""Networks inside actors and critics: a perceptron, BroNet, SimbaV2 and FlashSAC's, by choice.

Actors may have a mixture of experts, too (`experts.py`).

BroNet is a residual network with layer norm after every linear layer (Nauman et al. 2024, BRO,
arXiv:2405.16158); the shape that BRC uses too (arXiv:2505.23150), whose
published sizes are two blocks of width 512 for critics and one of 256 for actors. It wants weight
decay and, with many outputs, categorical values.

SimbaV2 keeps activations and weights on the unit sphere (Lee et al. 2025, arXiv:2502.15280).
Every linear layer has weights of length one along its inputs, every stream of activations is
brought to length one, and what the lengths would have said is said by trained scales. A block mixes
its input with what it computes by a trained share per entry (LERP) instead of adding them.
One deviation: mean and log-std of an actor share the first layer of the head; the authors' have one
each.

FlashSAC's networks (arXiv:2604.04539; layers as in the authors' code of April 2026) have batch norm
on the raw input, inverted bottlenecks with batch norm whose branch is never negative, so
that the stream only grows until the RMS norm before the head. Every norm is bounded: weights of
length one along the inputs, norms of length sqrt(size). Statistics are taken in float32 and from
the batch that is learned from; `UnitBatchNorm` says when.
"""

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import pad, relu

from policies.networks.layers import (
    LayerNorm,
    Linear,
    Scale,
    UnitBatchNorm,
    UnitLinear,
    UnitRMSNorm,
    unit,
)
from policies.networks.mlp import (
    LAYER_NORM_EPSILON,
    Activation,
    Initialization,
    in_float32,
    mlp,
)
from robot_rl.core.errors import ConfigError

_GAIN = math.sqrt(2)


class BroNet(nn.Module):
    """Embedding, residual blocks and a linear head."""

    def __init__(
        self, members: int | None, inputs: int, outputs: int, *, width: int, blocks: int
    ) -> None:
        super().__init__()
        self.embed = nn.Sequential(*_layer(members, inputs, width), nn.ReLU())
        self.blocks = nn.Sequential(*(_BroBlock(members, width) for _ in range(blocks)))
        self.out = Linear(members, width, outputs, gain=_GAIN)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in) or (E, B, in) -> (..., B, out)."""
        return in_float32(self.out, self.blocks(self.embed(x)))


class _BroBlock(nn.Module):
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
        """As of `BroNet`, for a normalised input.

        Published: width 128 and 1 block for an actor, 512 and 2 for a critic.
        """
        super().__init__()
        gain = math.sqrt(2 / width)
        self.embed = UnitLinear(members, inputs + 1, width)
        self.embed_scale = Scale(members, width, start=gain, speed=gain)
        self.blocks = nn.Sequential(*(_SimbaBlock(members, width, blocks) for _ in range(blocks)))
        self.head = UnitLinear(members, width, width)
        self.head_scale = Scale(members, width, start=1.0, speed=1.0)
        self.out = UnitLinear(members, width, outputs, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in) or (E, B, in) -> (..., B, out)."""
        x = unit(pad(x, (0, 1), value=_SHIFT))
        x = unit(self.embed_scale(self.embed(x)))
        return in_float32(self.out, self.head_scale(self.head(self.blocks(x))))


class _SimbaBlock(nn.Module):
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


class Flash(nn.Module):
    """Batch norm, embedding, inverted bottlenecks, RMS norm and a linear head."""

    def __init__(
        self, members: int | None, inputs: int, outputs: int, *, width: int, blocks: int
    ) -> None:
        """As of `BroNet`; the input need not be normalised.

        Published: width 128 for an actor, 256 for a critic; 2 blocks.
        """
        super().__init__()
        self.norm = UnitBatchNorm(members, inputs)
        self.embed = UnitLinear(members, inputs, width)
        self.blocks = nn.Sequential(*(_FlashBlock(members, width) for _ in range(blocks)))
        self.out_norm = UnitRMSNorm(members, width, epsilon=1e-6)
        self.out = UnitLinear(members, width, outputs, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in) or (E, B, in) -> (..., B, out)."""
        return in_float32(self.out, self.out_norm(self.blocks(self.embed(self.norm(x)))))


class _FlashBlock(nn.Module):
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


class NetworkKind(Enum):
    """Shape of a network."""

    mlp = "mlp"
    simba = "simba"
    bro = "bro"
    flash = "flash"
    moe = "moe"


@dataclass(kw_only=True)
class NetworkConfig:
    """Shape of the network of an actor or a critic, and of what stands before it."""

    part: ClassVar[str] = "actor"
    """Its name in messages."""
    kinds: ClassVar[tuple[NetworkKind, ...]] = (
        NetworkKind.mlp, NetworkKind.simba, NetworkKind.bro, NetworkKind.flash
    )  # fmt: skip
    """Choices of `kind`; mixtures are for actors, whose learners add the loss of a gate."""

    kind: NetworkKind = NetworkKind.mlp
    """Shape of the network: mlp (hidden, activation, layer_norm), of actors also moe (the same, and
    experts), or simba, bro, flash (width, blocks)."""
    hidden: list[int] = field(default_factory=lambda: [256, 256])
    """Widths of the hidden layers of an mlp, or of those before a mixture of experts."""
    activation: Activation = Activation.relu
    """Nonlinearity of the hidden layers of an mlp or a mixture."""
    layer_norm: bool = False
    """Layer norm before every activation of an mlp or a mixture's hidden layers."""
    width: int = 128
    """Width of the stream of the other kinds."""
    blocks: int = 2
    """Residual blocks of the other kinds."""
    normalize: bool = True
    """Normalise observations by running statistics."""
    initialization: Initialization = Initialization.torch
    """Weights of an mlp or a mixture in the beginning."""

    def __post_init__(self) -> None:
        part = self.part
        if self.kind not in self.kinds:
            raise ConfigError(
                f"{part}.kind={self.kind.value} is not for this network; available: "
                + ", ".join(kind.value for kind in self.kinds)
            )
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"{part}.hidden needs widths of at least 1, got {self.hidden}")
        for name in ("width", "blocks"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{part}.{name} must be at least 1, got {getattr(self, name)}")
        if self.initialization is not Initialization.torch:
            self.check_mlp("initialization", self.initialization.value)

    def check_mlp(self, name: str, value: object) -> None:
        """Refuse a setting of plain layers for a network of another kind."""
        if self.kind not in (NetworkKind.mlp, NetworkKind.moe):
            raise ConfigError(
                f"{self.part}.{name} {value} is for an mlp; {self.part}.kind {self.kind.value} "
                "draws its weights in its own way"
            )


def make_network(
    shape: NetworkConfig, inputs: int, outputs: int, *, members: int | None = None
) -> nn.Module:
    """Build the network of a config.

    Args:
        shape: `mlp` reads hidden, activation and layer_norm; all others width and blocks.
        members: E for an ensemble in one batched pass, None for a single network.

    Returns:
        (B, in) -> (B, out), or with members (B, in) or (E, B, in) -> (E, B, out).
    """
    if shape.kind is NetworkKind.mlp:
        sizes, norm = [inputs, *shape.hidden, outputs], shape.layer_norm
        return mlp(sizes, shape.activation, layer_norm=norm, members=members)
    kinds = {NetworkKind.simba: Simba, NetworkKind.bro: BroNet, NetworkKind.flash: Flash}
    return kinds[shape.kind](members, inputs, outputs, width=shape.width, blocks=shape.blocks)
