"""Laws of the random draws: bounds, and distributions against their closed forms."""

import math

import pytest
import torch

from robot_rl.core import quaternion
from sim import draws

COUNT = 20_000


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def greatest_gap(samples: torch.Tensor, shares: torch.Tensor) -> float:
    """Kolmogorov-Smirnov distance, `shares` being the closed-form shares at the sorted samples."""
    below = torch.arange(len(samples)) / len(samples)
    return float((shares - below).abs().max())


LIMIT = 1.63 / math.sqrt(COUNT)
"""Kolmogorov-Smirnov bound of a 1 % test: a fixed seed that passes stays passing."""


def test_uniform_keeps_its_bounds_and_fills_them():
    values = draws.uniform((COUNT, 2), -3.0, 5.0, generator())
    assert values.min() >= -3.0
    assert values.max() < 5.0
    ordered = values[:, 0].sort().values
    assert greatest_gap(ordered, (ordered + 3) / 8) < LIMIT


def test_unit_vectors_are_uniform_on_the_sphere():
    directions = draws.unit_vector(COUNT, generator())
    torch.testing.assert_close(directions.norm(dim=-1), torch.ones(COUNT))
    for axis in range(3):  # Archimedes: each coordinate of a uniform direction is uniform
        ordered = directions[:, axis].sort().values
        assert greatest_gap(ordered, (ordered + 1) / 2) < LIMIT


def test_tilted_attitudes_lean_uniformly_up_to_the_bound_and_keep_their_heading():
    attitude = draws.tilted_attitude(COUNT, 1.0, 0.5, generator())
    torch.testing.assert_close(attitude.norm(dim=-1), torch.ones(COUNT))
    tilt = quaternion.tilt(attitude).sort().values
    assert tilt[-1] <= 1.0 + 1e-5
    # asin near zero magnifies float32 rounding: the first samples are known to 1e-3 only.
    assert greatest_gap(tilt, tilt) < LIMIT + 1e-3
    heading = 2 * torch.atan2(attitude[:, 3], attitude[:, 0])  # twist about the body's z
    ordered = heading.sort().values
    assert ordered[0] >= -0.5 - 1e-5
    assert ordered[-1] <= 0.5 + 1e-5
    assert greatest_gap(ordered, ordered + 0.5) < LIMIT


@pytest.mark.parametrize("degrees", [5.0, 90.0, 180.0])
def test_uniform_rotation_has_the_angles_of_the_rotation_group(degrees):
    largest = math.radians(degrees)
    attitude = draws.uniform_rotation(COUNT, largest, generator())
    torch.testing.assert_close(attitude.norm(dim=-1), torch.ones(COUNT))
    angle = 2 * torch.atan2(attitude[:, 1:].norm(dim=-1), attitude[:, 0]).double()
    angle = angle.sort().values
    assert angle[-1] <= largest + 1e-5
    shares = (angle - angle.sin()) / (largest - math.sin(largest))  # Haar measure of a ball
    assert greatest_gap(angle, shares) < LIMIT
