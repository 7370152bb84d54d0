"""Speed of the cameras' renderers, beside Gymnasium's renderer in the same scenes."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from configs.compose import compose
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import RobotRLError
from scripts.bench.timing import Section, interleave
from sim.cameras.cameras import make_renderer
from sim.cameras.config import ImageRenderer
from sim.cameras.renderer import Renderer
from sim.env import SimEnv

SCENES = {"cartpole_swingup": "side", "lift": "front", "peg": "wrist"}
"""Tasks and the camera that looks at each."""
SIZES = (64, 128)
"""Width and height of the pictures [pixels]."""
WORLDS = 16
"""Worlds of each contender."""
_CPU = torch.device("cpu")


def measure_vision(*, rounds: int, quick: bool) -> Iterator[Section]:
    """A table for each scene and size.

    Args:
        rounds: Turns of each contender.
        quick: Tiny sizes.
    """
    os.environ.setdefault("MUJOCO_GL", "egl")  # of Gymnasium's renderer
    count, turns = (2, 1) if quick else (WORLDS, 4)
    for task, camera in SCENES.items():
        for size in (16,) if quick else SIZES:
            yield _measure(task, camera, size, rounds=rounds, count=count, turns=turns)


def _measure(
    task: str, camera: str, size: int, *, rounds: int, count: int, turns: int
) -> Section:  # fmt: skip
    contenders: dict[str, Callable[[], float]] = {}
    for kind in ImageRenderer:
        try:
            contenders[kind.value] = _ours(task, camera, size, kind, count, turns)
        except RobotRLError as error:
            print(f"{kind.value} is left out: {error}")
    try:
        contenders["gymnasium"] = _gymnasium(task, camera, size, count * turns)
    except Exception as error:  # noqa: BLE001 - GL libraries raise errors of many types
        print(f"gymnasium is left out: {type(error).__name__}: {error}")
    title = f"{task}, camera {camera}, {size} x {size}, {count} worlds"
    return interleave(title, "frames/s", contenders, rounds=rounds)


def _env(task: str, camera: str, size: int, count: int) -> tuple[SimEnv, Any]:
    """Worlds in the middle of an episode, and their camera's config."""
    from configs.builders import build_env, build_mujoco_simulation
    from configs.schema import component_of

    config = compose([f"task={task}"]).config
    one = replace(config.robot.cameras[camera], width=size, height=size)
    robot = replace(config.robot, cameras={camera: one}, physics_threads=1)
    env = build_env(
        config.task, robot, make_task=component_of(config.task).build,
        make_simulation=lambda *parts, **named: build_mujoco_simulation(
            *parts, **named, cameras={camera: one}
        ),
        num_envs=count, device=_CPU, seed=0, evaluation=True,
    )  # fmt: skip
    env.reset(seed=0)
    for _ in range(5):
        env.step(torch.rand(count, env.spec.action_size) * 2 - 1)
    return env, one


def _ours(
    task: str, camera: str, size: int, kind: ImageRenderer, count: int, turns: int
) -> Callable[[], float]:
    env, config = _env(task, camera, size, count)
    simulation: Any = env.simulation
    renderer: Renderer = make_renderer(kind, simulation.engine, {camera: config}, _CPU)
    rows = EnvSelection(torch.ones(count, dtype=torch.bool))

    def measure() -> float:
        began = time.perf_counter()
        for _ in range(turns):
            renderer.draw(rows)
        return turns * count / (time.perf_counter() - began)

    return measure


def _gymnasium(task: str, camera: str, size: int, frames: int) -> Callable[[], float]:
    """Gymnasium's off-screen viewer, as its MuJoCo environments use it, of one world."""
    import mujoco
    from gymnasium.envs.mujoco.mujoco_rendering import OffScreenViewer

    from sim.cameras.config import camera_name

    env, _ = _env(task, camera, size, 1)
    engine: Any = env.simulation  # its model and state
    model = engine.engine.model
    data = mujoco.MjData(model)
    engine.engine.copy_world(0, model, data)
    viewer = OffScreenViewer(model, data, size, size)
    number = model.camera(camera_name(camera)).id

    def measure() -> float:
        began = time.perf_counter()
        for _ in range(frames):
            viewer.render("rgb_array", camera_id=number)
        return frames / (time.perf_counter() - began)

    return measure
