"""Heights of the ground around robots, in a grid that turns with their heading."""

import math

import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.mirror import SignedPermutation
from robot_rl.core.observation import RobotState
from sim.scenes.terrain import ScanConfig, Terrain

SCAN = "height_scan"
"""Name of the sensor."""
_DEEPEST = 1.0
"""Heights in a scan lie within +- this [m]."""


class HeightScan:
    """Heights of a terrain, as a perfect depth camera would see them."""

    def __init__(self, terrain: Terrain, num_envs: int, device: torch.device) -> None:
        """Prepare scans of zeros.

        Args:
            terrain: The ground under all envs.
            num_envs: N.
            device: Where the envs live.
        """
        self._terrain = terrain
        self._points = scan_points(terrain.config.scan).to(device)
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
        torch.clamp(heights - place[:, 2:], -_DEEPEST, _DEEPEST, out=self.values)


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
