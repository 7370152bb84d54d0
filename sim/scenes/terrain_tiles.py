"""Kinds of terrain: the height of one square tile, harder with its difficulty.

A difficulty lies in (0, 1]; it scales the largest value of a kind, which `TerrainConfig` holds.
Every tile is level with its neighbours along its rim, so that a robot may walk from one to another.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

RIM = 0.5
"""Width of the flat rim of slopes and stairs, and of the damped rim of waves [m]."""
PLATFORM = 1.0
"""Half-width of the flat middle of slopes and stairs, where robots begin [m]."""
BLOCK = 0.3
"""Side of the blocks of rough ground [m]."""
STEP_WIDTH = 0.35
"""Depth of a step [m]."""
WAVE_LENGTH = 2.0
"""Distance between two crests [m]."""


@dataclass(kw_only=True)
class TileLimits:
    """What the last level of each kind asks for; level k of L asks for (k + 1) / L of it."""

    roughness: float = 0.08
    """rough: blocks are up to so much higher or lower than the ground [m]."""
    slope: float = 0.4
    """slope_up, slope_down: angle of the slope [rad]."""
    step_height: float = 0.16
    """stairs_up, stairs_down: height of a step [m]."""
    wave_height: float = 0.2
    """waves: from the mean to the highest crest [m]."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """The grid of a tile and how hard it is to be."""

    x: np.ndarray
    """Way from the tile's centre, (R, R), [m]."""
    y: np.ndarray
    """Way from the tile's centre, (R, R), [m]."""
    half: float
    """Half the tile's side [m]."""
    difficulty: float
    """In (0, 1]."""
    limits: TileLimits
    """What difficulty 1 means."""
    random: np.random.Generator
    """Source of blocks."""

    @property
    def climb(self) -> np.ndarray:
        """Horizontal way from the rim up a pyramid with a flat top, (R, R), [m]."""
        away = np.maximum(np.maximum(abs(self.x), abs(self.y)), PLATFORM)
        return np.maximum(self.half - RIM - away, 0.0)

    @property
    def damping(self) -> np.ndarray:
        """0 at the tile's edge, 1 inside the rim, (R, R)."""
        edge = self.half - np.maximum(abs(self.x), abs(self.y))
        return np.clip(edge / RIM, 0.0, 1.0)


def flat(tile: Tile) -> np.ndarray:
    """Level ground, whatever the level."""
    return np.zeros_like(tile.x)


def rough(tile: Tile) -> np.ndarray:
    """Square blocks of random heights."""
    count = math.ceil(2 * tile.half / BLOCK)
    heights = tile.random.uniform(-1.0, 1.0, (count, count))
    row = np.clip(((tile.y + tile.half) / BLOCK).astype(int), 0, count - 1)
    column = np.clip(((tile.x + tile.half) / BLOCK).astype(int), 0, count - 1)
    inside = tile.damping > 0
    return tile.difficulty * tile.limits.roughness * heights[row, column] * inside


def slope_down(tile: Tile) -> np.ndarray:
    """A pyramid: from the middle it goes down to all sides."""
    return math.tan(tile.difficulty * tile.limits.slope) * tile.climb


def slope_up(tile: Tile) -> np.ndarray:
    """A pit: from the middle it goes up to all sides."""
    return -slope_down(tile)


def stairs_down(tile: Tile) -> np.ndarray:
    """A stepped pyramid: from the middle stairs lead down to all sides."""
    steps = np.floor(tile.climb / STEP_WIDTH + 1e-6)  # a step begins at its edge
    return tile.difficulty * tile.limits.step_height * steps


def stairs_up(tile: Tile) -> np.ndarray:
    """A stepped pit: from the middle stairs lead up to all sides."""
    return -stairs_down(tile)


def waves(tile: Tile) -> np.ndarray:
    """Crests and troughs along both axes."""
    turn = 2 * math.pi / WAVE_LENGTH
    shape = 0.5 * (np.sin(turn * tile.x) + np.sin(turn * tile.y))
    return tile.difficulty * tile.limits.wave_height * tile.damping * shape


KINDS: dict[str, Callable[[Tile], np.ndarray]] = {
    kind.__name__: kind
    for kind in (flat, rough, slope_down, slope_up, stairs_down, stairs_up, waves)
}
"""All kinds by name."""
