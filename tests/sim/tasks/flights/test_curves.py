"""Reference curves: derivatives, the lemniscate's shape, and where every curve starts."""

import math

import pytest
import torch

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from sim.tasks.flights.curves import CurveConfig, Curves

CPU = torch.device("cpu")
ALL = torch.ones(64, dtype=torch.bool)


def drawn(share: float, count: int = 64, **config: float) -> Curves:
    curves = Curves(CurveConfig(lemniscate_share=share, **config), count, CPU)
    curves.draw(EnvSelection(ALL[:count]), torch.Generator().manual_seed(0))
    return curves


def test_velocity_is_the_derivative_of_position():
    curves = drawn(0.5)
    time = torch.linspace(0.0, 6.0, 25).expand(64, -1)
    h = 1e-2
    slope = (curves.position(time + h) - curves.position(time - h)) / (2 * h)
    # The third derivative is below 100 m/s^3, h^2/6 of it below 2e-3; float32 adds 1e-4.
    torch.testing.assert_close(curves.velocity(time), slope, atol=2e-3, rtol=0)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_every_curve_starts_in_the_origin(share):
    start = drawn(share).position(torch.zeros(64, 1))
    assert start.abs().max() < 1e-6


def test_lemniscate_passes_its_known_points():
    curves = drawn(1.0, 1, lemniscate_size=2.0, lemniscate_period=8.0)
    time = torch.tensor([[1.0, 2.0, 4.0, 6.0, 8.0]])  # eighth, quarter, half, three quarters, lap
    expected = torch.tensor(
        [[math.sqrt(2.0), 1.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0], [-2.0, 0.0, 0.0], [0.0] * 3]
    )
    torch.testing.assert_close(curves.position(time)[0], expected, atol=1e-5, rtol=0)


def test_lemniscate_is_a_figure_of_eight():
    time = torch.linspace(0, 5.5, 100)[None]
    x, y, z = drawn(1.0, 1).position(time)[0].unbind(-1)
    # Gerono's curve of size 1: y^2 = x^2 (1 - x^2), here from x = sin, y = sin cos.
    torch.testing.assert_close(y * y, x * x * (1 - x * x), atol=1e-5, rtol=0)
    assert z.abs().max() == 0.0


def test_random_curves_respect_size_and_speed_and_differ():
    curves = drawn(0.0, random_size=0.8, random_speed=1.2)
    time = torch.linspace(0.0, 12.0, 400).expand(64, -1)
    assert curves.velocity(time).abs().max() <= 1.2 + 1e-5
    points = curves.position(time)
    assert float((points.amax(1) - points.amin(1)).max()) <= 2 * 0.8 + 1e-5
    assert len(torch.unique(points[:, 100, 0])) == 64


def test_the_share_decides_how_many_fly_the_lemniscate():
    points = drawn(0.5).position(torch.full((64, 1), 0.7))
    flat = (points[:, 0, 2] == 0.0).sum()
    assert 20 <= int(flat) <= 44  # binomial(64, 1/2): three deviations


def test_drawing_for_some_worlds_leaves_the_others():
    curves = drawn(0.0)
    time = torch.linspace(0.0, 3.0, 7).expand(64, -1)
    before = curves.position(time)
    mask = torch.zeros(64, dtype=torch.bool)
    mask[5] = True
    curves.draw(EnvSelection(mask), torch.Generator().manual_seed(9))
    after = curves.position(time)
    assert torch.equal(before[~mask], after[~mask])
    assert not torch.equal(before[mask], after[mask])


def test_saved_curves_come_back():
    curves, other = drawn(0.3), drawn(1.0)
    other.load_state_dict(curves.state_dict())
    time = torch.linspace(0.0, 3.0, 7).expand(64, -1)
    assert torch.equal(curves.position(time), other.position(time))


@pytest.mark.parametrize(
    "bad", [{"lemniscate_share": 1.5}, {"random_size": 0.0}, {"lemniscate_period": -1.0}]
)
def test_impossible_curves_are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        CurveConfig(**bad)
