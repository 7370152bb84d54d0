"""The picture of a race: a row per track, the value over world-steps and over wall time."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from robot_rl.training.reporting.curves import COLOURS, dress_axis, on_one_grid, save_figure
from robot_rl.training.reporting.statistics import iqm
from scripts.races.plan import Race, Track
from scripts.races.record import EntrantResult, RaceRecord, RaceSeed

_SIDES = {"environment steps": 0, "wall time [min]": 1}
"""Horizontal axes, and the column of their values in `_curve`."""


def draw_race(race: Race, record: RaceRecord, path: Path) -> None:
    """Draw every seed as a thin line and the IQM over seeds as a thick one.

    Raises:
        StorageError: The file cannot be written.
    """
    figure = Figure(figsize=(10.4, 3.5 * len(record.tracks)), dpi=120, layout="constrained")
    panels = figure.subplots(len(record.tracks), len(_SIDES), squeeze=False)
    colours = {one.name: COLOURS[i % len(COLOURS)] for i, one in enumerate(race.entrants)}
    for row, (name, entrants) in zip(panels, record.tracks.items(), strict=True):
        track = race.track(name)
        for axis, (over, column) in zip(row, _SIDES.items(), strict=True):
            for entrant, result in entrants.items():
                _draw_entrant(axis, result, column, colours[entrant], entrant)
            _dress(axis, track, over)
        row[0].set_title(name, fontsize=10, loc="left")
        row[0].legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def _draw_entrant(axis: Axes, result: EntrantResult, column: int, colour: str, label: str) -> None:
    curves = [_curve(seed)[[column, 1, 2]] for seed in result.seeds]  # (3, T) each
    for curve in curves:
        axis.plot(curve[0], curve[2], color=colour, lw=0.8, alpha=0.35)
    grid, values = on_one_grid(curves)
    axis.plot(grid, iqm(values), color=colour, lw=2, label=_label(label, result.seeds))


def _curve(seed: RaceSeed) -> np.ndarray:
    """(3, T): world-steps, wall time [min], value."""
    minutes: ArrayLike = np.asarray(seed.times) / 60
    return np.array([seed.steps, minutes, seed.values], dtype=np.float64)


def _label(name: str, seeds: Sequence[RaceSeed]) -> str:
    return f"{name} ({len(seeds)} {'seed' if len(seeds) == 1 else 'seeds'})"


def _dress(axis: Axes, track: Track, over: str) -> None:
    dress_axis(axis, track.what, over=over)
    if np.isfinite(track.goal):
        axis.axhline(track.goal, color="#777777", lw=0.8, ls="--")
