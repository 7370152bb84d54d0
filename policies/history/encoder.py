"""What turns a window of frames into a latent: a perceptron, or convolutions over time."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

import torch
from torch import Tensor, nn

from policies.mlp import ACTIVATIONS, Activation, mlp
from robot_rl.core.errors import ConfigError

_KERNEL, _STRIDE = 4, 2
"""Frames that a convolution joins, and frames between two of its places."""


class EncoderKind(Enum):
    """Shape of an encoder."""

    none = "none"
    """Nothing is encoded: the network sees all frames that it looks at."""
    mlp = "mlp"
    """A perceptron over all frames, as in DreamWaQ (Nahrendra et al. 2023, arXiv:2301.10602)."""
    conv = "conv"
    """Each layer joins four frames and moves on by two; RMA (Kumar et al. 2021, arXiv:2107.04034)
    has longer windows and larger kernels."""


@dataclass(kw_only=True)
class EncoderConfig:
    """What stands between past frames and the actor's network (docs/history.md)."""

    kind: EncoderKind = EncoderKind.none
    """none, mlp, or conv: convolutions over time."""
    terms: list[str] = field(default_factory=list)
    """Terms that are encoded; empty takes those with a history."""
    frames: int = 0
    """Newest frames that are looked at, also without an encoder; 0 looks at all there are."""
    hidden: list[int] = field(default_factory=lambda: [64, 32])
    """Widths of the hidden layers, or channels of the convolutions."""
    activation: Activation = Activation.elu
    """Nonlinearity of its layers."""
    latent: int = 16
    """Width of what it hands on, beside the estimates."""
    estimate: list[str] = field(default_factory=list)
    """Terms of the group `critic` that its first outputs learn to estimate (DreamWaQ)."""

    def __post_init__(self) -> None:
        """Refuse encoders that cannot be built."""
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"actor.encoder.hidden needs widths of at least 1, got {self.hidden}")
        least = 0 if self.estimate else 1
        for name, lowest in (("frames", 0), ("latent", least)):
            if getattr(self, name) < lowest:
                raise ConfigError(
                    f"actor.encoder.{name} must be at least {lowest}, got {getattr(self, name)}"
                )
        for name in ("terms", "estimate"):
            if getattr(self, name) and self.kind is EncoderKind.none:
                raise ConfigError(
                    f"actor.encoder.{name} {getattr(self, name)} needs an encoder; choose "
                    "actor.encoder.kind=mlp or conv"
                )


def make_encoder(config: EncoderConfig, frames: int, width: int, outputs: int) -> nn.Module:
    """An encoder of windows, (B, frames * width), frame after frame, oldest first -> (B, outputs).

    Raises:
        ConfigError: The window is too short for the convolutions.
    """
    if config.kind is EncoderKind.mlp:
        return mlp([frames * width, *config.hidden, outputs], config.activation)
    return FrameConvolutions(frames, width, config.hidden, outputs, config.activation)


class FrameConvolutions(nn.Module):
    """Convolutions over time as products of stacked frames, then one linear layer."""

    def __init__(
        self, frames: int, width: int, channels: Sequence[int], outputs: int, activation: Activation
    ) -> None:
        """Draw the weights.

        Args:
            frames: H.
            width: W, entries of a frame.
            channels: Entries of a frame after each convolution.
            outputs: Width of the result.
            activation: After each convolution.
        """
        super().__init__()
        self._width = width
        self.layers = nn.ModuleList()
        left = frames
        for inputs, channel in pairwise([width, *channels]):
            if left < _KERNEL:
                raise ConfigError(
                    f"actor.encoder.kind=conv: {len(channels)} convolutions over {_KERNEL} frames "
                    f"need more than the {frames} frames there are; give fewer channels in "
                    "actor.encoder.hidden or a longer history in the task"
                )
            self.layers.append(nn.Linear(_KERNEL * inputs, channel))
            left = (left - _KERNEL) // _STRIDE + 1
        self.head = mlp([left * channels[-1], outputs], activation)
        self._activation = ACTIVATIONS[activation]()

    def forward(self, x: Tensor) -> Tensor:
        """(B, H * W) -> (B, outputs)."""
        frames = list(x.split(self._width, dim=-1))
        for layer in self.layers:
            # The newest frame is always in the last place; what is left over are the oldest.
            oldest = (len(frames) - _KERNEL) % _STRIDE
            places = range(oldest, len(frames) - _KERNEL + 1, _STRIDE)
            # A product for each place, of rows: what a bundle in C has a form for.
            frames = [
                self._activation(layer(torch.cat(frames[at : at + _KERNEL], dim=-1)))
                for at in places
            ]
        return self.head(torch.cat(frames, dim=-1))
