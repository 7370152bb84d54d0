"""Uneven ground: a height field of tiles, a row for each level, a column for each kind; and scans.

Made from a seed by numpy alone; engines take the grid as it is, tasks look heights up in it. Kinds
lie along x and levels along y, the first level at the lowest y; the field's centre is the world's
origin, and around all tiles runs a flat border of height 0.

A tile's difficulty lies in (0, 1]; it scales the largest value of a kind, which `TerrainConfig`
holds. Every tile is level with its neighbours along its rim, so that a robot may walk from one to
another.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.mirror import SignedPermutation
from robot_rl.core.observation import RobotState
from robot_rl.core.seeding import derive_seed
from sim import checks

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


_STEEPEST = 1.2
"""Largest angle of a slope [rad]: nothing stands on a steeper one."""
_HIGHEST = 10.0
"""Largest of the other limits [m]: higher than any robot here steps."""


@dataclass(kw_only=True)
class TileLimits:
    """Demands of the last level of each kind; level k of L asks for (k + 1) / L of them."""

    roughness: float = 0.08
    """rough: blocks are up to so much higher or lower than the ground [m]."""
    slope: float = 0.4
    """slope_up, slope_down: angle of the slope [rad]."""
    step_height: float = 0.16
    """stairs_up, stairs_down: height of a step [m]."""
    wave_height: float = 0.2
    """waves: from the mean to the highest crest [m]."""

    def __post_init__(self) -> None:
        for name in ("roughness", "step_height", "wave_height"):
            if not 0 <= getattr(self, name) <= _HIGHEST:
                raise ConfigError(
                    f"terrain.limits.{name} must lie in [0, {_HIGHEST:g}] m, got "
                    f"{getattr(self, name):g}"
                )
        if not 0 <= self.slope <= _STEEPEST:
            raise ConfigError(
                f"terrain.limits.slope must lie in [0, {_STEEPEST:g}] rad, got {self.slope:g} "
                f"({self.slope:g} degrees are {math.radians(self.slope):.3g})"
            )


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
    """Demands of difficulty 1."""
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


_FOOTPRINT = 0.5
"""A robot that begins at a tile's centre covers no more ground than this to each side [m]."""


@dataclass(kw_only=True)
class ScanConfig:
    """Heights of the ground around a robot, in a grid that turns with it."""

    length: float = 1.6
    """Ahead and behind together [m]."""
    width: float = 0.8
    """To both sides together [m]."""
    spacing: float = 0.2
    """Between two points [m]."""
    depth: float = 1.0
    """Heights lie within +- this of the base [m]: more than a robot's own height."""

    def __post_init__(self) -> None:
        checks.positive(self, "length", "width", "spacing", "depth", of="terrain.scan")


@dataclass(kw_only=True)
class TerrainConfig:
    """Kinds of ground, and demands of its levels."""

    kinds: list[str] = field(default_factory=lambda: list(KINDS))
    """A column of tiles for each; a name may stand there twice."""
    levels: int = 6
    """Rows of tiles: level k of L asks for (k + 1) / L of `limits`."""
    limits: TileLimits = field(default_factory=TileLimits)
    """Demands of the last level."""
    tile: float = 8.0
    """Side of a tile [m]."""
    resolution: float = 0.1
    """Distance between two heights [m]; a step's face is a ramp of this width."""
    border: float = 6.0
    """Width of the flat ground around all tiles [m]."""
    seed: int = 0
    """Of everything random in the ground; training and evaluation walk on the same."""
    scan: ScanConfig = field(default_factory=ScanConfig)
    """Grid of the sensor `height_scan`: critics may read it, actors where `scene.measured` names
    it with its noise and latency."""

    def __post_init__(self) -> None:
        if not self.kinds:
            raise ConfigError(f"terrain.kinds is empty; known: {', '.join(KINDS)}")
        for kind in self.kinds:
            if kind not in KINDS:
                raise ConfigError(unknown_name("kind of terrain", kind, KINDS))
        checks.positive(self, "levels", "resolution", "border", of="terrain")
        checks.not_negative(self, "seed", of="terrain")
        if self.tile < 2 * (PLATFORM + RIM):
            raise ConfigError(
                f"terrain.tile must be at least {2 * (PLATFORM + RIM):g} m, platform and rim of "
                f"its slopes, got {self.tile}"
            )
        for name, length in (("tile", self.tile), ("border", self.border)):
            cells = length / self.resolution
            if abs(cells - round(cells)) > 1e-6:
                raise ConfigError(
                    f"terrain.{name} must be a multiple of terrain.resolution, got {length} and "
                    f"{self.resolution}"
                )


class Terrain:
    """A height field and where its tiles are."""

    def __init__(self, config: TerrainConfig, device: torch.device) -> None:
        """Make the ground: the same seed makes the same."""
        self.config = config
        self.grid = _grid(config)
        """Heights, (rows, columns) float32, [m]: rows along y, columns along x."""
        rows, columns = self.grid.shape
        self.half_size = (
            0.5 * (columns - 1) * config.resolution,
            0.5 * (rows - 1) * config.resolution,
        )
        """The field reaches from minus to plus this along x and y [m]."""
        self._columns = columns
        self._heights = torch.from_numpy(self.grid).flatten().to(device)
        self._offset = torch.tensor(self.half_size, device=device)
        self._last = torch.tensor([columns - 1, rows - 1], device=device)
        self._origins = torch.from_numpy(_origins(config, self.grid)).to(device)

    def origin(self, level: Tensor, kind: Tensor) -> Tensor:
        """Centres of tiles, (..., 3), [m], world, as high as what a robot there may touch."""
        return self._origins[level, kind]

    def height(self, place: Tensor) -> Tensor:
        """Height of the ground, on the two triangles of a cell as MuJoCo has them.

        Args:
            place: x and y, (..., 2), [m], world; outside the field the nearest edge counts.

        Returns:
            (...), [m].
        """
        cells = (place + self._offset) / self.config.resolution
        cells = torch.minimum(cells.clamp_min(0.0), self._last)
        corner = torch.minimum(cells.long(), self._last - 1)  # lowest x and y of the cell
        x, y = (cells - corner).unbind(-1)  # in [0, 1]
        start = corner[..., 1] * self._columns + corner[..., 0]
        # The cell is cut from its lowest to its highest corner; the third one is beside the cut.
        third = start + torch.where(x > y, 1, self._columns)
        near, far = torch.maximum(x, y), torch.minimum(x, y)
        heights = self._heights
        return (
            (1 - near) * heights[start]
            + (near - far) * heights[third]
            + far * heights[start + self._columns + 1]
        )

    def outside(self, place: Tensor, margin: float) -> Tensor:
        """(...) bool: x and y nearer than `margin` [m] to the edge of the field, or beyond it."""
        return (place.abs() > self._offset - margin).any(-1)


def _grid(config: TerrainConfig) -> np.ndarray:
    cells, border = (round(d / config.resolution) for d in (config.tile, config.border))
    shape = (config.levels * cells + 2 * border + 1, len(config.kinds) * cells + 2 * border + 1)
    grid = np.zeros(shape, dtype=np.float32)
    line = (np.arange(cells + 1) - cells / 2) * config.resolution
    x, y = np.meshgrid(line, line)
    for level in range(config.levels):
        for column, kind in enumerate(config.kinds):
            tile = Tile(
                x=x,
                y=y,
                half=config.tile / 2,
                difficulty=(level + 1) / config.levels,
                limits=config.limits,
                random=np.random.default_rng(derive_seed(config.seed, f"{level} {column}")),
            )
            top, left = border + level * cells, border + column * cells
            grid[top : top + cells + 1, left : left + cells + 1] = KINDS[kind](tile)
    return grid


def _origins(config: TerrainConfig, grid: np.ndarray) -> np.ndarray:
    """(levels, kinds, 3) float32."""
    cells, border = (round(d / config.resolution) for d in (config.tile, config.border))
    reach = round(_FOOTPRINT / config.resolution)
    origins = np.zeros((config.levels, len(config.kinds), 3), dtype=np.float32)
    middle = (np.array(grid.shape) - 1) / 2
    for level in range(config.levels):
        for column in range(len(config.kinds)):
            row, col = (border + k * cells + cells // 2 for k in (level, column))
            around = grid[row - reach : row + reach + 1, col - reach : col + reach + 1]
            y, x = (np.array([row, col]) - middle) * config.resolution
            origins[level, column] = x, y, around.max()
    return origins


SCAN = "height_scan"
"""Name of the sensor."""


class HeightScan:
    """Heights of a terrain, as a perfect depth camera would see them."""

    def __init__(self, terrain: Terrain, num_envs: int, device: torch.device) -> None:
        self._terrain = terrain
        self._points = scan_points(terrain.config.scan).to(device)
        self._depth = terrain.config.scan.depth
        self.values = torch.zeros(num_envs, len(self._points), device=device)
        """Heights of the ground relative to the base, (N, K), [m], in the order of `scan_points`;
        overwritten in place."""

    def look(self, true_state: RobotState) -> None:
        """Scan around the bases of all envs."""
        place = true_state.position_w
        ahead = quaternion.heading(quaternion.rotation_matrix(true_state.orientation_w))  # (N, 2)
        left = torch.stack([-ahead[:, 1], ahead[:, 0]], dim=-1)
        forward, sideways = self._points[:, :1], self._points[:, 1:]  # (K, 1) each
        around = forward * ahead[:, None] + sideways * left[:, None]  # (N, K, 2)
        heights = self._terrain.height(place[:, None, :2] + around)
        torch.clamp(heights - place[:, 2:], -self._depth, self._depth, out=self.values)


def scan_points(config: ScanConfig) -> Tensor:
    """Points of a scan, (K, 2), [m] ahead and to the left: from right to left, rear line first."""
    lines = []
    for size in (config.length, config.width):
        count = math.floor(size / config.spacing + 1e-6) + 1
        lines.append((torch.arange(count) - (count - 1) / 2) * config.spacing)
    return torch.cartesian_prod(*lines)


def mirror_scan(config: ScanConfig) -> SignedPermutation:
    """Mirror image of a scan: points on the left are those on the right."""
    points = scan_points(config)
    other = torch.cdist(points * torch.tensor([1.0, -1.0]), points).argmin(-1)
    return SignedPermutation(tuple(other.tolist()), (1.0,) * len(points))
