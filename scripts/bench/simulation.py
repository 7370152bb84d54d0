"""Speed of MuJoCo worlds: our environments beside the bare engine, Gymnasium and envpool."""

import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import torch
from mujoco.batch import Batch

from configs.compose import compose
from robot_rl.cli.components import make_sim_env
from robot_rl.core.env import BatchEnv
from scripts.bench.timing import Bar, Section, interleave
from sim.adapters.envpool_env import EnvpoolWorlds
from sim.adapters.gymnasium_config import GymnasiumConfig, WorldEngine
from sim.adapters.gymnasium_mujoco import make_mujoco_worlds
from sim.env import SimEnv
from sim.physics.fault_record import warnings_unsaid
from sim.robots.joint_simulation import MujocoSimulation

TASK_BARS = {"reach": {64: 0.75, 256: 0.88}, "velocity": {64: 0.6, 256: 0.7}}
"""Tasks, numbers of worlds, and the share of the bare engine's speed that is asked for."""
CHEETAH, CHEETAH_SIZES = "HalfCheetah-v5", (8, 64, 256)
WORLD_STEPS = 24_000
"""Steps of all worlds together in one turn."""
MOST_PROCESSES = 64
"""Beyond this, AsyncVectorEnv (a process per world) is left out."""
_ACTIONS = 16
"""Random actions drawn beforehand; a measurement goes through them again and again."""
_CPU = torch.device("cpu")


def measure_simulation(
    *, rounds: int, threads: int, quick: bool
) -> Iterator[tuple[Section, list[str]]]:
    """All tables, each with the lines about its bars.

    Args:
        rounds: Turns of each contender.
        threads: CPU threads of the physics.
        quick: Tiny sizes.
    """
    work = 64 if quick else WORLD_STEPS
    for task, bars in TASK_BARS.items():
        for size, least in ({8: 0.0} if quick else bars).items():
            yield measure_task(
                task, size, least=least, rounds=rounds, steps=work // size, threads=threads
            )
    for size in (4,) if quick else CHEETAH_SIZES:
        yield measure_cheetah(size, rounds=rounds, steps=work // size, threads=threads)


def measure_task(
    task: str, size: int, *, least: float, rounds: int, steps: int, threads: int
) -> tuple[Section, list[str]]:
    """A task with its robot and everything, beside a loop that only steps the same model.

    Both get the same random targets; robots of the bare loop are never reset.

    Args:
        task: Name of the task.
        size: Worlds.
        least: Share of the bare speed that the environment is asked to keep.
        rounds: Turns of each contender.
        steps: Steps of all worlds in one turn.
        threads: CPU threads of the physics.
    """
    config = compose(
        [f"task={task}", f"num_envs={size}", f"robot.physics_threads={threads}"]
    ).config
    env = make_sim_env(config, num_envs=size, device=_CPU, seed=0, evaluation=False)
    env.reset(seed=0)
    section = interleave(
        f"{task} with robot={config.robot.spec.name}, {size} worlds, {in_words(threads)}",
        "env-steps/s",
        {
            "bare Batch": bare_speed(env, steps, threads),
            "environment": environment_speed(env, steps),
        },
        rounds=rounds,
    )
    return section, [Bar(ours="environment", other="bare Batch", least=least).verdict(section)]


def measure_cheetah(
    size: int, *, rounds: int, steps: int, threads: int
) -> tuple[Section, list[str]]:
    """HalfCheetah-v5 on our engine, in Gymnasium's two vector environments, and in envpool.

    Args:
        size: Worlds.
        rounds: Turns of each contender.
        steps: Steps of all worlds in one turn.
        threads: CPU threads of our engine and of envpool.
    """
    config = GymnasiumConfig(id=CHEETAH, engine=WorldEngine.batch, physics_threads=threads)
    ours = make_mujoco_worlds(config, num_envs=size, device=_CPU, seed=0)
    with _foreign(size, threads) as foreign:
        contenders = {"ours": environment_speed(ours, steps)}
        contenders |= {name: _vector_env(worlds, steps) for name, worlds in foreign.items()}
        section = interleave(
            f"{CHEETAH}, {size} worlds, {in_words(threads)}", "env-steps/s", contenders,
            rounds=rounds,
        )  # fmt: skip
    bars = {"envpool": 1.0, "AsyncVectorEnv": 5.0}
    lines = [
        Bar(ours="ours", other=name, least=least).verdict(section)
        for name, least in bars.items()
        if name in foreign
    ]
    if "envpool" not in foreign:
        lines.append("envpool is not installed: pip install 'robot_rl[envpool]'")
    return section, lines


@contextmanager
def _foreign(size: int, threads: int) -> Iterator[dict[str, Any]]:
    worlds: dict[str, Any] = {}
    with warnings_unsaid():
        worlds["SyncVectorEnv"] = gymnasium.make_vec(CHEETAH, size, vectorization_mode="sync")
        if size <= MOST_PROCESSES:
            worlds["AsyncVectorEnv"] = gymnasium.make_vec(CHEETAH, size, vectorization_mode="async")
    if importlib.util.find_spec("envpool"):
        worlds["envpool"] = EnvpoolWorlds(CHEETAH, size, threads=threads)
    try:
        yield worlds
    finally:
        for each in worlds.values():
            each.close()


def environment_speed(env: BatchEnv, steps: int) -> Callable[[], float]:
    """World-steps per second of an environment under random actions."""
    generator = torch.Generator().manual_seed(0)
    shape = (_ACTIONS, env.spec.num_envs, env.spec.action_size)
    actions = (2 * torch.rand(shape, generator=generator) - 1).to(env.spec.device)
    return speed_of(lambda i: env.step(actions[i % _ACTIONS]), env.spec.num_envs, steps)


def _vector_env(worlds: Any, steps: int) -> Callable[[], float]:
    space = worlds.action_space
    actions = np.random.default_rng(0).uniform(-1, 1, (_ACTIONS, *space.shape)).astype(space.dtype)
    worlds.reset(seed=0)
    return speed_of(lambda i: worlds.step(actions[i % _ACTIONS]), worlds.num_envs, steps)


def bare_speed(env: SimEnv, steps: int, threads: int) -> Callable[[], float]:
    """The model of `env` under the same random targets: no observation, no reward, no reset."""
    simulation = env.simulation
    assert isinstance(simulation, MujocoSimulation)
    engine = simulation.engine
    batch = Batch(engine.model, engine.num_worlds, threads)
    batch.state[:] = engine.state_dict()["state"].numpy()
    unit = 2 * torch.rand(_ACTIONS, engine.num_worlds, env.spec.action_size) - 1
    targets = [_control(env, action) for action in unit]
    control, joints = batch.bind("ctrl"), simulation.robot.num_joints

    def step(i: int) -> None:
        control[:, :joints] = targets[i % _ACTIONS]  # a gripper stays as it is
        batch.step(nstep=engine.decimation)

    return speed_of(step, engine.num_worlds, steps)


def _control(env: SimEnv, action: torch.Tensor) -> np.ndarray:
    command: Any = env.action_map.to_command(action)
    return (command.kp * command.q + command.kd * command.dq + command.tau).double().numpy()


def speed_of(step: Callable[[int], object], size: int, steps: int) -> Callable[[], float]:
    """World-steps per second of calling `step` so often."""

    def measure() -> float:
        start = time.perf_counter()
        for i in range(steps):
            step(i)
        return steps * size / (time.perf_counter() - start)

    return measure


def in_words(threads: int) -> str:
    """Number of threads."""
    return f"{threads} thread{'s' * (threads > 1)}"
