"""Looks at a policy of a robot with joints: a film of two episodes, and a plot where it walks."""

import logging
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from robot_rl.core.env import Obs
from robot_rl.core.errors import RobotRLError
from robot_rl.training.evaluation import evaluate
from sim.env import SimEnv
from sim.tasks.legs.velocity import GOAL
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
        env: Evaluation worlds.
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
    from sim.film.recording import record_worlds  # drawing is not for all
    from sim.film.worlds_film import contact_sheet, render_film
    from sim.viewing.player import Player

    length = min(env.task.episode_steps * env.spec.control_dt, SECONDS)
    player = Player(env, _Policy(act), seed=seed)
    recording = record_worlds(player, worlds=min(FILMED, env.spec.num_envs), seconds=length)
    film, sheet = (folder / "videos" / name for name in ("episodes.mp4", "episodes.png"))
    return {
        "video": str(render_film(recording, film, title=folder.name)),
        "contact sheet": str(contact_sheet(recording, sheet, title=folder.name)),
    }


def _said(what: str, job: Callable[[], dict[str, str]]) -> dict[str, str]:
    try:
        return job()
    except (RobotRLError, OSError) as error:
        _LOG.warning("no %s: %s", what, error)
        return {what: f"none: {error}"}


class _Policy:
    """A deterministic policy as a player's agent."""

    def __init__(self, act: Callable[[Obs], Tensor]) -> None:
        self._act = act

    @torch.no_grad()
    def act(self, obs: Obs) -> Tensor:
        return self._act(obs)

    def begin(self, mask: Tensor) -> None:
        pass  # nothing is remembered
