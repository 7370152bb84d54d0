"""A walk in one picture: velocities against goals, and the feet that stood."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from sim.film.figures import GRID, INK, save_figure, titled_figure
from sim.walks.recording import WalkRecording

_BLUE, _ORANGE = "#0072B2", "#D55E00"
_ROWS = (("forward", "m/s"), ("to the left", "m/s"), ("turning", "rad/s"))


def plot_walk(
    recording: WalkRecording, path: Path, *, title: str, walk: int = 0, touch: float = 5.0
) -> Path:
    """Draw one walk over time.

    Args:
        recording: What happened.
        path: PNG to write.
        title: Above the panels.
        walk: Which of the K walks.
        touch: Normal force from which a foot counts as standing [N].

    Returns:
        `path`.

    Raises:
        StorageError: The file cannot be written.
    """
    figure = titled_figure(title, size=(10.0, 7.2), dpi=120)
    axes = figure.subplots(4, 1, sharex=True, gridspec_kw={"height_ratios": [1, 1, 1, 1.1]})
    for i, (name, unit) in enumerate(_ROWS):
        axes[i].plot(recording.time, recording.velocity[walk, :, i], color=_BLUE, lw=1.2)
        axes[i].plot(recording.time, recording.goal[walk, :, i], color=_ORANGE, lw=1.4, ls="--")
        axes[i].set_ylabel(f"{name} [{unit}]", color=INK, fontsize=9)
    axes[0].legend(["walked", "asked for"], loc="upper right", fontsize=8, frameon=False, ncols=2)
    _draw_feet(axes[3], recording, walk, touch)
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.tick_params(colors=INK, labelsize=8, length=3)
        one.grid(color=GRID, lw=0.8, axis="x")
        one.set_axisbelow(True)
    axes[3].set_xlabel("time [s]", color=INK, fontsize=9)
    save_figure(figure, path)
    return path


def _draw_feet(axes: Axes, recording: WalkRecording, walk: int, touch: float) -> None:
    """One bar per foot and stand."""
    force = np.nan_to_num(recording.foot_force[walk])
    count = len(recording.feet)
    for i, foot in enumerate(recording.feet):
        stands = np.concatenate([[0], (force[:, i] > touch).astype(np.int8), [0]])
        begins, ends = np.flatnonzero(np.diff(stands) == 1), np.flatnonzero(np.diff(stands) == -1)
        bars = [(b * recording.control_dt, (e - b) * recording.control_dt)
                for b, e in zip(begins, ends, strict=True)]  # fmt: skip
        axes.broken_barh(bars, (count - 1 - i - 0.35, 0.7), color=_BLUE if i % 2 else INK)
        axes.text(-0.01, count - 1 - i, foot, transform=axes.get_yaxis_transform(), ha="right",
                  va="center", fontsize=9, color=INK)  # fmt: skip
    axes.set_ylim(-0.6, count - 0.4)
    axes.set_yticks([])
    axes.set_ylabel("standing", color=INK, fontsize=9, labelpad=18)
