"""Results of every seed, as dots: for proofs whose trainings are not followed on their way."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from robot_rl.training.reporting.curves import COLOURS, dress_axis, save_figure
from robot_rl.training.reporting.statistics import bootstrap_interval, iqm
from scripts.proofs.pages.record import ProofRecord
from scripts.proofs.proving.plan import Column, Group, Proof


def plot_outcomes(proof: Proof, record: ProofRecord, path: Path) -> None:
    """Draw each column: a dot for a seed, a line for the IQM and its 95 % interval.

    Args:
        proof: What was asked.
        record: What was measured.
        path: PNG to write.

    Raises:
        StorageError: The file cannot be written.
    """
    width, height = 3.9 * len(proof.columns), 0.5 * len(proof.groups) + 1.2
    figure = Figure(figsize=(width, height), dpi=130, layout="constrained")
    axes = figure.subplots(1, len(proof.columns), squeeze=False, sharey=True)[0]
    for axis, column in zip(axes, proof.columns, strict=True):
        for row, group in enumerate(proof.groups):
            _draw_row(axis, row, _values(column, group, record))
        unit = f" [{column.unit}]" if column.unit not in ("", "%") else ""
        dress_axis(axis, "", over=f"{column.title}{unit}")
        if column.unit == "%":
            axis.set_xlim(-0.02, 1.02)
            axis.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes[0].set_yticks(range(len(proof.groups)), [group.name for group in proof.groups])
    axes[0].invert_yaxis()
    save_figure(figure, path)


def _values(column: Column, group: Group, record: ProofRecord) -> list[float]:
    trials = (seed.trials[group.trials[0]] for seed in record.groups[group.name].seeds)
    return [column.value(one) for one in trials]


def _draw_row(axis: Axes, row: int, values: Sequence[float]) -> None:
    finite = np.array([value for value in values if np.isfinite(value)])
    if not len(finite):
        return
    colour = COLOURS[row % len(COLOURS)]
    axis.plot(finite, np.full(len(finite), row + 0.14), "o", color=colour, ms=4, alpha=0.6, mew=0)
    if len(finite) > 1:
        axis.plot(bootstrap_interval(finite), (row - 0.14,) * 2, "-", color=colour, lw=2)
    axis.plot(iqm(finite), row - 0.14, "D", color=colour, ms=6)
