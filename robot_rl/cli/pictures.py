"""Plots and videos of what a policy does: of flights, and of robots with joints.

What cannot be drawn is said, not raised: a training that has ended must not be lost for it. Needs
matplotlib: import it where something is drawn.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from configs.schema import RunConfig
from robot_rl.cli.components import make_sim_env
from robot_rl.cli.viewing import policy_agent, write_video
from robot_rl.core.env import Obs
from robot_rl.core.errors import RobotRLError
from robot_rl.training.evaluation import evaluate
from sim.env import SimEnv
from sim.rendering.flight_recording import FlightRecorder
from sim.rendering.player import Player
from sim.rendering.plots import plot_flight, plot_walk
from sim.rendering.video import render_video
from sim.rendering.walk_recording import WalkRecorder
from sim.tasks.flights.hover import HoverTask
from sim.tasks.flights.tracking import TrackingTask
from sim.tasks.legs.velocity import GOAL

_LOG = logging.getLogger(__name__)
Act = Callable[[Obs], Tensor]
FLIGHTS = 4
"""Flights shown; of fewer envs, all."""
FILMED, SECONDS = 2, 6.0
"""Envs in the video of a robot with joints, and its longest time [s]: drawing without a GPU takes
minutes otherwise."""


def draw_policy(
    folder: Path, config: RunConfig, env: SimEnv, act: Act, *, seed: int, video: bool = True
) -> dict[str, str]:
    """Play a few evaluation episodes and draw them.

    Args:
        folder: Where `plots` and `videos` go.
        config: The run.
        env: Its evaluation envs. Flights are seen in them; robots with joints, whose envs take
            their time, in a few of their own.
        act: Policy, groups (N, ...) -> (N, A).
        seed: Chooses starts, goals and physical parameters.
        video: Also write a video; takes ten seconds to a minute.

    Returns:
        What was drawn -> where it is, or why it is not.
    """
    robot = env.spec.robot
    if robot is not None and robot.rotors:
        return report_flight(folder, env, act, seed=seed, video=video)
    few = make_sim_env(config, num_envs=FILMED, device=env.spec.device, seed=seed, evaluation=True)
    with contextlib.closing(few):
        return _report_joints(folder, few, act, seed=seed, video=video)


def report_flight(
    folder: Path, env: SimEnv, act: Act, *, seed: int, video: bool = True
) -> dict[str, str]:
    """Fly, and write `plots/flight.png` and `videos/flight.mp4`; arguments as of `draw_policy`."""
    assert env.spec.robot is not None
    recorder = FlightRecorder(env, min(FLIGHTS, env.spec.num_envs))
    try:
        evaluate(env, recorder.watch(act), seed=seed, on_step=recorder.on_step)
        recording = recorder.recording()
    except (RobotRLError, OSError) as error:
        _LOG.warning("no flight was recorded: %s", error)
        return {"flight plot": f"none: {error}"}
    flown = f"{int(recording.success.sum())} of {recording.flights} flights succeeded"
    title = f"{env.spec.robot.name}: {flown}"
    near, window = _success_rule(env)
    found = _attempt("flight plot", lambda: {"flight plot": plot_flight(
        recording, folder / "plots" / "flight.png", title=title, near=near, window=window
    )})  # fmt: skip
    if video:
        found |= _attempt("video", lambda: {"video": render_video(
            recording, folder / "videos" / "flight.mp4", title=title, near=near
        )})  # fmt: skip
    return found


def _success_rule(env: SimEnv) -> tuple[float, float | None]:
    """Distance that counts as reached [m], and the time at the end that is judged [s]."""
    task = env.task
    if isinstance(task, HoverTask):
        return task.config.success_distance, task.config.success_window
    return (task.config.success_distance if isinstance(task, TrackingTask) else 0.1), None


def _report_joints(
    folder: Path, env: SimEnv, act: Act, *, seed: int, video: bool
) -> dict[str, str]:
    """Write `videos/episodes.mp4`, its contact sheet, and `plots/walk.png` of a walk."""
    found: dict[str, str] = {}
    robot = env.spec.robot

    def plot() -> dict[str, Path]:
        recorder = WalkRecorder(env, walks=1)
        evaluate(env, act, seed=seed, on_step=recorder.on_step)
        title = f"{folder.name}: velocity and feet of one evaluation walk"
        path = plot_walk(recorder.recording(), folder / "plots" / "walk.png", title=title)
        return {"walk plot": path}

    def render() -> dict[str, str]:
        player = Player(env, policy_agent(act), seed=seed)
        path = folder / "videos" / "episodes.mp4"
        return write_video(player, path, title=folder.name, num_envs=FILMED, longest=SECONDS)

    if robot is not None and robot.feet and GOAL in env.task.goal:
        found |= _attempt("walk plot", plot)
    return found | _attempt("video", render) if video else found


def _attempt(what: str, draw: Callable[[], Mapping[str, Path | str]]) -> dict[str, str]:
    try:
        return {name: str(path) for name, path in draw().items()}
    except (RobotRLError, OSError) as error:
        _LOG.warning("no %s: %s", what, error)
        return {what: f"none: {error}"}
