"""Minibatches that the critics have learned from, and the actor not yet."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env import Obs


@dataclass(frozen=True)
class Seen:
    """Part of a minibatch, B rows."""

    obs: Obs
    """Groups (B, ...)."""
    weight: Tensor
    """(B,)."""
    next_log_prob: Tensor
    """Of the actions drawn at the next observations, (B,)."""


class Pending:
    """All minibatches since the actor's last step."""

    def __init__(self, device: torch.device) -> None:
        """Begin empty.

        Args:
            device: Of the tensors.
        """
        self._device = device
        self._seen: list[Seen] = []

    def add(self, seen: Seen) -> None:
        """A minibatch waits."""
        self._seen.append(seen)

    def take(self) -> Seen:
        """All that waits, joined; nothing waits after it."""
        seen, self._seen = self._seen, []
        if len(seen) == 1:
            return seen[0]
        return Seen(
            {name: torch.cat([one.obs[name] for one in seen]) for name in seen[0].obs},
            torch.cat([one.weight for one in seen]),
            torch.cat([one.next_log_prob for one in seen]),
        )

    def state_dict(self) -> list[dict[str, Any]]:
        """What waits."""
        return [dict(vars(seen)) for seen in self._seen]

    def load_state_dict(self, state: Sequence[dict[str, Any]]) -> None:
        """Restore `state_dict`."""
        self._seen = [
            Seen(
                {name: group.to(self._device) for name, group in entry["obs"].items()},
                entry["weight"].to(self._device),
                entry["next_log_prob"].to(self._device),
            )
            for entry in state
        ]
