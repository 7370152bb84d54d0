"""Looks at a policy: a few evaluation flights as a plot and a film in the run's folder."""

import logging
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from robot_rl.core.env import Obs
from robot_rl.core.errors import RobotRLError
from robot_rl.training.evaluation import evaluate
from sim.env import SimEnv
from sim.flights.plots import plot_flight
from sim.flights.recording import FlightRecorder, FlightRecording
from sim.flights.video import render_flight
from sim.tasks.flights.hover import HoverTask
from sim.tasks.flights.tracking import TrackingTask

_LOG = logging.getLogger(__name__)
FLIGHTS = 4
"""Flights shown; of fewer worlds, all."""


def report_flight(
    folder: Path,
    env: SimEnv,
    act: Callable[[Obs], Tensor],
    *,
    seed: int,
    video: bool = True,
) -> dict[str, str]:
    """Fly, and write `plots/flight.png` and `videos/flight.mp4`; robots without rotors do not.

    What cannot be drawn is said, not raised: a training that has ended must not be lost for it.

    Args:
        folder: The run's folder.
        env: Evaluation worlds of a flight task; a few are enough.
        act: Policy, groups (N, ...) -> (N, A).
        seed: Chooses starts and physical parameters.
        video: Also film; takes about ten seconds.

    Returns:
        "flight plot" and, with `video`, "video": where it is, or why it is not; nothing for a robot
        that does not fly.
    """
    if env.spec.robot is None or not env.spec.robot.rotors:
        return {}
    try:
        recording = _fly(env, act, seed)
    except (RobotRLError, OSError) as error:
        _LOG.warning("no flight was recorded: %s", error)
        return {"flight plot": f"none: {error}"}
    flown = f"{int(recording.success.sum())} of {recording.flights} flights succeeded"
    title = f"{env.spec.robot.name}: {flown}"
    near, window = _success_rule(env)
    jobs: dict[str, Callable[[], Path]] = {
        "flight plot": lambda: plot_flight(
            recording, folder / "plots" / "flight.png", title=title, near=near, window=window
        )
    }
    if video:
        jobs["video"] = lambda: render_flight(
            recording, folder / "videos" / "flight.mp4", title=title, near=near
        )
    return {name: _say(name, job) for name, job in jobs.items()}


def _fly(env: SimEnv, act: Callable[[Obs], Tensor], seed: int) -> FlightRecording:
    recorder = FlightRecorder(env, min(FLIGHTS, env.spec.num_envs))
    evaluate(env, recorder.watch(act), seed=seed, on_step=recorder.on_step)
    return recorder.recording()


def _success_rule(env: SimEnv) -> tuple[float, float | None]:
    """Distance that counts as reached [m], and the time at the end that is judged [s]."""
    task = env.task
    if isinstance(task, HoverTask):
        return task.config.success_distance, task.config.success_window
    if isinstance(task, TrackingTask):
        return task.config.success_distance, None
    return 0.1, None


def _say(name: str, job: Callable[[], Path]) -> str:
    try:
        return str(job())
    except (RobotRLError, OSError) as error:
        _LOG.warning("no %s: %s", name, error)
        return f"none: {error}"
