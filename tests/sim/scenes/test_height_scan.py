"""Height scan: what a camera that turns with the robot would see, with numbers by hand."""

import math

import pytest
import torch

from robot_rl.core import quaternion
from robot_rl.core.observation import RobotState
from sim.scenes.terrain import (
    HeightScan,
    ScanConfig,
    Terrain,
    TerrainConfig,
    TileLimits,
    scan_points,
)

CPU = torch.device("cpu")
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
