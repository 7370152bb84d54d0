"""The files that a LeRobot reader looks into: info, tasks, statistics, and a table of episodes.

Names and meaning are those of LeRobotDataset v3.0 (huggingface/lerobot, `datasets/`). All of them
follow from the manifest and the statistics; none is needed to read the episodes back.

Statistics count what can be learned from: frames beside a valid step, actions and rewards of valid
steps. Sums of squares are joined as Chan, Golub and LeVeque do ("Updating Formulae and a Pairwise
Algorithm for Computing Sample Variances", 1979, eq. 2.1).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from robot_rl.datasets.episode import Episode, Floats
from robot_rl.datasets.files.parquet import encode
from robot_rl.datasets.spec import IMAGES, OBSERVATION, STATES, DatasetSpec

VERSION = "v3.0"
INFO, TASKS, STATS = "meta/info.json", "meta/tasks.parquet", "meta/stats.json"
CHUNK_FILES = 1000
"""Files in a folder `chunk-*`."""
DATA_MEGABYTES = 64
"""Files are closed at about this size where many episodes are written at once."""
_DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"

Statistics = dict[str, dict[str, list[float]]]
"""Column -> min, max, mean, std and count, as LeRobot keeps them."""


def data_path(number: int) -> str:
    """Path of the frames of an addition."""
    return _DATA_PATH.format(chunk_index=number // CHUNK_FILES, file_index=number % CHUNK_FILES)


def episodes_path(number: int) -> str:
    """Path of the table of episodes of an addition."""
    return _EPISODES_PATH.format(chunk_index=number // CHUNK_FILES, file_index=number % CHUNK_FILES)


def video_path(camera: str, number: int) -> str:
    """Path of the images of a camera in an addition."""
    chunk, file = divmod(number, CHUNK_FILES)
    return _VIDEO_PATH.format(video_key=IMAGES + camera, chunk_index=chunk, file_index=file)


def derived_files(
    spec: DatasetSpec, *, episodes: int, frames: int, tasks: Sequence[str], statistics: Statistics
) -> dict[str, bytes]:
    """Path -> content of the files that change with every addition; `frames` counts T + 1."""
    return {
        INFO: _json(_info(spec, episodes, frames, len(tasks))),
        TASKS: encode([{"task_index": np.arange(len(tasks)), "task": list(tasks) or _NO_TASKS}],
                      index="task"),
        STATS: _json(statistics),
    }  # fmt: skip


def episodes_table(
    spec: DatasetSpec,
    *,
    file_number: int,
    first_episode: int,
    first_frame: int,
    lengths: Sequence[int],
    tasks: Sequence[str],
    sources: Sequence[str],
    digests: Sequence[str],
    statistics: list[Statistics],
) -> bytes:
    """The table of episodes that came together, behind so many others with so many frames."""
    count = len(lengths)
    ends = first_frame + np.cumsum(np.array(lengths) + 1)
    chunk, file = (np.full(count, n) for n in divmod(file_number, CHUNK_FILES))
    columns = {
        "episode_index": np.arange(first_episode, first_episode + count),
        "tasks": [[task] for task in tasks],
        "length": np.array(lengths) + 1,
        "data/chunk_index": chunk,
        "data/file_index": file,
        "dataset_from_index": ends - np.array(lengths) - 1,
        "dataset_to_index": ends,
        "meta/episodes/chunk_index": chunk,
        "meta/episodes/file_index": file,
        "robot_rl/source": list(sources),
        "robot_rl/sha256": list(digests),
    }
    until = np.cumsum(np.array(lengths) + 1) * spec.control_dt
    since = until - (np.array(lengths) + 1) * spec.control_dt
    for camera in spec.images:
        key = f"videos/{IMAGES}{camera}"
        columns |= {
            f"{key}/chunk_index": chunk, f"{key}/file_index": file,
            f"{key}/from_timestamp": since, f"{key}/to_timestamp": until,
        }  # fmt: skip
    counted = [name for name, column in spec.columns.items() if column.dtype == "float32"]
    return encode([columns | as_columns(statistics, [n for n in counted if n != "timestamp"])])


def features(spec: DatasetSpec) -> dict[str, dict[str, Any]]:
    """Features, as LeRobot calls them: type, shape and names of every column."""
    told: dict[str, dict[str, Any]] = {
        name: {
            "dtype": column.dtype,
            "shape": [column.width],
            "names": list(column.names) or None,
        }
        for name, column in spec.columns.items()
    }
    return told | {IMAGES + camera: _video(spec, shape) for camera, shape in spec.images.items()}


def _video(spec: DatasetSpec, shape: Sequence[int]) -> dict[str, Any]:
    """Of a camera, as LeRobot tells it."""
    return {
        "dtype": "video",
        "shape": [*shape[:2], 3],
        "names": ["height", "width", "channels"],
        "info": {
            "video.height": shape[0], "video.width": shape[1], "video.channels": 3,
            "video.codec": "h264", "video.pix_fmt": "gbrp", "video.is_depth_map": False,
            "video.fps": spec.rate, "has_audio": False,
        },
    }  # fmt: skip


def _info(spec: DatasetSpec, episodes: int, frames: int, tasks: int) -> dict[str, Any]:
    return {
        "codebase_version": VERSION,
        "robot_type": None if spec.robot is None else spec.robot.get("name"),
        "total_episodes": episodes,
        "total_frames": frames,
        "total_tasks": tasks,
        "chunks_size": CHUNK_FILES,
        "data_files_size_in_mb": DATA_MEGABYTES,
        "video_files_size_in_mb": DATA_MEGABYTES,
        "fps": spec.rate,
        "splits": {"train": f"0:{episodes}"},
        "data_path": _DATA_PATH,
        "video_path": _VIDEO_PATH if spec.images else None,
        "features": features(spec),
    }


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"


_NO_TASKS = np.array([], dtype=np.str_)


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
