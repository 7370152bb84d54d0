"""Learning curves: one run in one PNG, or several runs grouped, with IQM and confidence bands.

Draws on `Figure` objects with the Agg canvas and never through `pyplot`, so that nothing global
changes and no screen is needed.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.ticker import EngFormatter, PercentFormatter
from numpy.typing import ArrayLike, NDArray

from robot_rl.core.errors import ConfigError
from robot_rl.training.reporting.metrics import Record
from robot_rl.training.reporting.statistics import bootstrap_interval, iqm
from robot_rl.training.storage.durable import replace_file, storage_errors

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito 2008: told apart by colour-blind readers too."""

_MOVING = "reward weights move"
_LOWEST = "success, worst changes"
_EVALUATED = ("return", "success", _LOWEST)
"""Panels with points of evaluations."""
_MOST_CHANGES = 5
"""Curves of a panel that a legend has room for."""
_INK, _GRID = "#333333", "#E4E4E4"
_GRID_POINTS = 200
_FINAL_FRACTION = 0.1


@dataclass(frozen=True, kw_only=True)
class GroupResult:
    """Final values of one group of runs in a comparison."""

    group: str
    runs: int
    """Seeds, S."""
    iqm: float
    """IQM over seeds of each run's final value."""
    low: float
    """Lower end of the 95 % bootstrap interval; equals `iqm` for one seed."""
    high: float
    """Upper end."""
    worst: float
    """Smallest final value."""
    steps: int
    """Environment steps of the longest run."""


def series(records: Sequence[Record], name: str) -> NDArray[np.float64]:
    """Finite values of a metric over a run.

    Returns:
        (3, T): environment steps, wall time [s], value; T = 0 where it was never recorded.
    """
    rows = [(r["step"], r["seconds"], r[name]) for r in records if name in r]
    table = np.asarray(rows, dtype=np.float64).reshape(-1, 3)
    return table[np.isfinite(table[:, 2])].T


def final_value(records: Sequence[Record], name: str) -> float:
    """Mean of a metric over the last tenth of the steps: a last point alone is luck."""
    steps, _, values = series(records, name)
    return float(values[steps >= steps[-1] * (1 - _FINAL_FRACTION)].mean())


def plot_run(records: Sequence[Record], path: Path, *, title: str) -> None:
    """Draw return, success, losses and temperature of one run over steps and wall time.

    Raises:
        ConfigError: There is nothing to draw.
        StorageError: The file cannot be written.
    """
    panels = _panels(records)
    if not panels:
        names = {name for record in records for name in record if "/" in name}
        known = ", ".join(sorted(names)) or "none"
        raise ConfigError(f"'{title}' has no metrics that could be drawn yet; known: {known}")
    columns = min(len(panels), 2 if len(panels) in (2, 4) else 3)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.4 * columns, 2.9 * rows + 0.7), dpi=130, layout="constrained")
    figure.suptitle(title, color=_INK, fontsize=12, fontweight="bold")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    spans = weight_moves(records)
    for axis, (label, curves) in zip(axes, panels.items(), strict=False):
        for (word, (steps, _, values)), colour in zip(curves.items(), COLOURS, strict=False):
            style = "-" if word in ("", "rollout") or label not in _EVALUATED else "o-"
            axis.plot(steps, values, style, color=colour, ms=4, lw=1.6, label=word)
        dress_axis(axis, label)
        named = bool(spans) and label == "return"  # the other panels are shaded alike
        for number, span in enumerate(spans):  # both sides are not comparable
            words = _MOVING if named and not number else None
            axis.axvspan(*span, color="#999999", alpha=0.18, lw=0, label=words)
        if len(curves) > 1 or named:
            axis.legend(frameon=False, fontsize=8, labelcolor=_INK)
    for axis in axes[:columns]:
        _wall_time_axis(axis, records)
    for axis in axes[len(panels) :]:
        axis.remove()
    save_figure(figure, path)


def plot_shares(
    shares: Mapping[str, tuple[float, float, float]], path: Path, *, title: str, label: str
) -> None:
    """Draw shares in [0, 1] as bars, from above to below.

    Args:
        shares: By name: share, and its interval's lower and upper end.
        path: Picture to write.
        title: Written above.
        label: Of the axis.

    Raises:
        StorageError: The file cannot be written.
    """
    figure = Figure(figsize=(9.0, 0.34 * len(shares) + 1.2), dpi=130, layout="constrained")
    figure.suptitle(title, color=_INK, fontsize=12, fontweight="bold")
    axis = figure.subplots()
    values = np.asarray(list(shares.values()), dtype=np.float64)  # (n, 3)
    middle = values[:, 0]
    axis.barh(list(shares), middle, color=COLOURS[0], height=0.62)
    spread = np.abs(values[:, 1:].T - middle)
    axis.errorbar(middle, list(shares), xerr=spread, fmt="none", ecolor=_INK, lw=1, capsize=2)
    axis.set_xlim(0, 1)
    axis.xaxis.set_major_formatter(PercentFormatter(1.0))
    axis.invert_yaxis()
    axis.set_xlabel(label, color=_INK, fontsize=9)
    axis.tick_params(colors=_INK, labelsize=8)
    axis.grid(axis="x", color=_GRID)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)


def plot_comparison(
    groups: Mapping[str, Sequence[Sequence[Record]]], path: Path, *, metric: str
) -> list[GroupResult]:
    """Draw one metric of several groups of runs: IQM over seeds with its 95 % interval.

    Returns:
        Final values, best group first.

    Raises:
        ConfigError: No run has recorded the metric.
        StorageError: The file cannot be written.
    """
    held = {
        name: [series(run, metric) for run in runs if series(run, metric).size]
        for name, runs in groups.items()
    }
    held = {name: runs for name, runs in held.items() if runs}
    if not held:
        known = {n for runs in groups.values() for run in runs for r in run for n in r if "/" in n}
        raise ConfigError(f"no run has recorded '{metric}'; known: {', '.join(sorted(known))}")
    figure = Figure(figsize=(7.6, 4.6), dpi=130, layout="constrained")
    axis = figure.subplots()
    for number, (name, runs) in enumerate(held.items()):
        colour = COLOURS[number % len(COLOURS)]
        style = ("-", "--", ":")[number // len(COLOURS) % 3]
        grid, curves = on_one_grid(runs)  # (T,), (S, T)
        label = f"{name}  ({len(runs)} {'seed' if len(runs) == 1 else 'seeds'})"
        axis.plot(grid, iqm(curves), style, color=colour, lw=2, label=label)
        if len(runs) > 1:
            axis.fill_between(grid, *bootstrap_interval(curves), color=colour, alpha=0.18, lw=0)
    dress_axis(axis, metric)
    axis.set_title("IQM over seeds, 95 % bootstrap interval", color=_INK, fontsize=10, loc="left")
    axis.legend(frameon=False, fontsize=9, labelcolor=_INK)
    save_figure(figure, path)
    return comparison_table(groups, metric=metric)


def comparison_table(
    groups: Mapping[str, Sequence[Sequence[Record]]], *, metric: str
) -> list[GroupResult]:
    """Final values of groups of runs, largest IQM first; runs without the metric do not count."""
    results = []
    for name, runs in groups.items():
        with_metric = [run for run in runs if series(run, metric).size]
        if not with_metric:
            continue
        finals = np.array([final_value(run, metric) for run in with_metric])
        low, high = bootstrap_interval(finals)
        results.append(
            GroupResult(
                group=name,
                runs=len(finals),
                iqm=float(iqm(finals)),
                low=float(low),
                high=float(high),
                worst=float(finals.min()),
                steps=int(max(series(run, metric)[0, -1] for run in with_metric)),
            )
        )
    return sorted(results, key=lambda result: -result.iqm)


def _panels(records: Sequence[Record]) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Recorded metrics as curves by legend word, by panel."""
    names = sorted({name for record in records for name in record})
    dormant = [name for name in names if name.startswith("train/dormant")]
    losses = [name for name in names if name.startswith("train/") and name.endswith("_loss")][:3]
    wanted = {
        "return": {
            "rollout": "rollout/return",
            "eval": "eval/return",
            "worst": "eval/worst_return",
        },
        "success": {
            "rollout": "rollout/success",
            "eval": "eval/success",
            "worst": "eval/worst_success",
        },
        _LOWEST: _lowest(records, names),
        **{name.removeprefix("train/").replace("_", " "): {"": name} for name in losses},
        "validation loss": {"": "eval/validation_loss"},
        "temperature": {"": "train/temperature"},
        "dormant units": {name.partition("_")[2] or "all": name for name in dormant},
        "share of rows of an expert": {
            "largest": "train/expert_use_max",
            "smallest": "train/expert_use_min",
        },
        "gate entropy [nat]": {"": "train/gate_entropy"},
        "steps per second": {"": "time/steps_per_second"},
    }
    panels = {}
    for label, group in wanted.items():
        curves = {word: series(records, name) for word, name in group.items()}
        panels[label] = {word: curve for word, curve in curves.items() if curve.size}
    return {label: curves for label, curves in panels.items() if curves}


def _lowest(records: Sequence[Record], names: Sequence[str]) -> dict[str, str]:
    """Metrics of the changes under which fewest episodes succeeded lately, by change."""
    found = [name for name in names if name.startswith("eval/") and name.endswith("/success")]
    changes = [name for name in found if name != "eval/success" and series(records, name).size]
    lowest = sorted(changes, key=lambda name: final_value(records, name))[:_MOST_CHANGES]
    return {name.split("/")[1].replace("_", " ")[:30]: name for name in lowest}


def on_one_grid(runs: Sequence[NDArray[np.float64]]) -> tuple[NDArray, NDArray]:
    """Runs (3, T_i) interpolated to steps that all of them have reached: (T,), (S, T)."""
    first = max(run[0, 0] for run in runs)
    last = max(first, min(run[0, -1] for run in runs))
    grid = np.linspace(first, last, _GRID_POINTS)
    return grid, np.stack([np.interp(grid, run[0], run[2]) for run in runs])


def dress_axis(axis: Axes, label: str, *, over: str = "environment steps") -> None:
    """Give a panel the look of all our curves."""
    axis.set_xlabel(over, color=_INK, fontsize=9)
    axis.set_ylabel(label, color=_INK, fontsize=9)
    if "steps" in over:  # millions of them; not fractions of a minute
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color("#999999")
    axis.tick_params(colors=_INK, labelsize=8, length=3)
    axis.grid(color=_GRID, lw=0.8)
    axis.set_axisbelow(True)
    if "success" in label:
        axis.set_ylim(-0.02, 1.02)
        axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    elif label == "temperature":
        axis.set_yscale("log")
        axis.tick_params(which="minor", colors=_INK, labelsize=8, length=2)
    elif label == "steps per second":
        axis.yaxis.set_major_formatter(EngFormatter(sep=""))
        axis.set_ylim(bottom=0)


def weight_moves(records: Sequence[Record]) -> list[tuple[float, float]]:
    """Intervals of steps in which a curriculum moved the reward weights, joined where they meet."""
    spans: list[tuple[float, float]] = []
    step, change = 0.0, 0.0
    for record in records:
        before, start = change, step
        step, change = record["step"], record.get("rollout/reward_weight_change", 0.0)
        if change == before:
            continue
        joined = bool(spans) and spans[-1][1] == start
        spans = [*spans[:-1], (spans[-1][0], step)] if joined else [*spans, (start, step)]
    return spans


def _wall_time_axis(axis: Axes, records: Sequence[Record]) -> None:
    """Second axis above: when each step was reached."""
    steps = np.array([r["step"] for r in records], dtype=np.float64)
    seconds = np.maximum.accumulate([r["seconds"] for r in records])
    if len(steps) < 2 or seconds[-1] <= seconds[0]:
        return
    units = ((3600, "h"), (60, "min"), (1, "s"))
    scale, unit = next((s, u) for s, u in units if s == 1 or seconds[-1] > 3 * s)
    # Strictly growing, as an axis must be inverted; extended to both sides of the data.
    times = seconds / scale + np.arange(len(steps)) * 1e-9
    slope = (times[-1] - times[0]) / (steps[-1] - steps[0])
    ends = np.array([steps[0] - 1e9, *steps, steps[-1] + 1e9])
    times = np.array([times[0] - 1e9 * slope, *times, times[-1] + 1e9 * slope])

    def to_time(step: ArrayLike) -> NDArray[np.float64]:
        return np.interp(np.asarray(step, dtype=np.float64), ends, times)

    def to_step(time: ArrayLike) -> NDArray[np.float64]:
        return np.interp(np.asarray(time, dtype=np.float64), times, ends)

    above = axis.secondary_xaxis("top", functions=(to_time, to_step))
    above.set_xlabel(f"wall time [{unit}]", color=_INK, fontsize=8)
    above.tick_params(colors=_INK, labelsize=7, length=3)
    above.spines["top"].set_visible(False)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, whole or not at all.

    Raises:
        StorageError: The file cannot be written.
    """
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    with storage_errors("write the picture", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, buffer.getvalue())


def read_figure(path: Path) -> NDArray[np.float32]:
    """Pixels of a PNG, (height, width, 3 or 4), in [0, 1]."""
    return np.asarray(imread(path), dtype=np.float32)
