"""Crazyflie envs for the tests of sim: the robot of configs/robot, a task, a few envs."""

from dataclasses import replace

import torch

from configs.builders import build_env
from robot_rl.core.observation import TermConfig
from sim.env import SimEnv
from sim.robots.multirotor_robot import MultirotorConfig
from sim.robots.multirotor_simulation import MultirotorSimulation
from sim.tasks.flights.flight import RewardWeightsConfig
from sim.tasks.flights.hover import HoverConfig, HoverTask
from sim.tasks.flights.tracking import TrackingConfig, TrackingTask
from tests.compositions import composed
from tests.sim.stepping import weights

CPU = torch.device("cpu")


def crazyflie(plant: str = "paper") -> MultirotorConfig:
    """The robot of configs/robot/crazyflie.yaml."""
    return replace(composed(["task=hover", "robot=crazyflie"]).config.robot, plant=plant)


def flight_env(
    task: HoverConfig | TrackingConfig, num_envs: int, *, plant: str = "paper", seed: int = 0,
    evaluation: bool = True,
) -> SimEnv:  # fmt: skip
    """Envs of a flight task, all of which begin at once in evaluation."""
    if not task.reward.initial:
        task = replace(task, reward=RewardWeightsConfig(initial=weights("hover")))
    return build_env(
        replace(task, actor=[TermConfig(term="position_error_w")]), crazyflie(plant),
        make_task=HoverTask if isinstance(task, HoverConfig) else TrackingTask,
        make_simulation=MultirotorSimulation, num_envs=num_envs, device=CPU, seed=seed,
        evaluation=evaluation,
    )  # fmt: skip


def multirotors(env: SimEnv) -> MultirotorSimulation:
    """The simulation of an env of `flight_env`."""
    assert isinstance(env.simulation, MultirotorSimulation)
    return env.simulation
