"""Draws what stands in corridors, and where one passes; levels follow success."""

from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from sim import draws
from sim.randomization import WorldLevels
from sim.scenes.clutter.corridor import BEAM_HEIGHT, KINDS, PARKED, CorridorConfig


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Corridors of some worlds; S stations."""

    obstacles: Tensor
    """Centres of all boxes, in the order of `CorridorConfig.obstacles`, (count, 4 S, 3), [m]."""
    way: Tensor
    """Middles of the passages on the ground, then the goal, (count, S + 1, 3), [m]."""


class Layouts:
    """Draws corridors of a distribution; its constants wait on the device."""

    def __init__(self, config: CorridorConfig, device: torch.device) -> None:
        """Prepare.

        Args:
            config: The distribution.
            device: Where layouts are drawn.
        """
        self._config = config
        kinds = [KINDS.index(kind) for kind in config.kinds]
        self._kinds = torch.tensor(kinds, dtype=torch.int64, device=device)

    def draw(self, level: Tensor, generator: torch.Generator) -> Layout:
        """One corridor for each level.

        Args:
            level: (count,) int64, in [0, levels).
            generator: Draws stations, kinds, sizes and sides.
        """
        config = self._config
        unit = draws.uniform((len(level), config.stations, 5), 0.0, 1.0, generator)
        share = ((level + 1) / config.levels)[:, None]  # (count, 1)
        rank = unit[..., 0].argsort(-1).argsort(-1)
        used = rank < (share * config.stations - 1e-6).ceil()
        kind = self._kinds[(unit[..., 1] * len(self._kinds)).long().clamp(max=len(self._kinds) - 1)]
        low, high = config.spacing
        x = (low + (high - low) * unit[..., 2]).cumsum(-1)  # (count, S)
        hardness, side = share * unit[..., 3], 2 * unit[..., 4] - 1

        def stands(name: str) -> Tensor:
            return used & (kind == KINDS.index(name))

        gap = _between(config.gap, hardness)
        middle = share * config.offset * side
        middle = middle.clamp(-(config.width - gap) / 2, (config.width - gap) / 2)
        beside = min(config.offset, (config.width - config.pillar) / 2) * side
        tall = torch.full_like(x, config.height / 2)
        zero = torch.zeros_like(x)
        away = (gap + config.panel) / 2
        bar = _between(config.bar, hardness) + BEAM_HEIGHT / 2
        hurdle = _between(config.hurdle, hardness) - BEAM_HEIGHT / 2
        parts = (
            (stands("gap"), middle + away, tall),
            (stands("gap"), middle - away, tall),
            (stands("pillar"), beside, tall),
            (stands("bar") | stands("hurdle"), zero, torch.where(stands("bar"), bar, hurdle)),
        )
        boxes = [
            torch.stack([x, y, torch.where(standing, z, zero + PARKED)], dim=-1)
            for standing, y, z in parts
        ]
        # The wider side of a pillar, from it to the wall.
        wider = torch.where(beside > 0, beside - config.pillar / 2 - config.width / 2,
                            beside + config.pillar / 2 + config.width / 2) / 2  # fmt: skip
        passage = torch.where(stands("gap"), middle, torch.where(stands("pillar"), wider, zero))
        goal = torch.zeros_like(boxes[0][:, :1])
        goal[..., 0] = config.length
        return Layout(
            obstacles=torch.stack(boxes, dim=2).flatten(1, 2),
            way=torch.cat([torch.stack([x, passage, zero], dim=-1), goal], dim=1),
        )


class Corridors:
    """Corridors of N worlds, on levels that follow success in training."""

    def __init__(
        self, config: CorridorConfig, *, num_envs: int, device: torch.device, evaluation: bool
    ) -> None:
        """Put every world on its lowest level.

        Args:
            config: The distribution.
            num_envs: N.
            device: Where the worlds live.
            evaluation: Draw levels uniformly.
        """
        self.config, self._evaluation = config, evaluation
        self._layouts = Layouts(config, device)
        self.levels = WorldLevels(num_envs, config.levels, device)

    def begin(self, rows: EnvSelection, generator: torch.Generator) -> Layout:
        """Corridors for the picked worlds."""
        if self._evaluation:
            self.levels.scatter(rows, generator)
        else:
            self.levels.begin(rows, generator)
        return self._layouts.draw(rows.take(self.levels.level), generator)

    def placed(self, layout: Layout) -> dict[str, Tensor]:
        """Poses of all that is placed, by name, (count, 7) each: position and quaternion wxyz."""
        places = torch.cat([layout.obstacles, layout.way], dim=1)
        upright = torch.zeros_like(places[..., :1]).repeat(1, 1, 4)
        upright[..., 0] = 1.0
        poses = torch.cat([places, upright], dim=-1).unbind(1)
        return dict(zip((*self.config.obstacles, *self.config.way), poses, strict=True))


def _between(ends: list[float], hardness: Tensor) -> Tensor:
    """From the easiest size at hardness 0 to the hardest at 1."""
    return ends[0] + (ends[1] - ends[0]) * hardness
