"""What demonstrations cost a network that does not do as they do.

Each loss is a mean over the entries that are counted: a chunk that begins near the end of an
episode is longer than what was demonstrated, and what lies beyond is left out.
"""

import math
from typing import Protocol

import torch
from torch import Tensor

from robot_rl.core.env import Obs


class MeanPolicy(Protocol):
    """Answers with a distribution."""

    def moments(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation, (B, H, A) each."""
        ...


class VelocityPolicy(Protocol):
    """Answers with the velocity of a flow."""

    def velocity(self, obs: Obs, x: Tensor, time: Tensor) -> Tensor:
        """Of chunks x (B, H, A) at times (B, 1): (B, H, A)."""
        ...


class StylePolicy(Protocol):
    """An autoencoder of chunks, if it has a style."""

    @property
    def has_style(self) -> bool:
        """Whether it encodes."""
        ...

    def encode(self, obs: Obs, chunk: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance of the style of demonstrations, (B, Z) each."""
        ...

    def decode(self, obs: Obs, z: Tensor | None) -> Tensor:
        """Chunks (B, H, A)."""
        ...


def counted_mean(values: Tensor, valid: Tensor) -> Tensor:
    """Mean of (B, H, A) over entries of valid actions, (B, H) bool, or as (B, H) weighs them."""
    weight = valid.to(values.dtype)[..., None]
    return (values * weight).sum() / (weight.sum() * values.shape[-1]).clamp_min(1.0)


def squared_error(
    policy: MeanPolicy, obs: Obs, chunk: Tensor, valid: Tensor, generator: torch.Generator
) -> Tensor:
    """Squared distance of the mean from the demonstrated actions."""
    mean, _ = policy.moments(obs)
    return counted_mean((mean - chunk).square(), valid)


def negative_log_likelihood(
    policy: MeanPolicy, obs: Obs, chunk: Tensor, valid: Tensor, generator: torch.Generator
) -> Tensor:
    """Of a normal distribution that is not squashed: demonstrations touch -1 and 1."""
    mean, log_std = policy.moments(obs)
    standardised = (chunk - mean) * (-log_std).exp()
    return counted_mean(0.5 * standardised.square() + log_std + 0.5 * math.log(2 * math.pi), valid)


def flow_matching(
    policy: VelocityPolicy, obs: Obs, chunk: Tensor, valid: Tensor, generator: torch.Generator
) -> Tensor:
    """Squared distance of the velocity from that of a straight way (Lipman et al. 2022, eq. 23).

    The way leads from normal noise at time 0 to the chunk at time 1; the time is uniform.
    """
    draw = {"generator": generator, "device": chunk.device}
    noise = torch.randn(chunk.shape, **draw)
    time = torch.rand(len(chunk), 1, **draw)
    now = torch.lerp(noise, chunk, time[..., None])
    return counted_mean((policy.velocity(obs, now, time) - (chunk - noise)).square(), valid)


class AutoencodedChunks:
    """Absolute error, plus the style's divergence from its prior (Zhao et al. 2023)."""

    def __init__(self, divergence_weight: float) -> None:
        """Say how much the divergence weighs."""
        self._weight = divergence_weight

    def __call__(
        self, policy: StylePolicy, obs: Obs, chunk: Tensor, valid: Tensor,
        generator: torch.Generator,
    ) -> Tensor:  # fmt: skip
        """Loss, 0-dim; the style is drawn from what the demonstration says about it."""
        if not policy.has_style:
            return counted_mean((policy.decode(obs, None) - chunk).abs(), valid)
        mean, log_variance = policy.encode(obs, chunk, valid)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        z = mean + noise * (0.5 * log_variance).exp()
        error = counted_mean((policy.decode(obs, z) - chunk).abs(), valid)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1).mean()
        return error + self._weight * divergence
