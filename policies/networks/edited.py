"""Choice among chunks that a flow proposes and what an editor makes of them (EXPO).

The editor is a residual actor over whole chunks: a proposal plus `scale` times what it draws. In
training a candidate is worth the smallest of a few critics drawn anew. Deployed, proposals begin at
the same noises in every step, edits are the editor's mode, and a candidate is worth the mean of
that smallest over all draws there are: the same observation gives the same chunk.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from policies.networks.flow import FlowPolicy, is_decided, picked
from policies.networks.q_ensemble import QEnsemble
from policies.networks.residual import ResidualActor
from robot_rl.core.base_action import BASE_ACTION
from robot_rl.core.env import Obs


class EditedChunk(nn.Module):
    """A flow, an editor and critics of whole chunks, which all read the group `actor`."""

    noise: Tensor
    draws: Tensor

    def __init__(
        self, actor: FlowPolicy, edit: ResidualActor, critic: QEnsemble, noise: Tensor,
        *, members: int, drawn: int,
    ) -> None:  # fmt: skip
        """Share the networks with whoever trains them.

        Args:
            actor: Proposes chunks (N, H, A).
            edit: Of H * A entries.
            critic: Of chunks, (N, H * A).
            noise: Normals (S, H, A) at which S proposals begin, each of which is edited too.
            members: E, critics there are.
            drawn: Critics of which the smallest counts.
        """
        super().__init__()
        self.actor, self.edit, self.critic = actor, edit, critic
        self.register_buffer("noise", noise)
        draws = torch.combinations(torch.arange(members), drawn)  # (C, drawn)
        self.register_buffer("draws", draws, persistent=False)

    def forward(self, obs: Obs) -> Tensor:
        """Actions (N, A), or chunks (N, H, A) where H is more than 1, in [-1, 1]."""
        chunks, value = self._valued(obs)
        chunk = picked(chunks, value.argmax(0)).unflatten(1, self.actor.chunk_shape)
        return chunk[:, 0] if self.actor.chunk_length == 1 else chunk

    def candidates(self, obs: Obs, noise: Tensor, edit: Callable[[Obs], Tensor]) -> Tensor:
        """Chunks that noises (S, N, H, A) flow to, then their edits, (2 S, N, H * A)."""
        count = noise.shape[0]
        seen = {name: obs[name].repeat(count, 1) for name in self.actor.groups}
        proposed = self.actor.flow(seen, noise.flatten(0, 1)).flatten(1)  # (S * N, H * A)
        edited = edit({**seen, BASE_ACTION: proposed})
        return torch.cat([proposed, edited]).unflatten(0, (2 * count, -1))

    def decided(self, obs: Obs) -> Tensor:
        """True where rounding cannot change which one is the best, (N,) bool."""
        return is_decided(*self._valued(obs))

    def _valued(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """Candidates (2 S, N, H * A), and what they are worth, (2 S, N)."""
        noise = self.noise[:, None].expand(-1, obs["actor"].shape[0], -1, -1)
        chunks = self.candidates(obs, noise, self.edit)
        seen = {name: obs[name].repeat(chunks.shape[0], 1) for name in self.actor.groups}
        q = self.critic(seen, chunks.flatten(0, 1)).squeeze(-1).float()  # (E, 2 S * N)
        value = q[self.draws].amin(1).mean(0)
        return chunks, value.unflatten(0, (chunks.shape[0], -1))
