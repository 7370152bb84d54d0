"""Corridors with obstacles: what may stand in them, how hard their levels are, their boxes.

A corridor runs along x from the world's origin and is closed by walls. At every station across it
stand two panels with a gap between, a pillar, a bar to go under, or a hurdle to step over. All of
them are boxes along the world's axes, so that a field can be computed without a map.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError, unknown_name
from sim import checks, draws
from sim.randomization import WorldLevels

KINDS = ("gap", "pillar", "bar", "hurdle")
"""Obstacles of a station."""
PARTS = ("left", "right", "pillar", "beam")
"""Boxes of a station, of which one or two stand there: panels, pillar, bar or hurdle."""
BEAM_HEIGHT = 0.3
"""Of a bar, and of a hurdle, which is sunk into the ground [m]."""
PARKED = -5.0
"""Height of boxes that do not stand in a corridor, far below its ground [m]."""
REAR, FRONT = 1.0, 1.0
"""From the start back to the rear wall, from the goal on to the front wall [m]."""
CLEARANCE = 0.1
"""A goal that a person sets is no nearer to an obstacle or a wall [m]."""
_WALL_THICKNESS = 0.1
"""Thickness of the walls [m]."""

Triple = tuple[float, float, float]


@dataclass(kw_only=True)
class FieldPoint:
    """A place of the robot's body at which the field is felt."""

    body: str = ""
    """Body of the model."""
    offset: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """From the body's origin, in its axes [m]."""

    def __post_init__(self) -> None:
        if len(self.offset) != 3:
            raise ConfigError(f"field.points: offset must be [x, y, z], got {self.offset}")


@dataclass(kw_only=True)
class FieldConfig:
    """The potential field, and where it is felt."""

    reach: float = 0.4
    """Distance from which on an obstacle is not felt [m]."""
    strength: float = 1.5
    """Push of one obstacle at its surface; the pull to the goal is 1."""
    near: float = 0.5
    """Way from the goal below which the pull becomes weaker [m]."""
    points: list[FieldPoint] = field(default_factory=list)
    """Places of the body, in the order in which they are seen."""

    def __post_init__(self) -> None:
        checks.positive(self, "reach", "strength", "near", of="field")


@dataclass(kw_only=True)
class CorridorConfig:
    """Distribution of the corridors, one per episode; defaults suit a quadruped 0.34 m high.

    Level k of L has (k + 1) / L of the stations and draws sizes between the easiest and so much of
    the way to the hardest.
    """

    stations: int = 3
    """Places across the corridor where an obstacle may stand."""
    kinds: list[str] = field(default_factory=lambda: list(KINDS))
    """Obstacles at the stations, drawn uniformly; a name may be listed twice."""
    levels: int = 5
    """Number of levels."""
    spacing: list[float] = field(default_factory=lambda: [1.2, 1.6])
    """Range of the distance between stations, and from the start to the first [m]."""
    width: float = 1.6
    """Between the walls [m]."""
    height: float = 0.6
    """Of walls, panels and pillars [m]."""
    depth: float = 0.2
    """Of panels and beams along the corridor [m]."""
    pillar: float = 0.25
    """Side of a pillar [m]."""
    offset: float = 0.4
    """Largest distance of a gap's middle or a pillar from the corridor's middle [m]."""
    gap: list[float] = field(default_factory=lambda: [1.0, 0.55])
    """Width of a gap, at its easiest and at its hardest [m]."""
    bar: list[float] = field(default_factory=lambda: [0.6, 0.32])
    """Height of a bar's lower edge, easiest and hardest [m]."""
    hurdle: list[float] = field(default_factory=lambda: [0.03, 0.08])
    """Height of a hurdle, easiest and hardest [m]."""
    field: FieldConfig = field(default_factory=FieldConfig)
    """The sensor `potential_field`: critics may read it, actors where `scene.measured` names it
    with its noise and latency."""

    def __post_init__(self) -> None:
        if not self.kinds:
            raise ConfigError(f"clutter.kinds is empty; known: {', '.join(KINDS)}")
        for kind in self.kinds:
            if kind not in KINDS:
                raise ConfigError(unknown_name("kind of obstacle", kind, KINDS))
        sizes = ("stations", "levels", "width", "height", "depth", "pillar")
        checks.positive(self, *sizes, of="clutter")
        checks.not_negative(self, "offset", of="clutter")
        self._check_pair("spacing", "[low, high]", falling=False)
        for name in ("gap", "bar", "hurdle"):
            self._check_pair(name, "[easiest, hardest]", falling=name != "hurdle")
        if self.hurdle[1] > BEAM_HEIGHT:
            raise ConfigError(f"clutter.hurdle must not exceed {BEAM_HEIGHT} m, got {self.hurdle}")
        narrowest = self.gap[1]
        ways = (
            ("gap", self.width - self.gap[0], 0.0, "a gap is at most as wide as the corridor"),
            ("gap", self.panel, _WALL_THICKNESS, "beside it panels must stand"),
            ("pillar", (self.width - self.pillar) / 2, narrowest, "beside it a gap must be left"),
            ("spacing", self.spacing[0] - max(self.depth, self.pillar), narrowest,
             "between two stations a gap's width must be free"),
        )  # fmt: skip
        for name, found, least, reason in ways:
            if found < least:
                raise ConfigError(
                    f"clutter.{name} {getattr(self, name)} leaves {found:g} m, expected at least "
                    f"{least:g} m: {reason}; the corridor is {self.width:g} m wide"
                )

    @property
    def length(self) -> float:
        """From the start to the goal [m]."""
        return (self.stations + 1) * self.spacing[1]

    @property
    def panel(self) -> float:
        """Width of a panel, which reaches the wall from any gap, or beyond it [m]."""
        narrowest = self.gap[1]
        return self.width / 2 + min(self.offset, (self.width - narrowest) / 2) - narrowest / 2

    @property
    def obstacles(self) -> list[str]:
        """Names of all boxes that stand anew in every episode, station by station."""
        return [f"obstacle_{part}_{k}" for k in range(self.stations) for part in PARTS]

    @property
    def obstacle_sizes(self) -> list[Triple]:
        """Half the edges of `obstacles` [m]."""
        panel = (self.depth / 2, self.panel / 2, self.height / 2)
        pillar = (self.pillar / 2, self.pillar / 2, self.height / 2)
        beam = (self.depth / 2, self.width / 2, BEAM_HEIGHT / 2)
        return [panel, panel, pillar, beam] * self.stations

    @property
    def way(self) -> list[str]:
        """Names of the places that a way leads through: a passage a station, then the goal."""
        return [f"way_{k}" for k in range(self.stations + 1)]

    @property
    def walls(self) -> dict[str, tuple[Triple, Triple]]:
        """Boxes that always stand: centre and half the edges [m]."""
        end, half = self.length + FRONT, _WALL_THICKNESS / 2
        middle, up = (end - REAR) / 2, self.height / 2
        side = ((end + REAR) / 2 + _WALL_THICKNESS, half, up)
        across = (half, self.width / 2, up)
        beside = self.width / 2 + half
        return {
            "wall_left": ((middle, beside, up), side),
            "wall_right": ((middle, -beside, up), side),
            "wall_rear": ((-REAR - half, 0.0, up), across),
            "wall_front": ((end + half, 0.0, up), across),
        }

    def _check_pair(self, name: str, form: str, *, falling: bool) -> None:
        values = getattr(self, name)
        ordered = len(values) == 2 and (
            values[0] >= values[1] if falling else values[0] <= values[1]
        )
        if not ordered or not min(values) > 0:
            raise ConfigError(
                f"clutter.{name} must be {form}, both > 0 and the "
                f"{'larger' if falling else 'smaller'} first, got {values}"
            )


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Corridors of some envs; S stations."""

    obstacles: Tensor
    """Centres of all boxes, in the order of `CorridorConfig.obstacles`, (count, 4 S, 3), [m]."""
    way: Tensor
    """Middles of the passages on the ground, then the goal, (count, S + 1, 3), [m]."""


class Corridors:
    """Corridors of N envs, on levels that follow success in training."""

    def __init__(
        self, config: CorridorConfig, *, num_envs: int, device: torch.device, evaluation: bool
    ) -> None:
        """Put every env on its lowest level; evaluation draws levels uniformly."""
        self.config, self._evaluation = config, evaluation
        kinds = [KINDS.index(kind) for kind in config.kinds]
        self._kinds = torch.tensor(kinds, dtype=torch.int64, device=device)
        self.levels = WorldLevels(num_envs, config.levels, device)

    def begin(self, rows: EnvSelection, generator: torch.Generator) -> Layout:
        """Corridors for the picked envs."""
        if self._evaluation:
            self.levels.scatter(rows, generator)
        else:
            self.levels.begin(rows, generator)
        return self.draw(rows.take(self.levels.level), generator)

    def draw(self, level: Tensor, generator: torch.Generator) -> Layout:
        """One corridor for each level, (count,) int64, in [0, levels)."""
        config = self.config
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
        wider = self._beside_pillar(beside)
        passage = torch.where(stands("gap"), middle, torch.where(stands("pillar"), wider, zero))
        goal = torch.zeros_like(boxes[0][:, :1])
        goal[..., 0] = config.length
        return Layout(
            obstacles=torch.stack(boxes, dim=2).flatten(1, 2),
            way=torch.cat([torch.stack([x, passage, zero], dim=-1), goal], dim=1),
        )

    def placed(self, layout: Layout) -> dict[str, Tensor]:
        """Poses of all that is placed, by name, (count, 7) each: position and quaternion wxyz."""
        places = torch.cat([layout.obstacles, layout.way], dim=1)
        return dict(zip((*self.config.obstacles, *self.config.way), _poses(places), strict=True))

    def way_to(self, place: Tensor, base: Tensor, obstacles: Tensor) -> dict[str, Tensor]:
        """Places of a way from a robot to another goal than the corridor's end, in one env.

        Passages on the far side of the goal are left out: they stand at the goal.

        Args:
            place: On the ground, (3,), [m].
            base: Where the robot is, (3,), [m].
            obstacles: Centres of the corridor's boxes, (4 S, 3), [m].

        Returns:
            Poses by name, (7,) each.

        Raises:
            ConfigError: A robot cannot stand there; the message is one sentence.
        """
        config, (x, y) = self.config, place[:2].tolist()
        told = f"a goal was asked for at ({x:.2f}, {y:.2f}) m"
        low, high = CLEARANCE - REAR, config.length + FRONT - CLEARANCE
        side = config.width / 2 - CLEARANCE
        if not (low <= x <= high and abs(y) <= side):
            raise ConfigError(
                f"{told}, which is outside the corridor or at its wall: choose x from {low:.2f} to "
                f"{high:.2f} and y within {side:.2f} m"
            )
        half = torch.tensor(config.obstacle_sizes).to(obstacles)
        away = ((place - obstacles).abs() - half).clamp(min=0.0).norm(dim=-1)  # (4 S,)
        if bool((away < CLEARANCE).any()):
            found = config.obstacles[int(away.argmin())]
            raise ConfigError(
                f"{told}, where the box {found} stands: choose a place {CLEARANCE} m or more "
                "beside it"
            )
        boxes = obstacles.unflatten(0, (-1, len(PARTS)))  # (S, 4, 3)
        left, right, pillar = (boxes[:, k] for k in range(3))
        middle = (left[:, 1] + right[:, 1]) / 2
        passage = torch.zeros_like(left)
        passage[:, 0] = left[:, 0]
        passage[:, 1] = torch.where(
            left[:, 2] > 0, middle,
            torch.where(pillar[:, 2] > 0, self._beside_pillar(pillar[:, 1]), 0.0),
        )  # fmt: skip
        if x < float(base[0]):  # the goal lies behind: from the last passage to the first
            passage = passage.flip(0)
            beyond = passage[:, 0] <= x
        else:
            beyond = passage[:, 0] >= x
        ground = place * place.new_tensor([1.0, 1.0, 0.0])
        way = torch.cat([torch.where(beyond[:, None], ground, passage), ground[None]])
        return dict(zip(config.way, _poses(way[None])[:, 0], strict=True))

    def _beside_pillar(self, beside: Tensor) -> Tensor:
        """Middle of the wider side of a pillar, from it to the wall."""
        config = self.config
        return torch.where(beside > 0, beside - config.pillar / 2 - config.width / 2,
                           beside + config.pillar / 2 + config.width / 2) / 2  # fmt: skip


def _poses(places: Tensor) -> Tensor:
    """Upright poses of places (count, B, 3), (B, count, 7)."""
    upright = torch.zeros_like(places[..., :1]).repeat(1, 1, 4)
    upright[..., 0] = 1.0
    return torch.cat([places, upright], dim=-1).transpose(0, 1)


def _between(ends: list[float], hardness: Tensor) -> Tensor:
    """From the easiest size at hardness 0 to the hardest at 1."""
    return ends[0] + (ends[1] - ends[0]) * hardness
