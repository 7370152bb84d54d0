"""A flow from noise to chunks of demonstrated actions (Lipman et al. 2022, arXiv:2210.02747).

The network is a velocity: a chunk that starts as normal noise at time 0 and follows it arrives at a
demonstrated one at time 1. Unlike a mean it can choose one of two ways around an obstacle. It is
followed in a few steps of Euler. Evaluated and deployed it starts at the same noise each time,
which is a part of the network: the same observation gives the same chunk, in torch and in a bundle.

`BestChunk` picks, of several chunks that a flow proposes, the one that a critic values most.
Deployed, the proposals begin at the same noises in every step, drawn once with the weights: the
same observation gives the same chunk, and critics and noises go into the bundle's graph.
"""

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import torch
from torch import Tensor, nn

from policies.networks.inputs import NormalizedNetwork
from policies.networks.mlp import Activation
from policies.networks.q_ensemble import QEnsemble
from policies.networks.trunks import NetworkConfig, make_network
from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError

_TIME_WIDTH = 16
"""Numbers that tell the network the time: sines and cosines of 2^k pi t."""


class FlowStart(Enum):
    """The noise at which a policy that is evaluated or deployed starts."""

    zero = "zero"
    """The middle of the distribution; of two ways that lie opposite each other it takes neither."""
    drawn = "drawn"
    """Drawn once, by `start_seed`: one of the ways, always by the same noise."""


@dataclass(kw_only=True)
class FlowPolicyConfig(NetworkConfig):
    """Shape of the velocity network, and how it is followed."""

    hidden: list[int] = field(default_factory=lambda: [512, 512, 512])
    activation: Activation = Activation.gelu
    width: int = 256
    blocks: int = 3
    steps: int = 10
    """Steps of Euler from noise to a chunk."""
    start: FlowStart = FlowStart.zero
    """Start of the policy that is evaluated and deployed: zero noise, or drawn."""
    start_seed: int = 0
    """Of the drawn noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.steps <= 1000:
            raise ConfigError(f"actor.steps must lie in [1, 1000], got {self.steps}")
        if self.start_seed < 0:
            raise ConfigError(f"actor.start_seed must be >= 0, got {self.start_seed}")


class FlowPolicy(NormalizedNetwork):
    """Reads the group `actor`; chunks of actions by following a learned velocity."""

    start: Tensor
    """Noise (1, H, A) at which `forward` starts."""
    _frequencies: Tensor

    def __init__(
        self, config: FlowPolicyConfig, obs_size: int, action_size: int, chunk_length: int = 1
    ) -> None:
        """Build it for observations (N, D), actions (N, A) and chunks of H."""
        chunk = chunk_length * action_size
        network = make_network(config, obs_size + chunk + _TIME_WIDTH, chunk)
        super().__init__(config, obs_size, network)
        self.config = config
        self.chunk_length, self.action_size = chunk_length, action_size
        self.chunk_shape = (chunk_length, action_size)
        """(H, A)."""
        frequencies = torch.pi * 2.0 ** torch.arange(_TIME_WIDTH // 2)
        self.register_buffer("_frequencies", frequencies, persistent=False)
        noise = np.zeros((1, *self.chunk_shape), np.float32)
        if config.start is FlowStart.drawn:
            noise = np.random.default_rng(config.start_seed).standard_normal(
                noise.shape, np.float32
            )
        self.register_buffer("start", torch.from_numpy(noise), persistent=False)

    def forward(self, obs: Obs) -> Tensor:
        """Actions (N, A), or chunks (N, H, A) where H is more than 1: where `start` flows to."""
        chunk = self.flow(obs, torch.zeros_like(obs["actor"][:, :1, None]) + self.start)
        return chunk[:, 0] if self.chunk_length == 1 else chunk

    def flow(self, obs: Obs, noise: Tensor) -> Tensor:
        """Chunks (N, H, A) that noise (N, H, A) flows to, clipped to [-1, 1]."""
        seen = self.normalized(obs)
        steps, x = self.config.steps, noise
        for k in range(steps):
            time = torch.zeros_like(seen[:, :1]) + k / steps
            x = x + self._velocity(seen, x, time) / steps
        return x.clamp(-1.0, 1.0)

    def velocity(self, obs: Obs, x: Tensor, time: Tensor) -> Tensor:
        """Velocity (N, H, A) of chunks on their way.

        Args:
            x: The chunks now, (N, H, A).
            time: Since the noise, (N, 1), in [0, 1].
        """
        return self._velocity(self.normalized(obs), x, time)

    def _velocity(self, seen: Tensor, x: Tensor, time: Tensor) -> Tensor:
        angle = time * self._frequencies
        parts = [
            seen,  # D
            x.flatten(1),  # H * A
            angle.sin(),  # 8
            angle.cos(),  # 8
        ]
        return self.network(torch.cat(parts, dim=-1)).float().reshape(-1, *self.chunk_shape)


_ROUNDING = 1e-5
"""Share of a value, plus one, by which runtimes may differ: they sum in another order."""


class BestChunk(nn.Module):
    """A flow and a critic of whole chunks, which both read the group `actor`."""

    noise: Tensor

    def __init__(self, actor: FlowPolicy, critic: QEnsemble, candidates: int) -> None:
        """Share the networks with whoever trains them; draws noises from torch's own generator.

        Args:
            critic: Of chunks, (N, H * A).
            candidates: S, chunks among which it chooses where no noise is given.
        """
        super().__init__()
        self.actor, self.critic = actor, critic
        self.register_buffer("noise", torch.randn(candidates, *actor.chunk_shape))

    def forward(self, obs: Obs) -> Tensor:
        """Actions (N, A), or chunks (N, H, A) where H is more than 1, in [-1, 1]."""
        chunk = self.choose(obs, self._noise(obs))
        return chunk[:, 0] if self.actor.chunk_length == 1 else chunk

    def choose(self, obs: Obs, noise: Tensor) -> Tensor:
        """The best of the chunks, (N, H, A), that noises (S, N, H, A) flow to."""
        chunks, value = self._proposals(obs, noise)
        return picked(chunks, value.argmax(0)).unflatten(1, self.actor.chunk_shape)

    def decided(self, obs: Obs) -> Tensor:
        """True where rounding cannot change which one is the best, (N,) bool."""
        return is_decided(*self._proposals(obs, self._noise(obs)))

    def _proposals(self, obs: Obs, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Chunks (S, N, H * A), and what they are worth, (S, N): the mean of all critics."""
        count = noise.shape[0]
        seen = {name: obs[name].repeat(count, 1) for name in self.actor.groups}
        chunks = self.actor.flow(seen, noise.flatten(0, 1)).flatten(1)  # (S * N, H * A)
        value = self.critic(seen, chunks).squeeze(-1).float().mean(0)
        return chunks.unflatten(0, (count, -1)), value.unflatten(0, (count, -1))

    def _noise(self, obs: Obs) -> Tensor:
        count = obs["actor"].shape[0]
        return self.noise[:, None].expand(-1, count, -1, -1)


def is_decided(chunks: Tensor, value: Tensor) -> Tensor:
    """True where rounding cannot change which chunk is the best, (N,) bool.

    Args:
        chunks: Proposals, (S, N, K).
        value: What they are worth, (S, N).
    """
    best = value.amax(0)  # (N,)
    near = value > best - _ROUNDING * (1 + best.abs())
    apart = (chunks - picked(chunks, value.argmax(0))).abs().amax(-1)  # (S, N)
    return (~near | (apart < _ROUNDING)).all(0)


def picked(chunks: Tensor, index: Tensor) -> Tensor:
    """Of chunks (S, N, K) the one of each row that an index (N,) names, (N, K)."""
    return chunks.gather(0, index[None, :, None].expand(-1, -1, chunks.shape[-1]))[0]
