"""Robots that have fallen: poses in which they came to lie, made once by simulation."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.seeding import derive_seed
from sim import draws


@dataclass(kw_only=True)
class FallenConfig:
    """Robots with any attitude and any joint positions that are dropped with their motors off."""

    count: int = 256
    """Number of poses."""
    height: float = 0.6
    """Height of the base that they are dropped from [m]: all of the robot above the ground."""
    seconds: float = 1.0
    """Time in which they fall and come to rest [s]."""
    damping: float = 1.0
    """Viscous friction of the joints meanwhile [N m s/rad]."""
    seed: int = 0
    """Of attitudes and joint positions."""

    def __post_init__(self) -> None:
        """Refuse sets without poses."""
        for name, least in (("count", 4), ("seed", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"fallen.{name} must be >= {least}, got {getattr(self, name)}")
        for name in ("height", "seconds"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"fallen.{name} must be > 0, got {getattr(self, name)}")
        if self.damping < 0:
            raise ConfigError(f"fallen.damping must be >= 0, got {self.damping}")


@runtime_checkable
class BeginsFallen(Protocol):
    """Config of a task whose robots begin where they came to lie."""

    @property
    def fallen(self) -> FallenConfig:
        """How they fell."""
        ...


def dropped(config: FallenConfig, robot: RobotSpec) -> Tensor:
    """Robots in the air: position, quaternion wxyz, joint positions, (count, 7 + J).

    Attitudes are uniform over all rotations, joint positions over their ranges.
    """
    generator = torch.Generator().manual_seed(derive_seed(config.seed, "fallen"))
    count = config.count
    attitude = quaternion.normalize(draws.normal((count, 4), 1.0, generator))
    limits = torch.tensor([joint.position_limit for joint in robot.joints])
    unit = draws.uniform((count, len(limits)), 0.0, 1.0, generator)
    position = torch.zeros(count, 3)
    position[:, 2] = config.height
    joints = limits[:, 0] + (limits[:, 1] - limits[:, 0]) * unit
    return torch.cat([position, attitude, joints], dim=-1)
