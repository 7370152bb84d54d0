"""A policy that gives chunks, made into one that gives an action in every step."""

import torch
from torch import Tensor, nn

from robot_rl.core.env import Obs
from robot_rl.core.episodic import ChunkQueue


class QueuedPolicy(nn.Module):
    """Does what its network planned: the same queue stands around a bundle (`PolicyRunner`).

    Remembers plans between calls, so `begin` must be told where episodes start. Another number of
    worlds than in the call before starts all of them.
    """

    def __init__(
        self, network: nn.Module, *, chunk_length: int, replan_interval: int,
        ensemble_decay: float | None = None,
    ) -> None:  # fmt: skip
        """Take over a network of chunks (N, H, A) in [-1, 1]; the rest as of `ChunkQueue`."""
        super().__init__()
        self.network = network
        self.chunk_length, self.replan_interval = chunk_length, replan_interval
        self.ensemble_decay = ensemble_decay
        self._queue: ChunkQueue | None = None
        self._count = 0

    def forward(self, obs: Obs) -> Tensor:
        """Actions, (N, A), in [-1, 1]; each call is the next step of all worlds."""
        count = obs["actor"].shape[0]
        queue = self._queue if self._count == count else None
        if queue is None or bool(queue.due.any()):
            chunk = self.network(obs)
            if queue is None:
                queue = ChunkQueue(
                    torch.zeros_like(chunk[:, 0]), self.chunk_length, self.replan_interval,
                    self.ensemble_decay,
                )  # fmt: skip
                self._queue, self._count = queue, count
            queue.put(chunk)
        return queue.take()

    def begin(self, mask: Tensor) -> None:
        """Throw the plans of the masked worlds away, (N,) bool."""
        if self._queue is not None and len(mask) == self._count:
            self._queue.reset(mask.to(self._queue.due.device))
        else:
            self._queue = None
