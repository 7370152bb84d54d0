"""The end of an episode, which success is judged by."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.rows import Rows


class EndRecord:
    """Means of distance and speed over the last seconds of every world's episode."""

    def __init__(self, num_worlds: int, device: torch.device, first_step: int) -> None:
        """Start empty.

        Args:
            num_worlds: N.
            device: Where the sums live.
            first_step: Steps of an episode before this one are not counted.
        """
        self._first_step = first_step
        self._ones = torch.ones(num_worlds, device=device)
        self._sums = torch.zeros(4, num_worlds, device=device)
        self._error, self._square, self._speed, self._count = self._sums  # views

    def add(self, distance: Tensor, speed: Tensor, episode_step: Tensor) -> None:
        """Count one step of all worlds, (N,) each."""
        entries = torch.stack([distance, distance * distance, speed, self._ones])
        self._sums.addcmul_(entries, episode_step > self._first_step)

    def clear(self, rows: Rows) -> None:
        """Forget the picked worlds."""
        rows.put(self._sums.T, 0.0)

    @property
    def mean_distance(self) -> Tensor:
        """(N,), [m]; NaN before the first counted step."""
        return self._error / self._count

    @property
    def rms_distance(self) -> Tensor:
        """(N,), [m]; NaN before the first counted step."""
        return (self._square / self._count).sqrt()

    @property
    def mean_speed(self) -> Tensor:
        """(N,), [m/s]; NaN before the first counted step."""
        return self._speed / self._count

    def state_dict(self) -> dict[str, Any]:
        """Running sums."""
        return {"sums": self._sums.T.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._sums.copy_(state["sums"].T)
