"""Crazyflies for the tests of sim: the robot of configs/robot, flights, and simulations alone."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from configs.builders import build_env
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import RobotState, TermConfig
from robot_rl.core.robot import SensorSpec
from sim.env import SimEnv
from sim.robots.multirotor_robot import FlightAction, MultirotorConfig, MultirotorRandomization
from sim.robots.multirotor_simulation import MultirotorSimulation
from sim.task import InitialState, StepOutcome, Task
from sim.tasks.flights.flight import FlightStartConfig, RewardWeightsConfig
from sim.tasks.flights.gates import CourseConfig, GatesConfig, GatesTask
from sim.tasks.flights.hover import HoverConfig, HoverTask
from sim.tasks.flights.landing import LandingConfig, LandingTask
from sim.tasks.flights.tracking import CurveConfig, TrackingConfig, TrackingTask
from tests.compositions import composed
from tests.fakes import CPU
from tests.sim.stepping import endless, made, weights

ACTOR = ("position_error_w", "orientation_matrix", "linear_velocity_w", "angular_velocity_b")
TASKS = {
    "hover": (HoverConfig, HoverTask), "tracking": (TrackingConfig, TrackingTask),
    "gates": (GatesConfig, GatesTask), "landing": (LandingConfig, LandingTask),
}  # fmt: skip

STILL = FlightStartConfig(position=0, attitude_deg=0, heading_deg=0, velocity=0, angular_velocity=0)


def flight_state(
    position: Any = (0.0, 0.0, 0.0), velocity: Any = (0.0, 0.0, 0.0), *,
    attitude: Any = (1.0, 0.0, 0.0, 0.0), rates: Any = (0.0, 0.0, 0.0), count: int = 1,
) -> RobotState:  # fmt: skip
    """So many multirotors, at rest and upright where nothing else is said."""
    fields = {
        "position_w": position, "orientation_w": attitude, "linear_velocity_w": velocity,
        "angular_velocity_b": rates,
    }  # fmt: skip
    return RobotState(
        {name: torch.as_tensor(value).expand(count, -1) for name, value in fields.items()}
    )


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


def simulation_of(env: SimEnv) -> MultirotorSimulation:
    """The simulation of an env of `flight_env`."""
    assert isinstance(env.simulation, MultirotorSimulation)
    return env.simulation


def task_config(task: str, **changes: Any) -> Any:
    """A task of twelve steps that partly leave its radius, or begin in a gate's frame."""
    start = FlightStartConfig(position=0.2, velocity=1.5)
    terms = [TermConfig(term=name) for name in ACTOR]
    values: dict[str, Any] = {
        "episode_length": 0.12,
        "radius": 0.35,
        "evaluation_radius": 0.35,
        "start": start,
        "evaluation_start": start,
        "reward": RewardWeightsConfig(
            initial=weights("hover", alive=1.0, distance=-0.5, effort=-0.1)
        ),
        "randomization": MultirotorRandomization(action_delay=[0.0, 0.03]),
        "actor": [*terms, TermConfig(term="last_action", history=3)],
        "critic": [*terms, TermConfig(term="sensed/rotor_speed"), TermConfig(term="sensed/plant")],
    }
    if task == "hover":
        values["success_window"] = 0.05
    elif task == "landing":
        values |= {"height": [0.01, 0.05], "radius": 0.5, "evaluation_radius": 0.5}
        values["reward"] = RewardWeightsConfig(initial=weights("landing", approach=1.0, lost=-20.0))
    elif task == "gates":
        del values["evaluation_radius"]
        values["course"] = CourseConfig(gates=3, spacing=[0.7, 0.75])
        values["radius"] = 0.85
        values["reward"] = weights("gates", alive=1.0, progress=0.5, passed=5.0)
        terms = [TermConfig(term=name) for name in ("preview_w", "goal/gate_normals_w")]
        values["actor"] += terms
        values["critic"] += [*terms, TermConfig(term="goal/gates_ahead")]
    else:
        values["evaluation_curve"] = CurveConfig(lemniscate_share=0.5)
        values["actor"] += [TermConfig(term="velocity_error_w"), TermConfig(term="preview_w")]
    return TASKS[task][0](**(values | changes))


def robot_config(*, noise: bool = True, latency: float = 0.0) -> MultirotorConfig:
    """The Crazyflie with its noise or none, every sensor late alike."""
    robot = crazyflie()
    sensors = {
        name: SensorSpec(noise=sensor.noise if noise else 0.0, latency=latency)
        for name, sensor in robot.spec.sensors.items()
    }
    return replace(robot, spec=replace(robot.spec, sensors=sensors))


def late_robot(
    *, noise: bool = True, action: FlightAction = FlightAction.rotors
) -> MultirotorConfig:
    """The Crazyflie whose sensors are a control period late."""
    return replace(robot_config(noise=noise, latency=0.01), action=action)


def flight_envs(
    task: str, num_envs: int, *, seed: int = 0, robot: MultirotorConfig | None = None,
    evaluation: bool = True, device: torch.device = CPU,
    make_task: Callable[..., Task] | None = None, **changes: Any,
) -> SimEnv:  # fmt: skip
    """Envs of `task_config(task, **changes)`."""
    make_task = make_task or TASKS[task][1]
    return build_env(
        task_config(task, **changes), robot or robot_config(), make_task=make_task,
        make_simulation=MultirotorSimulation, num_envs=num_envs, device=device, seed=seed,
        evaluation=evaluation,
    )  # fmt: skip


def flight(task: str, **robot: Any) -> Callable[[int, int, torch.device], SimEnv]:
    """A maker for `EnvCase.make`; arguments of `late_robot`."""
    return made(partial(flight_envs, task), robot=late_robot(**robot))


class _Groundless(LandingTask):
    """Nothing is touched, and nobody is too far away."""

    def evaluate(
        self, true_state: RobotState, action: torch.Tensor, last_action: torch.Tensor,
        episode_step: torch.Tensor,
    ) -> StepOutcome:  # fmt: skip
        outcome = super().evaluate(true_state, action, last_action, episode_step)
        return replace(outcome, terminated=torch.zeros_like(outcome.terminated))


def endless_flight(task: str, **robot: Any) -> Callable[[int, torch.device], SimEnv]:
    """A maker for `EnvCase.endless`: nowhere is too far, no tumbling too fast, no frame hard."""
    limits: dict[str, Any] = {"evaluation_radius": 1e9}
    if task == "tracking":
        limits["max_rates"] = 1e9
    if task == "gates":  # openings as wide for the robot's centre, in frames of no thickness
        course = CourseConfig(gates=3, spacing=[0.7, 0.75], opening=0.36, bar=1e-6)
        limits = {"max_rates": 1e9, "radius": 1e9, "course": course, "robot_radius": 1e-6}
    if task == "landing":
        limits = {"make_task": _Groundless}
    return endless(partial(flight_envs, task), robot=late_robot(**robot), **limits)


def lift_limit(state: dict[str, Any]) -> None:
    """Takes the time limit out of a saved state."""
    state["episode_limit"] = torch.full_like(state["episode_limit"], 10**9)


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
