"""Envs with cameras for the tests of sim: the small tasks of control, a few pixels."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from configs.builders import SimEnvConfig, build_env
from configs.schema import component_of
from sim.cameras.config import AppearanceRandomization, ImageRenderer
from sim.env import SimEnv
from sim.robots.joint_robot import PhysicsEngine
from sim.robots.joint_simulation import MujocoSimulation
from tests.compositions import composed
from tests.fakes import CPU
from tests.sim.stepping import endless, made

STEPS = 12
"""Length of an episode [control steps]."""
SIDE = "image/side"


def pixel_envs(
    num_envs: int, *, task: str = "cartpole_swingup", seed: int = 0, device: torch.device = CPU,
    renderer: ImageRenderer = ImageRenderer.warp, engine: PhysicsEngine = PhysicsEngine.batch,
    cameras: tuple[str, ...] = ("side",), steps: int = STEPS, decimation: int = 4,
    appearance: AppearanceRandomization | None = None, evaluation: bool = True, **camera: Any,
) -> SimEnv:  # fmt: skip
    """Short episodes of a task of control with a camera of 16 by 16 pixels.

    Args:
        camera: Fields of the camera that differ.
    """
    config = composed([f"task={task}"]).config
    size = {"width": 16, "height": 16}
    side = replace(config.robot.cameras["side"], **(size | camera))
    robot = replace(
        config.robot, engine=engine, cameras={"side": side}, physics_threads=1,
        decimation=decimation,
    )  # fmt: skip
    randomization = replace(
        config.task.randomization, appearance=appearance or AppearanceRandomization()
    )
    period = robot.physics_dt * robot.decimation
    task_config = replace(
        config.task, episode_length=steps * period, success_window=2 * period,
        randomization=randomization,
    )  # fmt: skip
    return build_env(
        task_config, robot, make_task=component_of(config.task).build,
        make_simulation=MujocoSimulation, num_envs=num_envs, device=device, seed=seed,
        evaluation=evaluation, config=SimEnvConfig(cameras=list(cameras), renderer=renderer),
    )  # fmt: skip


def with_camera(**changes: Any) -> Callable[[int, int, torch.device], SimEnv]:
    """A maker for `EnvCase.make`."""
    return made(pixel_envs, **changes)


def endless_with_camera(**changes: Any) -> Callable[[int, torch.device], SimEnv]:
    """A maker for `EnvCase.endless`."""
    return endless(pixel_envs, **changes)
