"""Pushes: now and then a floating base gets another velocity, as if somebody had kicked it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.seeding import derive_seed


@dataclass(kw_only=True)
class PushConfig:
    """How hard and how often a floating base is pushed."""

    speed: float = 0.0
    """Largest change of the base's horizontal velocity [m/s], any direction; 0 pushes nobody."""
    turn: float = 0.0
    """Largest change of its angular velocity per axis [rad/s]."""
    interval: list[float] = field(default_factory=lambda: [2.0, 6.0])
    """Range of the time between two pushes [s]."""

    def __post_init__(self) -> None:
        """Refuse negative pushes and empty intervals."""
        if self.speed < 0 or self.turn < 0:
            raise ConfigError(
                f"pushes.speed and .turn must be >= 0, got {self.speed} and {self.turn}"
            )
        if len(self.interval) != 2 or not 0 < self.interval[0] <= self.interval[1]:
            raise ConfigError(
                f"pushes.interval must be [low, high] with 0 < low <= high [s], got {self.interval}"
            )

    @property
    def active(self) -> bool:
        """Whether anybody is pushed."""
        return self.speed > 0 or self.turn > 0


class Pushes:
    """Pushes the bases of N worlds, each at its own times."""

    def __init__(
        self,
        config: PushConfig,
        *,
        num_worlds: int,
        control_dt: float,
        seed: int,
        device: torch.device | None = None,
    ) -> None:
        """Draw the first waiting times.

        Args:
            config: How hard and how often.
            num_worlds: N.
            control_dt: Time between two calls of `push` [s].
            seed: Of times and pushes.
            device: Where the worlds live; None for the CPU.
        """
        self._config = config
        self.level: Tensor | None = None
        """Part of the largest push that is given, 0-dim, live; None for the whole."""
        self._control_dt = control_dt
        self._device = device or torch.device("cpu")
        self._generator = torch.Generator(device=self._device)
        self._wait = torch.zeros(num_worlds, device=self._device)
        self.reseed(seed)

    def push(self, base_velocity: Tensor) -> None:
        """Change the velocities of the worlds whose time has come.

        Args:
            base_velocity: Linear (world axes) and angular velocity of the bases, (N, 6), [m/s] and
                [rad/s]; overwritten.
        """
        self._wait -= self._control_dt
        rows = EnvSelection(self._wait <= 0)
        if rows.count == 0:
            return
        unit = torch.rand((rows.count, 6), generator=self._generator, device=self._device)
        angle, turn = 2 * torch.pi * unit[:, 0], 2 * unit[:, 2:5] - 1
        speed = self._config.speed * unit[:, 1]
        kick = base_velocity.new_zeros(rows.count, 6)
        kick[:, 0], kick[:, 1] = speed * angle.cos(), speed * angle.sin()
        kick[:, 3:] = self._config.turn * turn
        if self.level is not None:
            kick *= self.level
        rows.put(base_velocity, rows.take(base_velocity) + kick)
        rows.put(self._wait, self._waits(unit[:, 5]))

    def reseed(self, seed: int) -> None:
        """Restart the stream of pushes."""
        self._generator.manual_seed(derive_seed(seed, "pushes"))
        self._wait = self._waits(
            torch.rand(self._wait.shape, generator=self._generator, device=self._device)
        )

    def state_dict(self) -> dict[str, Any]:
        """Waiting times and the stream of pushes."""
        return {"wait": self._wait.clone(), "generator": self._generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._wait.copy_(state["wait"])
        self._generator.set_state(state["generator"])

    def _waits(self, unit: Tensor) -> Tensor:
        low, high = self._config.interval
        return low + (high - low) * unit
