"""Episodes over time: `data.py plot`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from robot_rl.datasets.episode import Episode, Flags
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.training.storage.durable import storage_errors

_MOST_LABELLED = 8
"""Of more lines than this, none is named."""


def draw(folder: Path, numbers: Sequence[int], out: Path) -> Path:
    """Draw episodes side by side: a row for every group, the actions and the rewards.

    Args:
        folder: Of the data set.
        numbers: Of the episodes.
        out: Picture to write.
    """
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    dataset = EpisodeDataset(folder, images=False)
    spec, told = dataset.spec, list(dataset.episodes(numbers))
    rows = [*spec.groups, "action", "reward"]
    figure, axes = plt.subplots(
        len(rows), len(told), figsize=(5 * len(told), 2.2 * len(rows)), squeeze=False,
        sharex="col", sharey="row", layout="constrained",
    )  # fmt: skip
    for column, (number, one) in enumerate(zip(numbers, told, strict=True)):
        axes[0, column].set_title(f"episode {number}: {_outcome(one)}")
        axes[-1, column].set_xlabel("time [s]")
        for row, name in enumerate(rows):
            lines, names = _lines(one, name, spec.reward_names)
            time = np.arange(len(lines)) * spec.control_dt
            drawn = axes[row, column].plot(time, lines, linewidth=0.8)
            axes[row, 0].set_ylabel(name)
            if column == 0 and 1 < len(names) <= _MOST_LABELLED:
                axes[row, column].legend(drawn, names, fontsize="x-small")
            _shade(axes[row, column], one.intervened, spec.control_dt)
    with storage_errors("draw", out):
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=110)
    plt.close(figure)
    return out


def _shade(axis: Any, intervened: Flags, control_dt: float) -> None:
    """Mark the steps in which a person chose the action."""
    edges = np.repeat(np.arange(len(intervened) + 1) * control_dt, 2)[1:-1]  # both of each step
    axis.fill_between(
        edges, 0, 1, where=np.repeat(intervened, 2), alpha=0.15, color="tab:red", linewidth=0,
        transform=axis.get_xaxis_transform(),
    )  # fmt: skip


def _outcome(one: Episode) -> str:
    end = "terminated" if one.terminated[-1] else "truncated"
    return f"{end}, success" if one.success[-1] else end


def _lines(one: Episode, name: str, terms: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Values (rows, lines) and the names of the lines."""
    if name in one.obs:
        values = one.obs[name]
    elif name == "action":
        values = one.action
    elif one.reward_terms is not None:
        return np.column_stack([one.reward, one.reward_terms]), ["reward", *terms]
    else:
        return one.reward[:, None], ["reward"]
    return values, [str(i) for i in range(values.shape[1])]
