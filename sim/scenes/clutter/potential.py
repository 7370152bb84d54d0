"""Potential fields among boxes: a pull along a way to the goal, a push away from what is near.

Pure functions of batched points. The push has the idea of Khatib 1986 ("Real-Time Obstacle
Avoidance for Manipulators and Mobile Robots"): a potential that vanishes beyond a reach and rises
towards the obstacle. His rises beyond all bounds at the surface, ours is a parabola that goes on
into the obstacle, as robots in simulation do touch. The pull follows passages one after another:
pulled straight at the goal, robots would stop before the first wall whose gap is to the side.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

_LEAST = 1e-9
"""Lengths are divided by no less [m]."""


class Pull(NamedTuple):
    """What draws points towards the goal."""

    left: Tensor
    """Way that is left, on the ground, through all passages ahead, (N, P), [m]."""
    potential: Tensor
    """(N, P), [m]."""
    force: Tensor
    """Its steepest descent, level, 1 long or shorter near the goal, (N, P, 3)."""
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
        (depth > 0)[..., None], outside / far.clamp_min(_LEAST)[..., None], nearest_side
    )
    return far + depth.clamp(max=0), torch.where(way < 0, -outward, outward)


def push(
    distance: Tensor, outward: Tensor, *, reach: float, strength: float
) -> tuple[Tensor, Tensor]:
    """What keeps points away from boxes.

    Args:
        distance: (N, P, B), [m], of `signed_distance`.
        outward: (N, P, B, 3).
        reach: Distance from which on a box is not felt [m].
        strength: Length of the force at the surface of one box.

    Returns:
        Potential, (N, P), [m], and its steepest descent, (N, P, 3).
    """
    share = (1 - distance / reach).clamp(min=0)
    potential = 0.5 * strength * reach * (share * share).sum(-1)
    return potential, strength * (share[..., None] * outward).sum(-2)


def pull(point: Tensor, way: Tensor, *, near: float) -> Pull:
    """What draws points along a way: to the next of its places that lies ahead, along x.

    Args:
        point: (N, P, 3), [m].
        way: Places on the ground, the goal last, x growing, (N, W, 3), [m].
        near: Way from the goal below which the force becomes shorter [m].
    """
    place = way[..., :2]
    passed = (place[:, None, :-1, 0] <= point[:, :, None, 0]).sum(-1)  # (N, P), in [0, W)
    legs = (place[:, 1:] - place[:, :-1]).norm(dim=-1)  # (N, W - 1)
    rest = pad(legs.flip(-1).cumsum(-1).flip(-1), (0, 1))  # (N, W), from each place to the goal
    ahead = place.gather(1, passed[..., None].expand(-1, -1, 2))
    step = ahead - point[..., :2]
    distance = step.norm(dim=-1)
    left = distance + rest.gather(1, passed)
    share = (left / near).clamp(max=1)
    force = share[..., None] * step / distance.clamp_min(_LEAST)[..., None]
    return Pull(
        left=left,
        potential=share * (left - 0.5 * near * share),  # a parabola, then a cone
        force=pad(force, (0, 1)),
        place=ahead,
    )
