"""Action chunking with a transformer (Zhao et al. 2023, arXiv:2304.13705), for vectors.

An encoder reads the observation and a style z, a decoder turns H learned queries into a chunk. As a
variational autoencoder z says in training which of several ways a demonstration took, and is read
off its actions by an encoder of its own; deployed it is 0, the middle of its prior.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from policies.networks.inputs import make_normalizer
from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError

_FAR = -1e9
"""Added to the score of what must not be attended to."""


@dataclass(kw_only=True)
class ACTPolicyConfig:
    """Shape of the transformer; the paper's are 512 wide with 4, 4 and 7 blocks, for images."""

    width: int = 128
    """Of every token."""
    heads: int = 4
    """Of attention; divides the width."""
    feedforward: int = 512
    """Hidden units of a block."""
    encoder_blocks: int = 2
    """Of the observation's encoder, and of the demonstration's."""
    decoder_blocks: int = 2
    """Of the chunk's decoder."""
    latent: int = 32
    """Width of the style z; 0 leaves it out: no autoencoder."""
    dropout: float = 0.1
    """Share of the units of a block that training leaves out."""
    normalize: bool = True
    """Normalise observations by the statistics of the demonstrations."""

    def __post_init__(self) -> None:
        for name in ("width", "heads", "feedforward", "encoder_blocks", "decoder_blocks"):
            if getattr(self, name) < 1:
                raise ConfigError(f"actor.{name} must be at least 1, got {getattr(self, name)}")
        if self.width % self.heads:
            raise ConfigError(
                f"actor.heads {self.heads} does not divide actor.width {self.width}; expected a "
                "divisor"
            )
        if self.latent < 0:
            raise ConfigError(f"actor.latent must be >= 0, got {self.latent}")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"actor.dropout must lie in [0, 1), got {self.dropout}")


class ACTPolicy(nn.Module):
    """Reads the group `actor`; chunks of actions."""

    def __init__(
        self, config: ACTPolicyConfig, obs_size: int, action_size: int, chunk_length: int = 1
    ) -> None:
        """Build it for observations (N, D), actions (N, A) and chunks of H."""
        super().__init__()
        self.config = config
        self.chunk_length, self.action_size = chunk_length, action_size
        self.normalizer = make_normalizer(obs_size, wanted=config.normalize)
        width = config.width
        self.see = nn.Linear(obs_size, width)
        self.encoder = nn.ModuleList([Block(config) for _ in range(config.encoder_blocks)])
        self.decoder = nn.ModuleList(
            [Block(config, crossing=True) for _ in range(config.decoder_blocks)]
        )
        self.queries = nn.Parameter(torch.randn(chunk_length, width) / width**0.5)
        self.head = nn.Linear(width, action_size)
        if config.latent > 0:
            self.style = nn.Linear(config.latent, width)
            self.demonstrated = nn.Linear(action_size, width)
            self.places = nn.Parameter(torch.randn(chunk_length + 2, width) / width**0.5)
            self.posterior = nn.ModuleList([Block(config) for _ in range(config.encoder_blocks)])
            self.summary = nn.Linear(width, 2 * config.latent)

    def forward(self, obs: Obs) -> Tensor:
        """Actions (N, A), or chunks (N, H, A) where H is more than 1, in [-1, 1]."""
        chunk = self.decode(obs, None).clamp(-1.0, 1.0)
        return chunk[:, 0] if self.chunk_length == 1 else chunk

    def decode(self, obs: Obs, z: Tensor | None) -> Tensor:
        """Chunks (N, H, A), not bounded, of styles (N, Z); None is their mean, 0."""
        seen = self.see(self.normalizer(obs["actor"]))[:, None]  # (N, 1, W)
        if self.config.latent > 0:
            zeros = torch.zeros_like(seen[:, 0, :1]).expand(-1, self.config.latent)
            seen = torch.cat([seen, self.style(zeros if z is None else z)[:, None]], dim=1)
        for block in self.encoder:
            seen = block(seen)
        tokens = self.queries + torch.zeros_like(seen[:, :1])  # (N, H, W)
        for block in self.decoder:
            tokens = block(tokens, seen)
        return self.head(tokens)

    def encode(self, obs: Obs, chunk: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance of the style of demonstrations, (N, Z) each.

        Args:
            chunk: What was done, (N, H, A).
            valid: Which of it was, (N, H) bool.
        """
        seen = self.see(self.normalizer(obs["actor"]))[:, None]
        parts = [
            torch.zeros_like(seen),  # 1, collects the summary
            seen,  # 1
            self.demonstrated(chunk),  # H
        ]
        tokens = torch.cat(parts, dim=1) + self.places
        always = torch.ones_like(valid[:, :1])
        shut = torch.cat([always, always, valid], dim=1).logical_not()
        bias = torch.zeros_like(shut, dtype=tokens.dtype).masked_fill(shut, _FAR)
        for block in self.posterior:
            tokens = block(tokens, bias=bias[:, None, None, :])
        mean, log_variance = self.summary(tokens[:, 0]).chunk(2, dim=-1)
        return mean, log_variance

    def update_statistics(self, obs: Obs) -> None:
        """Take the group `actor`, (N, D), into the normaliser."""
        self.normalizer.update(obs["actor"])

    def constrain(self) -> None:
        """Nothing: no weights are constrained."""


class Block(nn.Module):
    """Attention to itself [and to a memory], then two layers; each is added to what came in."""

    def __init__(self, config: ACTPolicyConfig, *, crossing: bool = False) -> None:
        """Build it; normalises before each part (Xiong et al. 2020), which needs no warm-up."""
        super().__init__()
        width = config.width
        self.attention = Attention(width, config.heads)
        self.crossing = Attention(width, config.heads) if crossing else None
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3 if crossing else 2)])
        self.feedforward = nn.Sequential(
            nn.Linear(width, config.feedforward), nn.ReLU(), nn.Dropout(config.dropout),
            nn.Linear(config.feedforward, width),
        )  # fmt: skip
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, memory: Tensor | None = None, bias: Tensor | None = None
    ) -> Tensor:
        """(N, T, W) -> (N, T, W)."""
        seen = self.norms[0](x)
        x = x + self.dropout(self.attention(seen, seen, bias))
        if self.crossing is not None and memory is not None:
            x = x + self.dropout(self.crossing(self.norms[2](x), memory, None))
        return x + self.dropout(self.feedforward(self.norms[1](x)))


class Attention(nn.Module):
    """Scaled products of queries and keys, written out: it exports as plain operations."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor, bias: Tensor | None) -> Tensor:
        """(N, T, W) and (N, M, W) -> (N, T, W)."""
        q, k, v = (self._split(f(s)) for f, s in (
            (self.query, x), (self.key, memory), (self.value, memory)
        ))  # fmt: skip
        score = q @ k.transpose(-1, -2) * self.size**-0.5  # (N, heads, T, M)
        if bias is not None:
            score = score + bias
        mixed = (score.softmax(-1) @ v).transpose(1, 2)
        return self.out(mixed.flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, self.size)).transpose(1, 2)
