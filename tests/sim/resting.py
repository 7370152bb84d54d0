"""Multirotors without a task, at rest in the origin."""

from typing import Any

import torch

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import RobotState
from sim.robots.multirotor_robot import MultirotorConfig, MultirotorRandomization
from sim.robots.multirotor_simulation import MultirotorSimulation
from sim.task import InitialState
from tests.sim.flight_envs import CPU
from tests.sim.flying import robot_config


def multirotors(
    count: int, *, robot: MultirotorConfig | None = None, seed: int = 0, **ranges: Any
) -> MultirotorSimulation:
    """Robots with newly drawn parameters."""
    drawn = MultirotorRandomization(**ranges)
    simulation = MultirotorSimulation(
        robot or robot_config(), drawn, num_worlds=count, device=CPU, seed=seed,
        curriculum=drawn.curriculum,
    )  # fmt: skip
    begin(simulation, torch.ones(count, dtype=torch.bool), seed=seed)
    return simulation


def begin(simulation: MultirotorSimulation, mask: torch.Tensor, *, seed: int = 0) -> None:
    """Place the masked robots."""
    rows = EnvSelection(mask)
    zeros = torch.zeros(rows.count, 3)
    level = torch.tensor([1.0, 0, 0, 0]).repeat(rows.count, 1)
    names = ("position_w", "linear_velocity_w", "angular_velocity_b")
    start = InitialState(robot=RobotState({"orientation_w": level, **dict.fromkeys(names, zeros)}))
    simulation.reset(rows, start, torch.Generator().manual_seed(seed))
