"""A residual actor together with its base: what is played without a wrapper, and deployed."""

import torch
from torch import Tensor, nn

from policies.bases.frozen import FrozenBase, FrozenPolicy
from policies.residual_actor import ResidualActor
from robot_rl.core.base_action import BASE_ACTION
from robot_rl.core.env import Obs


class CorrectedPolicy(nn.Module):
    """Observations without base actions -> executed actions; its base plans, so it is episodic."""

    def __init__(self, actor: ResidualActor, base: FrozenBase) -> None:
        """Join the parts.

        Args:
            actor: The residual.
            base: For as many worlds as it will be asked about.
        """
        super().__init__()
        self.actor = actor
        self.base = base
        self._starting: Tensor | None = None

    def forward(self, obs: Obs) -> Tensor:
        """Actions, (N, A), in [-1, 1]; each call is the next step of all worlds."""
        count = obs["actor"].shape[0]
        if count != self.base.count:
            self.base = self.base.of(count)
            self._starting = None
        fresh = self._starting
        if fresh is None:
            fresh = torch.ones(count, dtype=torch.bool, device=obs["actor"].device)
        self._starting = torch.zeros_like(fresh)
        self.base.forget(fresh)
        return self.actor({**obs, BASE_ACTION: self.base.next(obs)})

    def begin(self, mask: Tensor) -> None:
        """Episodes start in the masked worlds, (N,) bool."""
        if self._starting is not None and self._starting.shape == mask.shape:
            self._starting = self._starting | mask.to(self._starting.device)


class CorrectedGraph(nn.Module):
    """The part of a `CorrectedPolicy` that torch exports: everything but the base's networks.

    The plans are its recurrent state: of each policy of the base a chunk (H * A numbers) and how
    many of its actions are done (1).
    """

    def __init__(self, actor: ResidualActor, policies: list[FrozenPolicy]) -> None:
        """Join the parts."""
        super().__init__()
        self.actor = actor
        self.policies = policies
        self._size = actor.action_size

    @property
    def initial_state(self) -> list[float]:
        """All plans are done at an episode's start."""
        state: list[float] = []
        for one in self.policies:
            state += [0.0] * (one.chunk_length * self._size) + [float(one.replan_interval)]
        return state

    def forward(self, obs: Obs, state: Tensor, *chunks: Tensor) -> tuple[Tensor, Tensor]:
        """Executed action (N, A) and the next state, from what the base's networks gave.

        Args:
            obs: The group `actor`, (N, D).
            state: (N, S).
            chunks: Of each policy of the base, (N, H, A), or (N, A) where H is 1.
        """
        base, after, start = 0.0, [], 0
        for one, chunk in zip(self.policies, chunks, strict=True):
            width = one.chunk_length * self._size
            plan, done = (
                state[:, start : start + width],
                state[:, start + width : start + width + 1],
            )
            start += width + 1
            due = done >= one.replan_interval
            plan = torch.where(due, chunk.reshape(-1, width), plan)
            done = torch.where(due, torch.zeros_like(done), done)
            steps = plan.reshape(-1, one.chunk_length, self._size)
            index = done.long().clamp(0, one.chunk_length - 1)[:, :, None].expand(-1, 1, self._size)
            base = base + one.weight * steps.gather(1, index)[:, 0]
            after += [plan, done + 1.0]
        assert isinstance(base, Tensor)
        action = self.actor({**obs, BASE_ACTION: base.clamp(-1.0, 1.0)})
        return action, torch.cat(after, dim=-1)
