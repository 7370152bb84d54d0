"""Random draws for starts and randomised parameters, from an explicit generator."""

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from robot_rl.core import quaternion


def uniform(shape: Sequence[int], low: float, high: float, generator: torch.Generator) -> Tensor:
    """Uniform numbers in [low, high)."""
    unit = torch.rand(tuple(shape), generator=generator, device=generator.device)
    return low + (high - low) * unit


def symmetric(count: int, widths: Sequence[Sequence[float]], generator: torch.Generator) -> Tensor:
    """Numbers uniform in [-width, width), (count, K): the vectors drawn one after the other.

    Args:
        widths: Largest magnitude of every entry of each vector, K entries together.
    """
    units = [
        torch.rand((count, len(vector)), generator=generator, device=generator.device)
        for vector in widths
    ]
    largest = [width for vector in widths for width in vector]
    low = constant(tuple(-width for width in largest), generator.device)
    return low + constant(tuple(2 * width for width in largest), low.device) * torch.cat(units, -1)


def box(
    count: int, low: Sequence[float], high: Sequence[float], generator: torch.Generator
) -> Tensor:
    """Points uniform in a box between two corners, (count, len(low))."""
    unit = torch.rand((count, len(low)), generator=generator, device=generator.device)
    corner = constant(tuple(low), unit.device)
    return corner + (constant(tuple(high), unit.device) - corner) * unit


@lru_cache(maxsize=64)
def constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """A tensor of the values, (K,), that is made once: a device would be waited for. Read only."""
    return torch.tensor(values, device=device)


def normal(shape: Sequence[int], deviation: float, generator: torch.Generator) -> Tensor:
    """Normal numbers with mean zero."""
    return deviation * torch.randn(tuple(shape), generator=generator, device=generator.device)


def unit_vector(count: int, generator: torch.Generator) -> Tensor:
    """Directions uniform on the sphere, (count, 3)."""
    v = normal((count, 3), 1.0, generator)
    return v / v.norm(dim=-1, keepdim=True).clamp_min(1e-9)


def tilted_attitude(
    count: int, max_tilt: float, max_heading: float, generator: torch.Generator
) -> Tensor:
    """Attitudes with a tilt uniform in [0, max_tilt] to any side and a heading uniform in +-.

    Args:
        max_tilt: Largest angle between the body's and the world's vertical [rad].
        max_heading: Largest turn about the vertical [rad].

    Returns:
        Unit quaternions wxyz, (count, 4).
    """
    unit = torch.rand((3, count), generator=generator, device=generator.device)
    # Half the tilt, half the heading, and the side that it leans to.
    centre = constant((0.0, 0.5, 0.0), unit.device)
    width = constant((0.5 * max_tilt, max_heading, 2 * math.pi), unit.device)
    angles = (unit - centre[:, None]) * width[:, None]
    # Product of a tilt about (cos s, sin s, 0) and a turn about z, multiplied out; the side s is
    # uniform, and so is s - heading / 2.
    (upright, along, ahead), (tilt, across, left) = angles.cos(), angles.sin()
    return torch.stack([upright * along, tilt * ahead, tilt * left, upright * across], dim=-1)


def uniform_rotation(count: int, max_angle: float, generator: torch.Generator) -> Tensor:
    """Rotations uniform among all of at most a given angle (Eschmann et al. 2024, initial states).

    The angle's distribution function is proportional to angle - sin(angle); it is inverted by
    Newton steps.

    Returns:
        Unit quaternions wxyz, (count, 4).
    """
    share = uniform((count,), 1e-6, 1.0, generator) * (max_angle - math.sin(max_angle))
    angle = (6 * share).clamp_min(0).pow(1 / 3)  # exact for small angles: x - sin x = x^3/6
    for _ in range(6):
        angle = angle - (angle - angle.sin() - share) / (1 - angle.cos()).clamp_min(1e-6)
    angle = angle.clamp(0.0, max_angle)
    return quaternion.from_rotation_vector(angle[:, None] * unit_vector(count, generator))
