"""The potential field as a robot sees it: at places of its own body, in the axes of its base.

The idea is that of HumanoidPF and Click-and-Traverse: who sees at its head, hands and knees where
the way goes on and how near things are learns to duck, sidestep and squeeze through. On a robot the
numbers come from a map and from where its joints are; nothing of ours computes them there.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import RobotMirror, SignedPermutation
from robot_rl.core.robot_state import Mirrored, RobotState
from sim.scenes.clutter.corridor import CorridorConfig
from sim.scenes.clutter.potential import pull, push, signed_distance

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
    """What a perfect map would tell the robots of N worlds."""

    def __init__(
        self, config: CorridorConfig, sensors: Mapping[str, Tensor], device: torch.device
    ) -> None:
        """Prepare a field of zeros.

        Args:
            config: The corridors.
            sensors: True sensors of the worlds, (N, width), live.
            device: Where the worlds live.

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
        """Compute the field at the bodies of all worlds."""
        config = self._config
        self._centre[:, : self._obstacles.shape[1]] = self._obstacles
        distance, outward = signed_distance(self._points, self._centre, self._half)
        _, away = push(distance, outward, reach=config.reach, strength=config.strength)
        force = away + pull(self._points, self._way, near=config.near).force  # (N, P, 3)
        force = quaternion.rotate_inverse(true_state.orientation_w[:, None], force)
        values = self.values.unflatten(-1, (-1, COLUMNS))
        values[..., :3] = force / force.norm(dim=-1, keepdim=True).clamp_min(1.0)
        values[..., 3] = distance.amin(-1).clamp(-config.reach, config.reach)


def mirror_clutter(config: CorridorConfig, robot: RobotMirror) -> dict[str, SignedPermutation]:
    """What a mirror does to the field and to the sensors that it is computed from, by name.

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
    """What stands to the left changes places with what stands to the right."""
    swapped = {"left": "right", "right": "left"}
    others = ["_".join(swapped.get(part, part) for part in name.split("_")) for name in names]
    return SignedPermutation(tuple(names.index(name) for name in others), (1.0,) * len(names))
