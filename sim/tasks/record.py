"""Records of an episode (its end, which success is judged by; touches) and shapes of rewards."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection


def closeness(distance: Tensor, half: float) -> Tensor:
    """1 at distance 0, one half at `half`, towards 0 far away; as of the distance's shape."""
    return 1 / (1 + (distance / half) ** 2)


def square_sum(value: Tensor) -> Tensor:
    """Sum of the squares along the last axis, (..., width) -> (...)."""
    return (value * value).sum(-1)


class EndRecord:
    """Means of distance and speed over the last seconds of every world's episode."""

    def __init__(self, num_envs: int, device: torch.device, first_step: int) -> None:
        """Start empty.

        Args:
            num_envs: N.
            device: Where the sums live.
            first_step: Steps of an episode before this one are not counted.
        """
        self._first_step = first_step
        self._ones = torch.ones(num_envs, device=device)
        self._sums = torch.zeros(4, num_envs, device=device)
        self._error, self._square, self._speed, self._count = self._sums  # views

    def add(self, distance: Tensor, speed: Tensor, episode_step: Tensor) -> None:
        """Count one step of all worlds, (N,) each."""
        entries = torch.stack([distance, distance * distance, speed, self._ones])
        self._sums.addcmul_(entries, episode_step > self._first_step)

    def clear(self, rows: EnvSelection) -> None:
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


class TouchCount:
    """Number of times that every env's robot began to touch something in this episode."""

    def __init__(self, num_envs: int, device: torch.device) -> None:
        """Start at zero, touching nothing.

        Args:
            num_envs: N.
            device: Where the counts live.
        """
        self.count = torch.zeros(num_envs, device=device)
        """(N,); overwritten in place."""
        self._touching = torch.zeros(num_envs, dtype=torch.bool, device=device)

    def add(self, touching: Tensor) -> None:
        """Count one step of all worlds, (N,) bool."""
        self.count += touching & ~self._touching
        self._touching.copy_(touching)

    def clear(self, rows: EnvSelection) -> None:
        """Forget the picked worlds."""
        rows.put(self.count, 0.0)
        rows.put(self._touching, False)

    def state_dict(self) -> dict[str, Any]:
        """Counts, and who touches now."""
        return {"count": self.count.clone(), "touching": self._touching.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.count.copy_(state["count"])
        self._touching.copy_(state["touching"])
