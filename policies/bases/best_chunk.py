"""Of several chunks that a flow proposes, the one that a critic likes best.

Deployed, the proposals begin at the same noises in every step, drawn once with the weights: the
same observation gives the same chunk, and critics and noises go into the bundle's graph.
"""

import torch
from torch import Tensor, nn

from policies.bases.flow import FlowPolicy
from policies.q_ensemble import QEnsemble
from robot_rl.core.env import Obs

_ROUNDING = 1e-5
"""Share of a value, plus one, by which runtimes may differ: they sum in another order."""


class BestChunk(nn.Module):
    """A flow and a critic of whole chunks, which both read the group `actor`."""

    noise: Tensor

    def __init__(self, actor: FlowPolicy, critic: QEnsemble, candidates: int) -> None:
        """Share the networks with whoever trains them; draws noises from torch's own generator.

        Args:
            actor: Proposes.
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
        return _picked(chunks, value.argmax(0)).unflatten(1, self.actor.chunk_shape)

    def decided(self, obs: Obs) -> Tensor:
        """Where rounding cannot change which one is the best, (N,) bool."""
        chunks, value = self._proposals(obs, self._noise(obs))
        best = value.amax(0)  # (N,)
        near = value > best - _ROUNDING * (1 + best.abs())
        apart = (chunks - _picked(chunks, value.argmax(0))).abs().amax(-1)  # (S, N)
        return (~near | (apart < _ROUNDING)).all(0)

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


def _picked(chunks: Tensor, index: Tensor) -> Tensor:
    """Of chunks (S, N, K) the one of each row that an index (N,) names, (N, K)."""
    return chunks.gather(0, index[None, :, None].expand(-1, -1, chunks.shape[-1]))[0]
