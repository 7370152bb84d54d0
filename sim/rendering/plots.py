"""Plots of recorded flights and walks as PNG files.

Figures are drawn with the Agg canvas and never through `pyplot`: nothing global changes and no
screen is needed.
"""

import io
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from sim.rendering.files import replacing
from sim.rendering.flight_recording import FLIGHT_COLOURS, FlightRecording
from sim.rendering.walk_recording import WalkRecording

INK, GRID = "#333333", "#E4E4E4"
"""Of words and of the lines behind curves."""


def titled_figure(title: str, *, size: tuple[float, float], dpi: int) -> Figure:
    """A figure with a line above its panels, width and height in inches."""
    figure = Figure(figsize=size, dpi=dpi, layout="constrained")
    figure.suptitle(title, color=INK, fontsize=12, fontweight="bold")
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a PNG, replacing an older one only when the new one is complete.

    Raises:
        StorageError: The file cannot be written.
    """
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    with replacing(path) as unfinished:
        unfinished.write_bytes(buffer.getvalue())


_GOOD, _BAD = "#009E73", "#C0392B"
_ROTOR_COLOURS = ("#D55E00", "#0072B2", "#56B4E9", "#E69F00")


def plot_flight(
    recording: FlightRecording,
    path: Path,
    *,
    title: str,
    near: float = 0.1,
    window: float | None = None,
) -> Path:
    """Draw all flights over time, and the rotors of the first.

    Args:
        near: Distance from the goal that counts as reached [m].
        window: Time at the end over which success is judged [s]; None marks none.

    Raises:
        StorageError: The file cannot be written.
    """
    figure = titled_figure(title, size=(11.0, 6.6), dpi=130)
    (error, path_axes), (tilt, rotors) = figure.subplots(
        2, 2, gridspec_kw={"width_ratios": (1.5, 1.0)}
    )
    _plot_error(error, recording, near, window)
    _plot_path(path_axes, recording, near)
    _plot_tilt(tilt, recording)
    _plot_rotors(rotors, recording)
    for axes in (error, path_axes, tilt, rotors):
        _dress(axes)
    save_figure(figure, path)
    return path


def _plot_error(axes: Axes, recording: FlightRecording, near: float, window: float | None) -> None:
    time, distance = recording.time, recording.distance
    end = float(time[-1])
    axes.axhspan(0, 100 * near, color=_GOOD, alpha=0.10, lw=0)
    axes.text(end, 100 * near, "reached ", color=_GOOD, fontsize=8, ha="right", va="bottom")
    if window is not None and window < end:
        axes.axvline(end - window, color=INK, lw=0.8, ls=(0, (4, 3)), alpha=0.6)
        axes.text(end - window, 0.98, " judged from here", transform=axes.get_xaxis_transform(),
                  color=INK, fontsize=8, va="top", alpha=0.8)  # fmt: skip
    for flight, colour in _flights(recording):
        flown = int(recording.length[flight])
        saved = bool(recording.success[flight])
        axes.plot(
            time[:flown], 100 * distance[flight, :flown], color=colour, lw=1.7,
            ls="-" if saved else "--", label=f"flight {flight + 1}" + ("" if saved else ", failed"),
        )  # fmt: skip
        if not saved:
            axes.plot(
                time[flown - 1], 100 * distance[flight, flown - 1], "X", color=_BAD, ms=8, mec="w"
            )
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, end)
    axes.set_ylabel("distance from the goal [cm]")
    axes.legend(
        frameon=False, fontsize=8, labelcolor=INK, ncols=6, loc="lower left",
        bbox_to_anchor=(-0.02, 0.99), borderaxespad=0.2,
    )  # fmt: skip


def _plot_path(axes: Axes, recording: FlightRecording, near: float) -> None:
    """Seen from above."""
    if recording.goal_moves:
        for flight in range(recording.tiles):
            goal = recording.goal_w[flight, : recording.length[flight]]
            axes.plot(goal[:, 0], goal[:, 1], color=INK, lw=1.0, ls=(0, (4, 3)), alpha=0.5)
    else:
        goal = recording.goal_w[0, 0]
        axes.add_patch(Circle((goal[0], goal[1]), near, color=_GOOD, alpha=0.12, lw=0))
        axes.plot(goal[0], goal[1], "+", color=_GOOD, ms=9, mew=1.6)
    for flight, colour in _flights(recording):
        flown = recording.position_w[flight, : recording.length[flight]]
        axes.plot(flown[:, 0], flown[:, 1], color=colour, lw=1.6)
        axes.plot(flown[0, 0], flown[0, 1], "o", color=colour, ms=6, mec="w")
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel("x [m]")
    axes.set_ylabel("y [m]")
    axes.set_title("path from above, dots where it starts", fontsize=9, color=INK, loc="left")


def _plot_tilt(axes: Axes, recording: FlightRecording) -> None:
    for flight, colour in _flights(recording):
        flown = int(recording.length[flight])
        tilt = np.rad2deg(recording.tilt[flight, :flown])
        axes.plot(recording.time[:flown], tilt, color=colour, lw=1.6)
    axes.set_xlim(0, float(recording.time[-1]))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("time [s]")
    axes.set_ylabel("tilt [deg]")


def _plot_rotors(axes: Axes, recording: FlightRecording) -> None:
    """Commands thin, true speeds thick: the space between them is the rotors' lag."""
    flown = int(recording.length[0])
    time = recording.time[:flown]
    for rotor, colour in enumerate(_ROTOR_COLOURS):
        command = 50 * (recording.action[0, :flown, rotor] + 1)
        speed = 100 * recording.rotor_speed[0, :flown, rotor]
        axes.plot(time, command, color=colour, lw=0.6, alpha=0.45)
        axes.plot(time, speed, color=colour, lw=1.5, label=f"m{rotor + 1}")
    axes.set_xlim(0, float(recording.time[-1]))
    axes.set_ylim(-2, 102)
    axes.set_xlabel("time [s]")
    axes.set_ylabel("rotor speed [% of the largest]")
    axes.set_title("rotors of flight 1: speed, and command (thin)", fontsize=9, color=INK,
                   loc="left")  # fmt: skip
    axes.legend(frameon=False, fontsize=8, labelcolor=INK, ncols=4, loc="lower right")


def _flights(recording: FlightRecording) -> list[tuple[int, str]]:
    """Each flight and its colour."""
    return [(k, FLIGHT_COLOURS[k % len(FLIGHT_COLOURS)]) for k in range(recording.tiles)]


def _dress(axes: Axes) -> None:
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    axes.xaxis.label.set_fontsize(9)
    axes.yaxis.label.set_fontsize(9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")
    axes.tick_params(colors=INK, labelsize=8, length=3)
    axes.grid(color=GRID, lw=0.8)
    axes.set_axisbelow(True)


_BLUE, _ORANGE = "#0072B2", "#D55E00"
_ROWS = (("forward", "m/s"), ("to the left", "m/s"), ("turning", "rad/s"))


def plot_walk(
    recording: WalkRecording, path: Path, *, title: str, walk: int = 0, touch: float = 5.0
) -> Path:
    """Draw one walk over time.

    Args:
        walk: Which of the K walks.
        touch: Normal force from which a foot counts as standing [N].

    Raises:
        StorageError: The file cannot be written.
    """
    figure = titled_figure(title, size=(10.0, 7.2), dpi=120)
    axes = figure.subplots(4, 1, sharex=True, gridspec_kw={"height_ratios": [1, 1, 1, 1.1]})
    for i, (name, unit) in enumerate(_ROWS):
        axes[i].plot(recording.time, recording.velocity[walk, :, i], color=_BLUE, lw=1.2)
        axes[i].plot(recording.time, recording.goal[walk, :, i], color=_ORANGE, lw=1.4, ls="--")
        axes[i].set_ylabel(f"{name} [{unit}]")
    axes[0].legend(["walked", "asked for"], loc="upper right", fontsize=8, frameon=False, ncols=2)
    _draw_feet(axes[3], recording, walk, touch)
    axes[3].set_xlabel("time [s]")
    for one in axes:
        _dress(one)
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
    axes.set_ylabel("standing", labelpad=18)
