"""Courses of gates: where they stand, who flies through one, and who touches a frame.

A gate is an upright square opening in a frame of square bars. It is flown through along its
normal, which is level.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from sim import draws
from sim.tasks import checks


@dataclass(kw_only=True)
class CourseConfig:
    """Distribution of the courses, one per episode.

    Every gate is placed as seen from the one before, the first from the origin.
    """

    gates: int = 5
    """Gates of a course."""
    spacing: list[float] = field(default_factory=lambda: [1.0, 1.8])
    """Range of the level distance between neighbours [m]."""
    turn_deg: float = 60.0
    """Largest change of the way's direction at a gate, to either side [deg]."""
    climb: float = 0.3
    """Largest difference of height between neighbours [m]."""
    skew_deg: float = 20.0
    """Largest angle between the way to a gate and the gate's normal [deg]."""
    opening: float = 0.5
    """Inner edge of the square [m]."""
    bar: float = 0.05
    """Thickness of the frame's bars, in the gate's plane and across it [m]."""
    runout: float = 0.6
    """How far behind the last gate the place lies where the robot is to wait [m]."""

    def __post_init__(self) -> None:
        """Refuse courses that cannot be flown."""
        checks.positive(self, "gates", "opening", "bar", "runout", of="course")
        checks.interval(self, "spacing", of="course")
        checks.not_negative(self, "climb", of="course")
        for name in ("turn_deg", "skew_deg"):
            if not 0 <= getattr(self, name) < 90:
                raise ConfigError(
                    f"course.{name} must lie in [0, 90) degrees, got {getattr(self, name)}"
                )
        least = self.opening + 2 * self.bar
        if not self.spacing[0] > least:
            raise ConfigError(
                f"course.spacing must be wider than a gate with its frame ({least:g} m), "
                f"got {self.spacing}"
            )


class Flown(NamedTuple):
    """What happened at every gate in one step, (N, K) bool each."""

    through: Tensor
    """The robot's centre went through the opening along the normal, with room for the robot."""
    touched: Tensor
    """The robot is in the frame, or went through it."""


class Courses:
    """One course per world."""

    def __init__(
        self, config: CourseConfig, num_envs: int, *, robot_radius: float, device: torch.device
    ) -> None:
        """Start with all gates in the origin.

        Args:
            config: The distribution.
            num_envs: N.
            robot_radius: Of the ball that the robot is taken for [m].
            device: Where the worlds live.
        """
        self.config = config
        count = config.gates
        self.centre = torch.zeros(num_envs, count, 3, device=device)
        """Middle of every opening, (N, K, 3), [m], world axes."""
        self.normal = torch.zeros(num_envs, count, 3, device=device)
        """Direction of flight through it, (N, K, 3), unit, level, world axes."""
        self._room = 0.5 * config.opening - robot_radius  # for the robot's centre
        self._outside = 0.5 * config.opening + config.bar + robot_radius
        self._depth = 0.5 * config.bar + robot_radius

    def draw(self, rows: EnvSelection, generator: torch.Generator) -> None:
        """Draw new courses for the picked worlds."""
        config = self.config
        unit = draws.uniform((rows.count, config.gates, 4), -1.0, 1.0, generator)
        way = (math.radians(config.turn_deg) * unit[..., 0]).cumsum(1)  # direction, from x
        low, high = config.spacing
        level = 0.5 * (low + high) + 0.5 * (high - low) * unit[..., 1]
        step = torch.stack([level * way.cos(), level * way.sin(), config.climb * unit[..., 2]], -1)
        rows.put(self.centre, step.cumsum(1))
        facing = way + math.radians(config.skew_deg) * unit[..., 3]
        normal = torch.stack([facing.cos(), facing.sin(), torch.zeros_like(facing)], -1)
        rows.put(self.normal, normal)

    @property
    def places(self) -> Tensor:
        """Where to fly to, gate by gate: the openings, and where to wait, (N, K + 1, 3), [m]."""
        last = self.centre[:, -1] + self.config.runout * self.normal[:, -1]
        return torch.cat([self.centre, last[:, None]], dim=1)

    @property
    def corners(self) -> Tensor:
        """Corners of the openings, around each, (N, K * 12), [m], world axes."""
        half = 0.5 * self.config.opening
        left, up = half * self._left, torch.zeros_like(self.centre)
        up[..., 2] = half
        turns = [left + up, up - left, -left - up, left - up]
        return (self.centre[:, :, None] + torch.stack(turns, dim=2)).flatten(1)

    def fly(self, before: Tensor, after: Tensor) -> Flown:
        """Follow the robots for one step, on a straight line.

        Args:
            before: Positions at the step's start, (N, 3), [m], world axes.
            after: Positions at its end, (N, 3).
        """
        first, second = self._local(before), self._local(after)  # (N, K, 3)
        share = first[..., 0] / (first[..., 0] - second[..., 0])  # not finite if side by side
        crossing = first[..., 1:] + share[..., None] * (second[..., 1:] - first[..., 1:])
        forward = (first[..., 0] < 0) & (second[..., 0] >= 0)
        crossed = forward | ((first[..., 0] >= 0) & (second[..., 0] < 0))
        off = crossing.abs().amax(-1)
        inside = second[..., 1:].abs().amax(-1)
        frame = self._in_frame(inside) & (second[..., 0].abs() < self._depth)
        return Flown(
            through=forward & (off <= self._room), touched=frame | (crossed & self._in_frame(off))
        )

    def state_dict(self) -> dict[str, Any]:
        """All courses."""
        return {"centre": self.centre.clone(), "normal": self.normal.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.centre.copy_(state["centre"])
        self.normal.copy_(state["normal"])

    @property
    def _left(self) -> Tensor:
        """Of a robot that flies through, (N, K, 3), unit, world axes."""
        x, y, zero = self.normal.unbind(-1)
        return torch.stack([-y, x, zero], dim=-1)

    def _local(self, position: Tensor) -> Tensor:
        """(N, 3) as seen from every gate: ahead of it, left of and above its middle, (N, K, 3)."""
        way = position[:, None] - self.centre
        ahead, left = (way * self.normal).sum(-1), (way * self._left).sum(-1)
        return torch.stack([ahead, left, way[..., 2]], dim=-1)

    def _in_frame(self, off: Tensor) -> Tensor:
        """True where a centre so far off the middle is in the bars, to the left or above."""
        return (off > self._room) & (off < self._outside)
