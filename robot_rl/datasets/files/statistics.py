"""Least, largest, mean and deviation of every column, kept up as episodes come.

Counted is what can be learned from: frames beside a valid step, actions and rewards of valid steps.
Sums of squares are joined as Chan, Golub and LeVeque do ("Updating Formulae and a Pairwise
Algorithm for Computing Sample Variances", 1979, eq. 2.1).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from robot_rl.datasets.episode import Episode, Floats
from robot_rl.datasets.spec import OBSERVATION, STATES

Statistics = dict[str, dict[str, list[float]]]
"""Column -> min, max, mean, std and count, as LeRobot keeps them."""


def statistics_of(episode: Episode) -> Statistics:
    """Statistics of one episode; columns of which nothing is valid are left out."""
    used = np.append(episode.valid, False) | np.insert(episode.valid, 0, False)
    columns: dict[str, Floats] = {
        **{OBSERVATION + name: value[used] for name, value in episode.obs.items()},
        "action": episode.action[episode.valid],
        "next.reward": episode.reward[episode.valid, None],
        **{STATES + name: value[episode.valid] for name, value in episode.states.items()},
    }
    if episode.reward_terms is not None:
        columns["next.reward_terms"] = episode.reward_terms[episode.valid]
    return {
        name: _column(value.astype(np.float64)) for name, value in columns.items() if len(value)
    }


def joined(parts: Iterable[Mapping[str, Mapping[str, list[float]]]]) -> Statistics:
    """Statistics of several episodes together."""
    whole: Statistics = {}
    for part in parts:
        for name, new in part.items():
            whole[name] = _both(whole[name], new) if name in whole else dict(new)
    return whole


def as_columns(parts: list[Statistics], names: Iterable[str]) -> dict[str, list[list[float]]]:
    """As columns of a table: one row per episode, empty lists where there is nothing."""
    kinds = ("min", "max", "mean", "std", "count")
    return {
        f"stats/{name}/{kind}": [part.get(name, {}).get(kind, []) for part in parts]
        for name in names
        for kind in kinds
    }


def from_columns(table: Mapping[str, Any], rows: int) -> list[Statistics]:
    """Back from `as_columns`."""
    parts: list[Statistics] = [{} for _ in range(rows)]
    for name in table:
        if not name.startswith("stats/"):
            continue
        _, column, kind = name.split("/")
        for part, value in zip(parts, table[name], strict=True):
            if len(value):
                part.setdefault(column, {})[kind] = [float(one) for one in value]
    return parts


def _column(value: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, list[float]]:
    return {
        "min": value.min(axis=0).tolist(),
        "max": value.max(axis=0).tolist(),
        "mean": value.mean(axis=0).tolist(),
        "std": value.std(axis=0).tolist(),
        "count": [float(len(value))],
    }


def _both(one: Mapping[str, list[float]], two: Mapping[str, list[float]]) -> dict[str, list[float]]:
    m, n = one["count"][0], two["count"][0]
    mean_1, mean_2 = np.array(one["mean"]), np.array(two["mean"])
    apart = mean_2 - mean_1
    squares = m * np.square(one["std"]) + n * np.square(two["std"]) + apart**2 * m * n / (m + n)
    return {
        "min": np.minimum(one["min"], two["min"]).tolist(),
        "max": np.maximum(one["max"], two["max"]).tolist(),
        "mean": (mean_1 + apart * n / (m + n)).tolist(),
        "std": np.sqrt(squares / (m + n)).tolist(),
        "count": [m + n],
    }
