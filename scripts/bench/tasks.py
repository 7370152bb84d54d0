"""Speed of every task in its own worlds, and of the physics of every robot with joints."""

from collections.abc import Callable
from dataclasses import replace

import torch

from configs.catalog import choices
from configs.compose import compose
from robot_rl.cli.components import make_sim_env
from scripts.bench.simulation import bare_speed, environment_speed, in_words
from scripts.bench.timing import Section, interleave
from sim.env import SimEnv
from sim.robots.joint_robot import JointRobotConfig
from sim.robots.joint_simulation import MujocoSimulation

SIZE = 64
"""Worlds of each contender."""
WORLD_STEPS = 12_000
"""Steps of all worlds together in one turn."""
ROBOTS = {
    "panda": "reach", "ur5e": "reach", "ur5e_2f85": "lift", "allegro": "reorient",
    "go2": "velocity", "go1": "velocity", "g1": "velocity",
}  # fmt: skip
"""Robots with joints, and the task whose random targets they follow."""


def measure_tasks(*, rounds: int, quick: bool) -> list[Section]:
    """Both tables.

    Args:
        rounds: Turns of each contender.
        quick: Tiny sizes.
    """
    size, work = (4, 16) if quick else (SIZE, WORLD_STEPS)
    steps = work // size
    robots = {name: _physics(name, task, size, steps) for name, task in ROBOTS.items()}
    tasks = {
        name: environment_speed(task_env([f"task={name}"], size), steps) for name in choices("task")
    }
    where = f"{size} worlds, {in_words(1)}"
    return [
        interleave(f"physics under random targets, {where}", "physics steps/s", robots,
                   rounds=rounds),
        interleave(f"tasks under random actions, {where}", "env-steps/s", tasks, rounds=rounds),
    ]  # fmt: skip


def _physics(robot: str, task: str, size: int, steps: int) -> Callable[[], float]:
    env = task_env([f"task={task}", f"robot={robot}"], size)
    assert isinstance(env.simulation, MujocoSimulation)
    each, speed = env.simulation.engine.decimation, bare_speed(env, steps, threads=1)
    return lambda: each * speed()


def task_env(overrides: list[str], size: int) -> SimEnv:
    """Training worlds, begun; of MuJoCo's on one thread."""
    config = compose([*overrides, f"num_envs={size}"]).config
    if isinstance(config.robot, JointRobotConfig):
        config = replace(config, robot=replace(config.robot, physics_threads=1))
    env = make_sim_env(config, num_envs=size, device=torch.device("cpu"), seed=0, evaluation=False)
    env.reset(seed=0)
    return env
