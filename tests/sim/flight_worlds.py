"""Crazyflie worlds for the tests of sim: the robot of configs/robot, a task, a few worlds."""

import re
from dataclasses import replace
from pathlib import Path

import torch
import yaml

from robot_rl.core.action import ActionMap
from robot_rl.core.observation import TermConfig
from robot_rl.core.robot import RobotSpec, SensorSpec
from robot_rl.core.robot_command import CommandKind
from sim.env import SimEnv
from sim.physics.multirotor_model import MultirotorModel
from sim.robots.multirotor_robot import MultirotorConfig
from sim.robots.multirotor_simulation import MultirotorSimulation
from sim.tasks.flights.flight import RewardWeightsConfig
from sim.tasks.flights.hover import HoverConfig, HoverTask
from sim.tasks.flights.tracking import TrackingConfig, TrackingTask
from tests.sim.stepping import context, weights

_YAML = Path(__file__).resolve().parents[2] / "configs" / "robot" / "crazyflie.yaml"
CPU = torch.device("cpu")


def crazyflie(plant: str = "paper") -> MultirotorConfig:
    """The robot of configs/robot/crazyflie.yaml, read without Hydra."""
    values = yaml.load(_YAML.read_text(), Loader=_Loader)
    spec = values["spec"]
    sensors = {name: SensorSpec(**sensor) for name, sensor in spec["sensors"].items()}
    return MultirotorConfig(
        spec=RobotSpec(**{**spec, "sensors": sensors, "command": CommandKind(spec["command"])}),
        plant=plant,
        plants={name: MultirotorModel(**model) for name, model in values["plants"].items()},
    )


def flight_env(
    task: HoverConfig | TrackingConfig, num_worlds: int, *, plant: str = "paper", seed: int = 0,
    evaluation: bool = True,
) -> SimEnv:  # fmt: skip
    """Worlds of a flight task, as those of `build_env` are made; all begin at once."""
    robot = crazyflie(plant)
    if not task.reward.initial:
        task = replace(task, reward=RewardWeightsConfig(initial=weights("hover")))
    simulation = MultirotorSimulation(
        robot, task.randomization, num_worlds=num_worlds, device=CPU, seed=seed + 1,
        **robot.simulation_arguments(task, evaluation=evaluation),
    )  # fmt: skip
    worlds = context(
        num_worlds, simulation.control_dt, hover_action=robot.hover_action, evaluation=evaluation
    )
    made = HoverTask(task, worlds) if isinstance(task, HoverConfig) else TrackingTask(task, worlds)
    return SimEnv(
        simulation, made, actor_terms=[TermConfig(term="position_error_w")], critic_terms=[],
        action_map=ActionMap(kind=CommandKind.rotors, low=[0.0] * 4, high=[1.0] * 4),
        initial_action=0.0, seed=seed, stagger=False,
    )  # fmt: skip


def multirotors(env: SimEnv) -> MultirotorSimulation:
    """The worlds of an env of `flight_env`."""
    assert isinstance(env.simulation, MultirotorSimulation)
    return env.simulation


class _Loader(yaml.SafeLoader):
    """YAML 1.2 floats, as Hydra reads them: 3.85e-6 is a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)
