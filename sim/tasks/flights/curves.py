"""Smooth reference curves as sums of sines: one description for all worlds, with derivatives."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from sim import draws
from sim.tasks import checks

HARMONICS = 3
"""Sines per axis."""


@dataclass(kw_only=True)
class CurveConfig:
    """Mixture of lemniscates and random smooth curves."""

    lemniscate_share: float = 0.5
    """Share of episodes that fly the lemniscate; the others fly a random smooth curve."""
    lemniscate_size: float = 1.0
    """Half the lemniscate's extent along x [m]."""
    lemniscate_period: float = 5.5
    """Time of one lap [s]."""
    random_size: float = 1.0
    """Largest amplitude of a random curve per axis [m]."""
    random_speed: float = 1.5
    """Largest speed of a random curve per axis [m/s]."""

    def __post_init__(self) -> None:
        """Refuse curves that do not exist."""
        checks.share(self, "lemniscate_share", of="curve")
        sizes = ("lemniscate_size", "lemniscate_period", "random_size", "random_speed")
        checks.positive(self, *sizes, of="curve")


class Curves:
    """One curve per world: position(t) = sum over h of A_h sin(w_h t + phi_h), per axis.

    Random curves are shifted so that they begin in the origin, as the lemniscate does.
    """

    def __init__(self, config: CurveConfig, num_envs: int, device: torch.device) -> None:
        """Start with every world's curve resting in the origin."""
        self.config = config
        # amplitude [m], angular frequency [rad/s], phase [rad]
        self._sines = torch.zeros(num_envs, 3, 3, HARMONICS, device=device)
        self._offset = torch.zeros(num_envs, 3, device=device)

    def draw(self, rows: EnvSelection, generator: torch.Generator) -> None:
        """Draw new curves for the picked worlds."""
        count = rows.count
        shape = (count, 3, HARMONICS)
        pick = draws.uniform((count, 1, 1), 0.0, 1.0, generator) < self.config.lemniscate_share
        # Frequencies of 1, 2 and 3 laps per 4 to 12 s; amplitudes bounded in size and in speed.
        base = 2 * torch.pi / draws.uniform((count, 1, 1), 4.0, 12.0, generator)
        frequency = base * torch.arange(1, HARMONICS + 1, device=generator.device).expand(shape)
        reach = torch.minimum(
            torch.full_like(frequency, self.config.random_size),
            self.config.random_speed / frequency,
        )
        amplitude = draws.uniform(shape, -1.0, 1.0, generator) * reach / HARMONICS
        phase = draws.uniform(shape, -torch.pi, torch.pi, generator)
        sines = torch.stack([amplitude, frequency, phase], dim=1)
        sines = torch.where(pick[:, None], self._lemniscate(generator.device), sines)
        rows.put(self._sines, sines)
        start = (sines[:, 0] * sines[:, 2].sin()).sum(-1)  # (count, 3)
        rows.put(self._offset, start)

    def position(self, time: Tensor) -> Tensor:
        """Points of the curves.

        Args:
            time: Since each episode's start, (N, T), [s].

        Returns:
            (N, T, 3), [m], world axes.
        """
        amplitude, angle = self._angles(time)
        return (amplitude * angle.sin()).sum(-1) - self._offset[:, None]

    def velocity(self, time: Tensor) -> Tensor:
        """Velocities along the curves, (N, T) -> (N, T, 3), [m/s], world axes."""
        amplitude, angle = self._angles(time)
        frequency = self._sines[:, None, 1]
        return (amplitude * frequency * angle.cos()).sum(-1)

    def state_dict(self) -> dict[str, Any]:
        """All curves."""
        return {"sines": self._sines.clone(), "offset": self._offset.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._sines.copy_(state["sines"])
        self._offset.copy_(state["offset"])

    def _angles(self, time: Tensor) -> tuple[Tensor, Tensor]:
        sines = self._sines[:, None]  # (N, 1, 3, 3 axes, H)
        angle = torch.addcmul(sines[:, :, 2], sines[:, :, 1], time[:, :, None, None])
        return sines[:, :, 0], angle  # (N, 1, 3, H), (N, T, 3, H)

    def _lemniscate(self, device: torch.device) -> Tensor:
        """Figure of eight in the horizontal plane: x = s sin(w t), y = s/2 sin(2 w t)."""
        size, w = self.config.lemniscate_size, 2 * torch.pi / self.config.lemniscate_period
        sines = torch.zeros(3, 3, HARMONICS, device=device)
        sines[0, 0, 0], sines[1, 0, 0] = size, w
        sines[0, 1, 0], sines[1, 1, 0] = 0.5 * size, 2 * w
        return sines
