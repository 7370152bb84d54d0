"""Looks at a policy that walks: one evaluation walk as a plot in the run's folder."""

import logging
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from robot_rl.core.env import Obs
from robot_rl.core.errors import RobotRLError
from robot_rl.training.evaluation import evaluate
from sim.env import SimEnv
from sim.walks.plots import plot_walk
from sim.walks.recording import WalkRecorder

_LOG = logging.getLogger(__name__)


def report_walk(
    folder: Path, env: SimEnv, act: Callable[[Obs], Tensor], *, seed: int
) -> dict[str, str]:
    """Walk, and write `plots/walk.png`; what cannot be drawn is said, not raised.

    Args:
        folder: The run's folder.
        env: Evaluation worlds of a walking task.
        act: Policy, groups (N, ...) -> (N, A).
        seed: Chooses starts, goals and physical parameters.

    Returns:
        "walk plot": where it is, or why it is not.
    """
    try:
        recorder = WalkRecorder(env, walks=1)
        evaluate(env, act, seed=seed, on_step=recorder.on_step)
        title = f"{folder.name}: velocity and feet of one evaluation walk"
        path = plot_walk(recorder.recording(), folder / "plots" / "walk.png", title=title)
        return {"walk plot": str(path)}
    except (RobotRLError, OSError) as error:
        _LOG.warning("no walk was drawn: %s", error)
        return {"walk plot": f"none: {error}"}
