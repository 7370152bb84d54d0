"""Potential field in a corridor: a pull along the way to the goal, a push away from what is near.

The push has the idea of Khatib 1986 ("Real-Time Obstacle Avoidance for Manipulators and Mobile
Robots"): a potential that vanishes beyond a reach and rises towards the obstacle. His rises beyond
all bounds at the surface, ours is a parabola that goes on into the obstacle, as robots in
simulation do touch. The pull follows passages one after another: pulled straight at the goal,
robots would stop before the first wall whose gap is to the side.

A robot sees the field at places of its own body, in the axes of its base, as in HumanoidPF and
Click-and-Traverse: one that sees at its head, hands and knees where the way goes on and how near
things are learns to duck, sidestep and squeeze through. On a robot the numbers come from a map and
from where its joints are; nothing of ours computes them there.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import RobotMirror, SignedPermutation
from robot_rl.core.observation import Mirrored, RobotState
from sim.scenes.corridor import CorridorConfig

_SHORTEST = 1e-9
"""Lengths are divided by no less [m]."""


class Pull(NamedTuple):
    """Pull on points towards the goal."""

    left: Tensor
    """Way that is left, on the ground, through all passages ahead, (N, P), [m]."""
    force: Tensor
    """Level, 1 long or shorter near the goal, (N, P, 3): a potential's steepest descent, which is a
    parabola there and a cone farther away."""
    place: Tensor
    """Next place of the way, on the ground, (N, P, 2), [m]."""


def signed_distance(point: Tensor, centre: Tensor, half: Tensor) -> tuple[Tensor, Tensor]:
    """Distance from boxes along the world's axes, and the direction in which it grows.

    Args:
        point: (N, P, 3), [m].
        centre: Of the boxes, (N, B, 3), [m].
        half: Half their edges, (B, 3), [m].

    Returns:
        Distances from the surfaces, negative inside, (N, P, B), [m], and their gradients, unit
        vectors, (N, P, B, 3).
    """
    way = point[:, :, None] - centre[:, None]  # (N, P, B, 3)
    beyond = way.abs() - half
    outside = beyond.clamp(min=0)
    far = outside.norm(dim=-1)
    depth = beyond.amax(-1)
    nearest_side = (beyond >= depth[..., None]).to(way.dtype)
    nearest_side = nearest_side / nearest_side.norm(dim=-1, keepdim=True)
    outward = torch.where(
        (depth > 0)[..., None], outside / far.clamp_min(_SHORTEST)[..., None], nearest_side
    )
    return far + depth.clamp(max=0), torch.where(way < 0, -outward, outward)


def push(distance: Tensor, outward: Tensor, *, reach: float, strength: float) -> Tensor:
    """Push on points away from boxes, (N, P, 3), the steepest descent of a potential [m].

    Args:
        distance: (N, P, B), [m], of `signed_distance`.
        outward: (N, P, B, 3).
        reach: Distance from which on a box is not felt [m].
        strength: Length of the force at the surface of one box.
    """
    share = (1 - distance / reach).clamp(min=0)
    return strength * (share[..., None] * outward).sum(-2)


def pull(point: Tensor, way: Tensor, *, near: float) -> Pull:
    """Pull on points along a way: to the next of its places that lies ahead, along x.

    Args:
        point: (N, P, 3), [m].
        way: Places on the ground, the goal last, (N, W, 3), [m]; x grows, or falls where a goal
            lies behind.
        near: Way from the goal below which the force becomes shorter [m].
    """
    place = way[..., :2]
    ahead_x = torch.where(place[:, -1:, 0] < place[:, :1, 0], -1.0, 1.0)  # (N, 1)
    reached = (ahead_x * point[..., 0])[..., None]  # (N, P, 1)
    passed = ((ahead_x * place[:, :-1, 0])[:, None] <= reached).sum(-1)  # (N, P), in [0, W)
    legs = (place[:, 1:] - place[:, :-1]).norm(dim=-1)  # (N, W - 1)
    rest = pad(legs.flip(-1).cumsum(-1).flip(-1), (0, 1))  # (N, W), from each place to the goal
    ahead = place.gather(1, passed[..., None].expand(-1, -1, 2))
    step = ahead - point[..., :2]
    distance = step.norm(dim=-1)
    left = distance + rest.gather(1, passed)
    share = (left / near).clamp(max=1)
    force = share[..., None] * step / distance.clamp_min(_SHORTEST)[..., None]
    return Pull(
        left=left,
        force=pad(force, (0, 1)),
        place=ahead,
    )


FIELD = "potential_field"
"""Name of the sensor."""
POINTS, OBSTACLES, WAY, FORCES = (
    "field_point_w", "obstacle_position_w", "way_position_w", "obstacle_force_w",
)  # fmt: skip
"""Sensors of the model: places of the robot's body, centres of the obstacles, places of the way,
and the force between the robot and each obstacle and wall; three columns for each."""
COLUMNS = 4
"""Of every place: direction of the field, at most 1 long, and clearance [m]."""


class PotentialField:
    """Field around the robots of N envs, as a perfect map would give it."""

    def __init__(
        self, config: CorridorConfig, sensors: Mapping[str, Tensor], device: torch.device
    ) -> None:
        """Prepare a field of zeros; true sensors of the model are read live.

        Raises:
            ConfigError: No place is named at which the field would be felt.
        """
        if not config.field.points:
            raise ConfigError(
                "scene.clutter.field.points is empty; name places of the robot's body, such as "
                "[{body: base, offset: [0, 0, 0.1]}]"
            )
        self._config = config.field
        self._points, self._obstacles, self._way = (
            sensors[name].unflatten(-1, (-1, 3)) for name in (POINTS, OBSTACLES, WAY)
        )
        walls = config.walls.values()
        half = [*config.obstacle_sizes, *(size for _, size in walls)]
        self._half = torch.tensor(half, device=device)
        count = self._points.shape[0]
        self._centre = torch.zeros(count, len(half), 3, device=device)
        self._centre[:, len(config.obstacles) :] = torch.tensor(
            [centre for centre, _ in walls], device=device
        )
        self.values = torch.zeros(count, COLUMNS * self._points.shape[1], device=device)
        """At each place of the body the direction in which the field drives it, (x, y, z) in base
        axes and at most 1 long, and its clearance from the nearest obstacle, within +- the reach
        of the field, (N, P * 4), [m]; overwritten in place."""

    def look(self, true_state: RobotState) -> None:
        """Compute the field at the bodies of all envs."""
        config = self._config
        self._centre[:, : self._obstacles.shape[1]] = self._obstacles
        distance, outward = signed_distance(self._points, self._centre, self._half)
        away = push(distance, outward, reach=config.reach, strength=config.strength)
        force = away + pull(self._points, self._way, near=config.near).force  # (N, P, 3)
        force = quaternion.rotate_inverse(true_state.orientation_w[:, None], force)
        values = self.values.unflatten(-1, (-1, COLUMNS))
        values[..., :3] = force / force.norm(dim=-1, keepdim=True).clamp_min(1.0)
        values[..., 3] = distance.amin(-1).clamp(-config.reach, config.reach)


def mirror_clutter(config: CorridorConfig, robot: RobotMirror) -> dict[str, SignedPermutation]:
    """Mirror images of the field and of the sensors that it is computed from, by name.

    Raises:
        ConfigError: A place of the body has no counterpart among the others.
    """
    vector = robot.kind(Mirrored.vector, 3)
    points = _points_mirror(config, robot)
    obstacles = _sides_mirror(config.obstacles)
    everything = _sides_mirror([*config.obstacles, *config.walls])
    return {
        FIELD: points.of_parts(SignedPermutation.joined([vector, SignedPermutation.signs(1.0)])),
        POINTS: points.of_parts(vector),
        OBSTACLES: obstacles.of_parts(vector),
        FORCES: everything.of_parts(vector),
        WAY: robot.kind(Mirrored.vector, 3 * len(config.way)),
    }


def _points_mirror(config: CorridorConfig, robot: RobotMirror) -> SignedPermutation:
    mirror = robot.robot.mirror
    assert mirror is not None  # a RobotMirror was made of it
    places = [(point.body, tuple(point.offset)) for point in config.field.points]
    source: list[int] = []
    for body, (x, y, z) in places:
        other = (mirror.counterpart(body), (x, -y, z))
        if other not in places:
            raise ConfigError(
                f"scene.clutter.field.points cannot be mirrored: '{body}' at {[x, y, z]} has no "
                f"counterpart '{other[0]}' at {list(other[1])} among them; add it, or choose "
                "training.symmetry=none"
            )
        source.append(places.index(other))
    return SignedPermutation(tuple(source), (1.0,) * len(source))


def _sides_mirror(names: list[str]) -> SignedPermutation:
    """Things on the left change places with those on the right."""
    swapped = {"left": "right", "right": "left"}
    others = ["_".join(swapped.get(part, part) for part in name.split("_")) for name in names]
    return SignedPermutation(tuple(names.index(name) for name in others), (1.0,) * len(names))
