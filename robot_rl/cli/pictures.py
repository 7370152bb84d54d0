"""Plots and videos of what a policy does: of an evaluation, of flights, of robots with joints.

What cannot be drawn is said, not raised: a training that has ended must not be lost for it. Needs
matplotlib: import it where something is drawn.
"""

import contextlib
import io
import logging
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from configs.schema import RunConfig
from robot_rl.cli.components import make_sim_env
from robot_rl.cli.viewing import draw_recording, policy_agent, record_episode
from robot_rl.core.env import Obs
from robot_rl.core.errors import RobotRLError
from robot_rl.training.evaluation import Evaluation, evaluate
from robot_rl.training.reporting.console import format_percent
from robot_rl.training.reporting.statistics import wilson_interval
from robot_rl.training.storage.durable import replace_file, storage_errors
from sim.env import SimEnv
from sim.rendering.flight_recording import FlightRecorder
from sim.rendering.player import Player
from sim.rendering.plots import plot_flight, plot_walk
from sim.rendering.video import render_video
from sim.rendering.walk_recording import WalkRecorder
from sim.tasks.flights.hover import HoverTask
from sim.tasks.flights.landing import LandingTask
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
    folder: Path,
    config: RunConfig,
    env: SimEnv,
    act: Act,
    *,
    seed: int,
    video: bool = True,
    meanwhile: Callable[[], None] | None = None,
) -> dict[str, str]:
    """Play a few evaluation episodes and draw them.

    Args:
        folder: Where `plots` and `videos` go.
        config: The run.
        env: Its evaluation envs. Flights are seen in them; robots with joints, whose envs take
            their time, in a few of their own.
        act: Policy, groups (N, ...) -> (N, A).
        seed: Chooses starts, goals and physical parameters.
        video: Also write a video; takes five seconds to a minute.
        meanwhile: Called once, in this thread, as soon as the policy is no longer asked: other
            processes draw the video then. Not called if the policy cannot be played.

    Returns:
        What was drawn -> where it is, or why it is not.
    """
    robot = env.spec.robot
    if robot is not None and robot.rotors:
        return report_flight(folder, env, act, seed=seed, video=video, meanwhile=meanwhile)
    few = make_sim_env(config, num_envs=FILMED, device=env.spec.device, seed=seed, evaluation=True)
    with contextlib.closing(few):
        return _report_joints(folder, few, act, seed=seed, video=video, meanwhile=meanwhile)


def report_flight(
    folder: Path,
    env: SimEnv,
    act: Act,
    *,
    seed: int,
    video: bool = True,
    meanwhile: Callable[[], None] | None = None,
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
    flown = f"{int(recording.success.sum())} of {recording.tiles} flights succeeded"
    title = f"{env.spec.robot.name}: {flown}"
    near, window = _success_rule(env)

    def plot() -> dict[str, Path]:
        path = folder / "plots" / "flight.png"
        return {"flight plot": plot_flight(recording, path, title=title, near=near, window=window)}

    def render() -> dict[str, Path]:
        path = folder / "videos" / "flight.mp4"
        return {"video": render_video(recording, path, title=title, near=near)}

    def others() -> dict[str, str]:
        found = _attempt("flight plot", plot)
        if meanwhile is not None:
            meanwhile()
        return found

    return _beside("video", render, others) if video else others()


def _success_rule(env: SimEnv) -> tuple[float, float | None]:
    """Distance that counts as reached [m], and the time at the end that is judged [s]."""
    task = env.task
    if isinstance(task, HoverTask):
        return task.config.success_distance, task.config.success_window
    told = isinstance(task, TrackingTask | LandingTask)
    return (task.config.success_distance if told else 0.1), None


def _report_joints(
    folder: Path,
    env: SimEnv,
    act: Act,
    *,
    seed: int,
    video: bool,
    meanwhile: Callable[[], None] | None,
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

    def record() -> dict[str, str]:
        player = Player(env, policy_agent(act), seed=seed)
        recording = record_episode(player, num_envs=FILMED, longest=SECONDS)
        path = folder / "videos" / "episodes.mp4"
        return _beside("video", lambda: draw_recording(recording, path, title=folder.name), others)

    def others() -> dict[str, str]:
        if meanwhile is not None:
            meanwhile()
        return {}

    if robot is not None and robot.feet and GOAL in env.task.goal:
        found |= _attempt("walk plot", plot)
    return found | (_attempt("video", record) if video else others())


def _beside(
    what: str,
    draw: Callable[[], Mapping[str, Path | str]],
    others: Callable[[], Mapping[str, str]],
) -> dict[str, str]:
    """Draw in other processes, which a thread waits for, while this one does other things."""
    with ThreadPoolExecutor(1, "drawing") as thread:
        drawn = thread.submit(_attempt, what, draw)
        return {**others(), **drawn.result()}


def _attempt(what: str, draw: Callable[[], Mapping[str, Path | str]]) -> dict[str, str]:
    try:
        return {name: str(path) for name, path in draw().items()}
    except (RobotRLError, OSError) as error:
        _LOG.warning("no %s: %s", what, error)
        return {what: f"none: {error}"}


_INK, _BLUE, _ORANGE = "#333333", "#0072B2", "#D55E00"
_BINS = 8


def plot_evaluation(
    path: Path, name: str, result: Evaluation, tilt: Tensor | None, *, judged: bool
) -> None:
    """Draw the distribution of every metric beside success by the lean at the start.

    Args:
        path: Picture to write.
        name: Of the run.
        result: What came of the episodes.
        tilt: Lean at the start, (N,), [rad]; None draws the distribution of the returns instead.
        judged: The envs say what a success is.

    Raises:
        StorageError: The file cannot be written.
    """
    metrics = result.metrics
    count = 1 + len(metrics)
    columns = min(3, count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(4.2 * columns, 3.0 * rows + 0.6), dpi=130, layout="constrained")
    rate, episodes = result.success_rate, result.success.numel()
    told = f"{format_percent(rate)} of {episodes} episodes succeed"
    figure.suptitle(
        f"{name}: " + (told if judged else f"{episodes} episodes"),
        color=_INK,
        fontsize=12,
        fontweight="bold",
    )
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    if tilt is not None:
        _success_by_tilt(axes[0], np.degrees(tilt.cpu().numpy()), result)
    else:
        _distribution(axes[0], "return", result.returns.cpu().numpy())
    complete = result.complete
    for axis, (metric, values) in zip(axes[1:], metrics.items(), strict=False):
        _distribution(axis, metric, values[complete].cpu().numpy())
    for axis in axes[count:]:
        axis.remove()
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    with storage_errors("write the plot", path):
        replace_file(path, buffer.getvalue())


def _success_by_tilt(axis: Any, tilt: np.ndarray, result: Evaluation) -> None:
    success = result.success.cpu().numpy()
    edges = np.linspace(0, max(1.0, math.ceil(tilt.max())), _BINS + 1)
    place = np.clip(np.digitize(tilt, edges) - 1, 0, _BINS - 1)
    for i in np.unique(place):
        won, count = int(success[place == i].sum()), int((place == i).sum())
        low, high = wilson_interval(won, count)
        middle, width = (edges[i] + edges[i + 1]) / 2, edges[1] * 0.85
        axis.bar(middle, won / count, width=width, color=_BLUE, alpha=0.85)
        axis.plot([middle, middle], [low, high], color=_INK, lw=1)
        axis.plot(middle, won / count, "o", color=_INK, ms=3, clip_on=False)  # seen at 0 too
    axis.set_ylim(0, 1.02)
    _dress(axis, "lean at the start [deg]", "success, 95 % interval")


def _distribution(axis: Any, name: str, values: np.ndarray) -> None:
    """Share of episodes below each value: reads off any percentile."""
    values = np.sort(values[np.isfinite(values)])
    if values.size:
        axis.step(values, np.arange(1, values.size + 1) / values.size, where="post", color=_BLUE)
        p95 = float(np.quantile(values, 0.95))
        axis.axvline(p95, color=_ORANGE, lw=1, ls="--")
        axis.set_title(f"95 % below {p95:.3g}", color=_ORANGE, fontsize=9, loc="right")
        low, high = min(0.0, float(values[0])), float(np.quantile(values, 0.99))
        axis.set_xlim(low, max(high * 1.1, low + 1e-9))
    axis.set_ylim(0, 1.02)
    _dress(axis, name.replace("_", " "), "share of episodes below")


def _dress(axis: Any, x: str, y: str) -> None:
    axis.set_xlabel(x, color=_INK, fontsize=9)
    axis.set_ylabel(y, color=_INK, fontsize=9)
    axis.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=_INK, labelsize=8, length=3)
    axis.grid(color="#E4E4E4", lw=0.8)
    axis.set_axisbelow(True)
