"""A trial in one picture: how large the errors were, and from which starts it succeeded."""

import io
import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from robot_rl.cli.evaluation.trial_record import Trial
from robot_rl.training.reporting.console import format_percent
from robot_rl.training.reporting.statistics import wilson_interval
from robot_rl.training.storage.durable import replace_file, storage_errors

_INK, _BLUE, _ORANGE = "#333333", "#0072B2", "#D55E00"
_BINS = 8


def plot_trial(trial: Trial, path: Path) -> None:
    """Draw the distribution of every metric beside success by the lean at the start.

    Where nothing leans (a fixed base, a foreign environment) it is the distribution of the returns.

    Raises:
        StorageError: The file cannot be written.
    """
    metrics = trial.result.metrics
    count = 1 + len(metrics)
    columns = min(3, count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(4.2 * columns, 3.0 * rows + 0.6), dpi=130, layout="constrained")
    rate, episodes = trial.result.success_rate, trial.result.success.numel()
    told = f"{format_percent(rate)} of {episodes} episodes succeed"
    figure.suptitle(
        f"{trial.run.path.name}: "
        + (told if trial.env.spec.judges_success else f"{episodes} episodes"),
        color=_INK,
        fontsize=12,
        fontweight="bold",
    )
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    if trial.tilt is not None:
        _success_by_tilt(axes[0], np.degrees(trial.tilt.cpu().numpy()), trial)
    else:
        _distribution(axes[0], "return", trial.result.returns.cpu().numpy())
    complete = ~trial.result.terminated
    for axis, (name, values) in zip(axes[1:], metrics.items(), strict=False):
        _distribution(axis, name, values[complete].cpu().numpy())
    for axis in axes[count:]:
        axis.remove()
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    with storage_errors("write the plot", path):
        replace_file(path, buffer.getvalue())


def _success_by_tilt(axis: Axes, tilt: np.ndarray, trial: Trial) -> None:
    success = trial.result.success.cpu().numpy()
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


def _distribution(axis: Axes, name: str, values: np.ndarray) -> None:
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


def _dress(axis: Axes, x: str, y: str) -> None:
    axis.set_xlabel(x, color=_INK, fontsize=9)
    axis.set_ylabel(y, color=_INK, fontsize=9)
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=_INK, labelsize=8, length=3)
    axis.grid(color="#E4E4E4", lw=0.8)
    axis.set_axisbelow(True)
