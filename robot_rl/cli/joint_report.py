"""Looks at a policy of a robot with joints: a film of two episodes, and a plot where it walks."""

import logging
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from robot_rl.cli.viewing.agents import PolicyAgent
from robot_rl.cli.viewing.filming import film
from robot_rl.core.env import Obs
from robot_rl.core.errors import RobotRLError
from robot_rl.training.evaluation import evaluate
from sim.env import SimEnv
from sim.tasks.legs.velocity import GOAL
from sim.viewing.player import Player
from sim.walks.plots import plot_walk
from sim.walks.recording import WalkRecorder

_LOG = logging.getLogger(__name__)
FILMED, SECONDS = 2, 6.0
"""Worlds in the film, and its longest time [s]: drawing without a GPU takes minutes otherwise."""


def report_joints(
    folder: Path, env: SimEnv, act: Callable[[Obs], Tensor], *, seed: int, video: bool = True
) -> dict[str, str]:
    """Play, and write `videos/episodes.mp4`, its contact sheet, and `plots/walk.png` of a walk.

    What cannot be drawn is said, not raised: a training that has ended must not be lost for it.

    Args:
        folder: The run's folder.
        env: Worlds at evaluation starts, to be used for nothing else; `FILMED` are enough.
        act: Policy, groups (N, ...) -> (N, A).
        seed: Chooses starts, goals and physical parameters.
        video: Also film; takes about a minute.

    Returns:
        What was drawn -> where it is, or why it is not.
    """
    found: dict[str, str] = {}
    robot = env.spec.robot
    if robot is not None and robot.feet and GOAL in env.task.goal:
        found |= _said("walk plot", lambda: {"walk plot": str(_plot(folder, env, act, seed))})
    if video:
        found |= _said("video", lambda: _film(folder, env, act, seed))
    return found


def _plot(folder: Path, env: SimEnv, act: Callable[[Obs], Tensor], seed: int) -> Path:
    recorder = WalkRecorder(env, walks=1)
    evaluate(env, act, seed=seed, on_step=recorder.on_step)
    title = f"{folder.name}: velocity and feet of one evaluation walk"
    return plot_walk(recorder.recording(), folder / "plots" / "walk.png", title=title)


def _film(folder: Path, env: SimEnv, act: Callable[[Obs], Tensor], seed: int) -> dict[str, str]:
    player = Player(env, PolicyAgent(act), seed=seed)
    path = folder / "videos" / "episodes.mp4"
    return film(player, path, title=folder.name, worlds=FILMED, longest=SECONDS)


def _said(what: str, job: Callable[[], dict[str, str]]) -> dict[str, str]:
    try:
        return job()
    except (RobotRLError, OSError) as error:
        _LOG.warning("no %s: %s", what, error)
        return {what: f"none: {error}"}
