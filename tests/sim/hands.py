"""Envs in which an arm handles things, for the tests of sim, as configs/task has them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from configs.builders import build_env
from configs.schema import component_of
from robot_rl.core.robot import SensorSpec
from sim.env import SimEnv
from sim.robots.joint_robot import PhysicsEngine
from sim.robots.joint_simulation import MujocoSimulation
from tests.compositions import composed
from tests.sim.arms import CPU, STEPS, panda
from tests.sim.joint_robots import joint_robot
from tests.sim.stepping import endless, made

ENDING = {"lift": 0.14, "peg": 0.19, "drawer": 0.3}
"""Heights of the end effector, a little below where it begins: going lower ends an episode."""


def hand_envs(
    name: str, num_envs: int, *, seed: int = 0, device: torch.device = CPU, latency: float = 0.0,
    engine: PhysicsEngine = PhysicsEngine.batch, evaluation: bool = True, **changes: Any,
) -> Any:  # fmt: skip
    """A `SimEnv` of a task with a few fields changed; tests look into its task and its engine."""
    task = replace(composed([f"task={name}"]).config.task, **changes)
    return build_env(
        task, panda(latency=latency, engine=engine), make_task=component_of(task).build,
        make_simulation=MujocoSimulation, num_envs=num_envs, device=device, seed=seed,
        evaluation=evaluation,
    )  # fmt: skip


def _short(count: int, *, name: str, lowest_height: float, **changes: Any) -> SimEnv:
    """A dozen steps."""
    length = STEPS * 0.04
    return hand_envs(
        name, count, latency=0.04, lowest_height=lowest_height, episode_length=length,
        success_window=0.2, **changes,
    )  # fmt: skip


def handling(name: str, **changes: Any) -> Callable[[int, int, torch.device], SimEnv]:
    """A maker for `EnvCase.make`: the hand begins a little above what ends an episode."""
    return made(_short, name=name, lowest_height=ENDING[name], **changes)


def endless_handling(name: str, **changes: Any) -> Callable[[int, torch.device], SimEnv]:
    """A maker for `EnvCase.endless`: no height is too low, no cube too far."""
    changes |= {"farthest": 1e9} if name == "lift" else {}
    return endless(_short, name=name, lowest_height=-9.0, **changes)


def turning(*, noise: bool = True, **changes: Any) -> Callable[[int, int, torch.device], SimEnv]:
    """A maker for `EnvCase.make`: a dozen steps of a hand; a cube that sinks ends an episode."""
    return made(_turned, noise=noise, lowest=0.2485, **changes)


def endless_turning(*, noise: bool = True) -> Callable[[int, torch.device], SimEnv]:
    """A maker for `EnvCase.endless`: no cube is too low or too far."""
    return endless(_turned, noise=noise, lowest=-9.0, farthest=1e9)


def _turned(
    count: int, *, noise: bool, seed: int = 0, device: torch.device = CPU, **changes: Any
) -> SimEnv:
    robot = joint_robot("allegro", "reorient", noise=noise)
    config = composed(["task=reorient"]).config.task
    scene = config.scene if noise else replace(config.scene, measured=exact(config.scene.measured))
    reward = {**config.reward, "dropped": 0.0}  # which an endless copy does not pay
    length = STEPS * 0.05
    task = replace(
        config, **{"episode_length": length, "scene": scene, "reward": reward, **changes}
    )
    return build_env(
        task, robot, make_task=component_of(task).build, make_simulation=MujocoSimulation,
        num_envs=count, device=device, seed=seed, evaluation=True,
    )  # fmt: skip


def exact(measured: Mapping[str, SensorSpec]) -> dict[str, SensorSpec]:
    """The same measurements without noise."""
    return {name: replace(sensor, noise=0.0) for name, sensor in measured.items()}
