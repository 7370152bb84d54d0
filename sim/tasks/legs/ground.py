"""Ground of a task for legs: the level floor, or a terrain with levels."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import RobotState
from sim.randomization import WorldLevels
from sim.scenes.terrain import SCAN, Terrain, TerrainConfig, scan_points
from sim.task import TaskContext

EDGE = 1.0
"""Distance from the edge of the terrain at which a robot is lost [m]."""
_SCAN_RADIUS = 0.3
"""The ground below a robot is the mean of the scan so near to its base [m]."""


class Floor:
    """The level floor, endless at height 0; its methods are those of any ground."""

    def place(self, rows: EnvSelection, generator: torch.Generator) -> Tensor:
        """Starts of the picked envs: points on the ground, (count, 3), [m]."""
        return torch.zeros(rows.count, 3, device=generator.device)

    def altitude(self, true_state: RobotState) -> Tensor:
        """Height of the bases above the ground below, (N,), [m]."""
        return true_state.position_w[:, 2]

    def clearance(self, foot_position_w: Tensor) -> Tensor:
        """Height of the feet's centres, (N, F * 3), above the ground below each, (N, F), [m]."""
        return foot_position_w[:, 2::3]

    def lost(self, true_state: RobotState) -> Tensor | bool:
        """Robots about to leave the ground, (N,) bool."""
        return False

    def metrics(self) -> dict[str, Tensor]:
        """For logs, (N,) each."""
        return {}

    def follow(self, ended: Tensor, success: Tensor) -> None:
        """Take note of episodes that ended, (N,) bool, and of those that succeeded."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the future."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""


class Hills(Floor):
    """A terrain with a kind for every env, and levels that follow its successes.

    In training an env keeps its kind and climbs its levels; in evaluation both are drawn uniformly
    for every episode.
    """

    def __init__(
        self, config: TerrainConfig, scan: Tensor, *, num_envs: int, device: torch.device,
        evaluation: bool,
    ) -> None:  # fmt: skip
        """Put every env on its lowest level; the scan, (N, K), [m], is read live."""
        self._config = config
        self._evaluation = evaluation
        self._scan = scan
        self.terrain = Terrain(config, device)
        self.levels = WorldLevels(num_envs, config.levels, device)
        self.kind = torch.arange(num_envs, device=device) % len(config.kinds)
        """(N,) int64, columns of the terrain."""
        away = scan_points(config.scan).norm(dim=-1)
        below = away <= max(_SCAN_RADIUS, float(away.min()) + 1e-6)
        self._below = torch.nonzero(below)[:, 0].to(device)

    def place(self, rows: EnvSelection, generator: torch.Generator) -> Tensor:
        """Centres of the envs' tiles, as high as the ground around them."""
        if self._evaluation:
            unit = torch.rand((rows.count, 2), generator=generator, device=generator.device)
            rows.put(self.levels.level, (unit[:, 0] * self._config.levels).long())
            rows.put(self.kind, (unit[:, 1] * len(self._config.kinds)).long())
        else:
            self.levels.begin(rows, generator)
        return self.terrain.origin(rows.take(self.levels.level), rows.take(self.kind))

    def altitude(self, true_state: RobotState) -> Tensor:
        """Height above the mean of the ground below the trunk."""
        return -self._scan[:, self._below].mean(-1)

    def clearance(self, foot_position_w: Tensor) -> Tensor:
        """Height of every foot above the ground right below its centre."""
        feet = foot_position_w.unflatten(-1, (-1, 3))  # (N, F, 3)
        return feet[..., 2] - self.terrain.height(feet[..., :2])

    def lost(self, true_state: RobotState) -> Tensor:
        """Robots near the edge, behind which there is nothing to stand on."""
        return self.terrain.outside(true_state.position_w[:, :2], EDGE)

    def metrics(self) -> dict[str, Tensor]:
        """The level that each env is on, from 0."""
        return {"level": self.levels.level.float()}

    def follow(self, ended: Tensor, success: Tensor) -> None:
        """Send envs up a level after a success, down after a failure."""
        self.levels.follow(ended, success)

    def state_dict(self) -> dict[str, Any]:
        """Levels and kinds."""
        return {"levels": self.levels.state_dict(), "kind": self.kind.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.levels.load_state_dict(state["levels"])
        self.kind.copy_(state["kind"])


def make_ground(config: TerrainConfig | None, context: TaskContext) -> Floor:
    """The ground that a scene asks for: hills, or the floor where it asks for none."""
    if config is None:
        return Floor()
    return Hills(
        config, context.sensors[SCAN], num_envs=context.num_envs, device=context.device,
        evaluation=context.evaluation,
    )  # fmt: skip
