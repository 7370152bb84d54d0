"""Curricula that follow success, and random pushes against floating bases.

Ranges widen, and each env has a level of its own. Both are told, after every step, which episodes
ended and which of those succeeded. Neither makes the host wait for the device.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.seeding import derive_seed
from sim import checks

LEVEL = "curriculum/level"
"""Metric: the part of every range that new episodes draw from."""


class FollowsSuccess(Protocol):
    """Something that becomes harder or easier with the episodes that end."""

    def follow(self, ended: Tensor, success: Tensor) -> None:
        """Take note of a step.

        Args:
            ended: (N,) bool, worlds whose episode ended validly in this step, before they begin
                anew.
            success: (N,) bool, those of them that succeeded.
        """
        ...


@dataclass(kw_only=True)
class CurriculumConfig:
    """Speed at which ranges widen from a part of themselves to the whole."""

    start: float = 1.0
    """Part of every range, around its nominal point, that training begins with, in [0, 1]; 1 has
    no curriculum."""
    grow: float = 0.1
    """Added to that part after a window of successes."""
    shrink: float = 0.0
    """Taken off it after a window of failures; it stays at `start` or above."""
    success: float = 0.8
    """Share of successes in a window from which the ranges grow."""
    failure: float = 0.3
    """Share of successes in a window below which the ranges shrink."""
    window: int = 256
    """Episodes, of all worlds together, after which the share is judged and counted anew."""

    def __post_init__(self) -> None:
        checks.share(self, "start", "success", "failure", of="curriculum")
        checks.positive(self, "grow", "window", of="curriculum")
        checks.not_negative(self, "shrink", of="curriculum")
        if self.failure > self.success:
            raise ConfigError(
                f"curriculum.failure {self.failure} must not exceed success {self.success}"
            )

    @property
    def active(self) -> bool:
        """True if ranges begin narrower than declared."""
        return self.start < 1


def widening(config: CurriculumConfig | None, device: torch.device) -> "RangeCurriculum | None":
    """Curriculum of a config; None where ranges are whole from the beginning."""
    return RangeCurriculum(config, device) if config is not None and config.active else None


class RangeCurriculum:
    """One level for all worlds: the part of every range that new episodes draw from."""

    def __init__(self, config: CurriculumConfig, device: torch.device) -> None:
        """Begin at `config.start`."""
        self._config = config
        self.level = torch.tensor(config.start, device=device)
        """Part of every range, 0-dim, in [start, 1]; overwritten in place."""
        self._episodes = torch.zeros((), device=device)
        self._successes = torch.zeros((), device=device)

    def follow(self, ended: Tensor, success: Tensor) -> None:
        """Count episodes, and judge them when the window is full."""
        config = self._config
        self._episodes += ended.sum()
        self._successes += (ended & success).sum()
        full = self._episodes >= config.window
        share = self._successes / self._episodes.clamp_min(1.0)
        change = config.grow * (share >= config.success) - config.shrink * (share < config.failure)
        self.level.add_(change * full).clamp_(config.start, 1.0)
        self._episodes *= ~full
        self._successes *= ~full

    def state_dict(self) -> dict[str, Any]:
        """Level and counts."""
        return {
            "level": self.level.clone(),
            "episodes": self._episodes.clone(),
            "successes": self._successes.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.level.copy_(state["level"])
        self._episodes.copy_(state["episodes"])
        self._successes.copy_(state["successes"])


class WorldLevels:
    """A level for each world, such as its row of a terrain: up after a success, else down.

    A world that passes the last level goes on anywhere, so that no level is forgotten.
    """

    def __init__(self, num_worlds: int, levels: int, device: torch.device) -> None:
        """Begin all worlds at the first level."""
        self._levels = levels
        self.level = torch.zeros(num_worlds, dtype=torch.int64, device=device)
        """(N,) int64, in [0, levels); overwritten in place."""
        self._passed = torch.zeros(num_worlds, dtype=torch.bool, device=device)

    def follow(self, ended: Tensor, success: Tensor) -> None:
        """Move the worlds whose episode ended by one level."""
        level = self.level + (ended & success).long() - (ended & ~success).long()
        self._passed |= level >= self._levels
        self.level.copy_(level.clamp(0, self._levels - 1))

    def begin(self, rows: EnvSelection, generator: torch.Generator) -> None:
        """Send those of the picked worlds that passed the last level to any level."""
        anywhere = self._anywhere(rows, generator)
        rows.put(self.level, torch.where(rows.take(self._passed), anywhere, rows.take(self.level)))
        rows.put(self._passed, False)

    def scatter(self, rows: EnvSelection, generator: torch.Generator) -> None:
        """Send all of the picked worlds to any level."""
        rows.put(self.level, self._anywhere(rows, generator))

    def state_dict(self) -> dict[str, Any]:
        """Levels."""
        return {"level": self.level.clone(), "passed": self._passed.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.level.copy_(state["level"])
        self._passed.copy_(state["passed"])

    def _anywhere(self, rows: EnvSelection, generator: torch.Generator) -> Tensor:
        """Levels, all of them as likely, (count,)."""
        unit = torch.rand((rows.count,), generator=generator, device=generator.device)
        return (unit * self._levels).long().clamp(max=self._levels - 1)


@dataclass(kw_only=True)
class PushConfig:
    """Strength and frequency of pushes against a floating base."""

    speed: float = 0.0
    """Largest change of the base's horizontal velocity [m/s], any direction; 0 pushes nobody."""
    turn: float = 0.0
    """Largest change of its angular velocity per axis [rad/s]."""
    interval: list[float] = field(default_factory=lambda: [2.0, 6.0])
    """Range of the time between two pushes [s]."""

    def __post_init__(self) -> None:
        checks.not_negative(self, "speed", "turn", of="pushes")
        if len(self.interval) != 2 or not 0 < self.interval[0] <= self.interval[1]:
            raise ConfigError(
                f"pushes.interval must be [low, high] with 0 < low <= high [s], got {self.interval}"
            )

    @property
    def active(self) -> bool:
        """True if there are pushes."""
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
        device: torch.device,
    ) -> None:
        """Draw the first waiting times.

        Args:
            control_dt: Time between two calls of `push` [s].
        """
        self._config = config
        self.level: Tensor | None = None
        """Part of the largest push that is given, 0-dim, live; None for the whole."""
        self._control_dt = control_dt
        self._device = device
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
