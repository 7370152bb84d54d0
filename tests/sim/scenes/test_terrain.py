"""Terrain: what a level means in numbers, tiles that meet, heights between points, and scans."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from robot_rl.core import quaternion
from robot_rl.core.observation import RobotState
from sim.scenes.terrain import (
    KINDS,
    HeightScan,
    ScanConfig,
    Terrain,
    TerrainConfig,
    TileLimits,
    scan_points,
)
from tests.fakes import CPU


def terrain(**changes: Any) -> Terrain:
    return Terrain(TerrainConfig(**({"levels": 2, "border": 1.0} | changes)), CPU)


def height(ground: Terrain, x: float, y: float) -> float:
    return float(ground.height(torch.tensor([[x, y]])))


def centre(ground: Terrain, kind: str, level: int) -> tuple[float, float]:
    column = torch.tensor(ground.config.kinds.index(kind))
    x, y, _ = ground.origin(torch.tensor(level), column).tolist()
    return x, y


def test_equal_seeds_make_equal_ground_and_every_kind_has_finite_heights_at_every_level():
    assert np.array_equal(terrain(seed=3).grid, terrain(seed=3).grid)
    assert not np.array_equal(terrain(seed=3).grid, terrain(seed=4).grid)
    ground = terrain(levels=6)
    assert ground.config.kinds == list(KINDS)
    assert np.isfinite(ground.grid).all()


def test_the_field_holds_all_tiles_and_the_border_kinds_along_x_and_levels_along_y():
    ground = terrain(kinds=["flat", "rough", "waves"], tile=4.0)
    # 3 tiles of 4 m and 2 borders of 1 m; 2 tiles of 4 m and 2 borders
    assert ground.half_size == pytest.approx((7.0, 5.0))
    assert ground.grid.shape == (101, 141)
    ground = terrain(kinds=["flat", "rough"], tile=4.0)
    origin = ground.origin(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0]))
    assert origin[:, :2].tolist() == [[-2.0, -2.0], [2.0, -2.0], [-2.0, 2.0]]


@pytest.mark.parametrize(("level", "share"), [(0, 0.5), (1, 1.0)])
def test_a_level_is_its_share_of_the_largest_step_and_slope(level: int, share: float) -> None:
    limits = TileLimits(step_height=0.2, slope=0.4)
    ground = terrain(limits=limits, kinds=["stairs_up", "stairs_down", "slope_up", "slope_down"])
    # From the platform's edge, 1 m from the centre, to the rim, 3.5 m from it: 2.5 m, 7 steps.
    steps = 7 * share * 0.2
    rise = 2.5 * math.tan(share * 0.4)
    for kind, middle in (("stairs_up", -steps), ("stairs_down", steps), ("slope_up", -rise),
                         ("slope_down", rise)):  # fmt: skip
        x, y = centre(ground, kind, level)
        assert height(ground, x, y) == pytest.approx(middle, abs=1e-5)
        assert height(ground, x + 0.9, y - 0.9) == pytest.approx(middle, abs=1e-5)
        assert height(ground, x, y + 3.7) == 0.0
    x, y = centre(ground, "slope_down", level)
    slope = height(ground, x + 1.5, y) - height(ground, x + 2.5, y)
    assert slope == pytest.approx(math.tan(share * 0.4), abs=1e-5)


def test_rough_ground_and_waves_stay_within_their_level() -> None:
    ground = terrain(kinds=["rough", "waves"], limits=TileLimits(roughness=0.06, wave_height=0.1))
    lower, upper = ground.grid[10:91], ground.grid[90:171]
    for rows, share in ((lower, 0.5), (upper, 1.0)):
        blocks, crests = rows[:, 10:91], rows[:, 90:171]
        assert 0.8 * share * 0.06 < abs(blocks).max() <= share * 0.06 + 1e-6
        assert abs(crests).max() == pytest.approx(share * 0.1, rel=0.02)


def test_tiles_meet_their_neighbours_and_the_border_without_a_cliff() -> None:
    ground = terrain()
    edges = [*range(10, ground.grid.shape[1], 80)]
    assert not ground.grid[:, edges].any()
    assert not ground.grid[[10, 90, 170]].any()
    assert not ground.grid[:10].any()


def test_height_between_the_points_lies_on_the_two_triangles_of_a_cell() -> None:
    ground = terrain(kinds=["rough"], levels=1)  # 10 m wide: x = 0.1 column - 5
    changes = abs(np.diff(ground.grid, axis=0))[:, :-1] * abs(np.diff(ground.grid, axis=1))[:-1]
    row, column = np.unravel_index(int(changes.argmax()), changes.shape)
    corners = ground.grid[row : row + 2, column : column + 2]
    (low, right), (up, high) = corners.astype(float)  # right: towards x, up: towards y
    for x, y, expected in (
        (0.0, 0.0, low), (1.0, 0.0, right), (0.0, 1.0, up), (1.0, 1.0, high),
        (0.5, 0.5, 0.5 * low + 0.5 * high),
        (0.75, 0.25, 0.25 * low + 0.5 * right + 0.25 * high),
        (0.25, 0.75, 0.25 * low + 0.5 * up + 0.25 * high),
    ):  # fmt: skip
        place = 0.1 * (column + x) - 5, 0.1 * (row + y) - 5
        assert height(ground, *place) == pytest.approx(expected, abs=1e-5)


def test_a_robot_begins_on_the_highest_place_that_it_may_touch() -> None:
    ground = terrain(kinds=["rough", "waves"])
    for kind in (0, 1):
        x, y, z = ground.origin(torch.tensor(1), torch.tensor(kind)).tolist()
        around = torch.cartesian_prod(
            torch.linspace(x - 0.5, x + 0.5, 11), torch.linspace(y - 0.5, y + 0.5, 11)
        )
        assert z == pytest.approx(float(ground.height(around).max()), abs=1e-4)


def test_beyond_the_edge_the_border_goes_on_and_is_outside() -> None:
    ground = terrain(kinds=["flat"], levels=1)  # 10 m wide
    places = torch.tensor([[4.4, 0.0], [4.6, 0.0], [0.0, -4.6], [99.0, 99.0]])
    assert ground.outside(places, 0.5).tolist() == [False, True, True, True]
    assert ground.height(places).tolist() == [0.0] * 4


HILL = TerrainConfig(
    kinds=["slope_down"], levels=1, border=1.0, limits=TileLimits(slope=math.atan(0.5)),
    scan=ScanConfig(length=0.4, width=0.2, spacing=0.2),
)  # fmt: skip
"""Its sides fall by 0.5 m per metre, from a platform 1.25 m high."""


def scanned(places: list[list[float]], yaws: list[float], roll: float = 0.0) -> torch.Tensor:
    scan = HeightScan(Terrain(HILL, CPU), len(places), CPU)
    heading = quaternion.from_yaw(torch.tensor(yaws))
    lean = quaternion.from_rotation_vector(torch.tensor([[roll, 0.0, 0.0]]).repeat(len(yaws), 1))
    attitude = quaternion.multiply(heading, lean)
    scan.look(RobotState({"position_w": torch.tensor(places), "orientation_w": attitude}))
    return scan.values


def test_points_lie_symmetrically_line_by_line_from_the_rear() -> None:
    points = scan_points(ScanConfig(length=0.4, width=0.2, spacing=0.2))
    expected = [[x, y] for x in (-0.2, 0.0, 0.2) for y in (-0.1, 0.1)]
    torch.testing.assert_close(points, torch.tensor(expected))
    assert len(scan_points(ScanConfig(length=1.6, width=0.8, spacing=0.2))) == 9 * 5


def test_a_robot_that_looks_downhill_sees_the_ground_fall_ahead() -> None:
    # On the side towards +y, 2 m from the middle: 0.5 (3.5 - 2) = 0.75 m high, base 0.3 m above.
    downhill, along = scanned([[0.0, 2.0, 1.05]] * 2, [math.pi / 2, 0.0]).tolist()
    assert downhill == pytest.approx([-0.2, -0.2, -0.3, -0.3, -0.4, -0.4], abs=1e-5)
    # Looking along x the left side, towards +y, is lower.
    assert along == pytest.approx([-0.25, -0.35] * 3, abs=1e-5)


def test_leaning_changes_no_scan_and_depths_are_bounded() -> None:
    upright, leaning = (scanned([[0.3, 2.0, 1.05]], [0.4], roll) for roll in (0.0, 0.5))
    torch.testing.assert_close(upright, leaning)
    assert scanned([[0.0, 0.0, 9.0]], [0.0]).tolist() == [[-1.0] * 6]
