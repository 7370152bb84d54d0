"""From the trainings of the race beside UniLab to curves: steps, times and errors."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.core.errors import ConfigError
from robot_rl.training.reporting.metrics import Record, read_metrics
from robot_rl.training.runs.provenance import config_hash, short_commit
from robot_rl.training.runs.run_folder import RunFolder, find_runs
from scripts.baselines.unilab_side import ENTRANTS
from scripts.races.flights_and_walks import VELOCITY_TRACK

OURS = "ours"
"""Name of our entrant; the others are `ENTRANTS`."""
OUT = "outputs/unilab"
"""Folder of all runs, in commands that a page shows."""
TIMES, EVALUATIONS = "times.jsonl", "evaluations.jsonl"
"""In the folder of an entrant: processor time and load by the clock; errors by checkpoint."""
_MODEL = "/assets/robots/go2/scene_flat.xml"


@dataclass(frozen=True, kw_only=True)
class Point:
    """An evaluation."""

    steps: int
    """Transitions of the training so far."""
    seconds: float
    """Wall time of learning, without evaluations [s]."""
    cpu_seconds: float
    """Processor time of the same [s]."""
    error: float
    """Mean error of the horizontal velocity, an episode with a fall counted with 1 [m/s]."""
    fallen: float
    """Share of episodes with a fall."""


@dataclass(frozen=True, kw_only=True)
class EntrantCurve:
    """One training."""

    command: list[str]
    origin: dict[str, Any] = field(default_factory=dict)
    """Of our run: its provenance; of UniLab's: its versions and processor."""
    points: list[Point]


def first_reached(points: Sequence[Point], goal: float) -> Point | None:
    """First evaluation whose error is at most the goal."""
    return next((point for point in points if point.error <= goal), None)


def read_curves(folder: Path) -> dict[str, EntrantCurve]:
    """Everybody who trained into the folder.

    Raises:
        ConfigError: Nobody did.
    """
    found = {name: curve for name, curve in _curves(folder) if curve.points}
    if not found:
        raise ConfigError(f"nobody was evaluated in {folder}; see --help")
    return found


def learning_time(records: Sequence[Record], cpu: Sequence[tuple[float, float]]) -> np.ndarray:
    """Wall and processor time of learning at every record of a run of ours, (2, T) [s].

    Each interval counts with the share of it that steps of the worlds and updates took: the rest
    is evaluations, checkpoints and records.

    Args:
        records: The run's.
        cpu: Processor time of its process by the run's wall time [s].
    """
    times = np.array([0.0, *(record["seconds"] for record in records)])
    spent = np.interp(times, *np.array([(0.0, 0.0), *cpu]).T)
    parts = ("time/collect_fraction", "time/learn_fraction")
    shares = np.array([sum(record.get(name, 0.0) for name in parts) for record in records])
    return np.cumsum([shares * np.diff(times), shares * np.diff(spent)], axis=1)


def iteration_of(path: Path) -> int:
    """Number of a checkpoint of UniLab's."""
    return int(path.stem.partition("_")[2])


def _curves(folder: Path) -> Iterator[tuple[str, EntrantCurve]]:
    for run in find_runs(folder / OURS):
        yield OURS, _our_curve(RunFolder.open(run), folder / OURS / TIMES)
    for name in ENTRANTS:
        if (folder / name / EVALUATIONS).is_file():
            yield name, _their_curve(folder / name)


def _our_curve(run: RunFolder, times: Path) -> EntrantCurve:
    records = read_metrics(run.metrics_path)
    begun = run.metrics_path.stat().st_mtime - records[-1]["seconds"]
    cpu = [(line["time"] - begun, line["cpu"]) for line in lines_of(times)]
    seconds, spent = learning_time(records, [one for one in cpu if one[0] > 0])
    points = [
        Point(
            steps=int(record["step"]), seconds=float(seconds[i]), cpu_seconds=float(spent[i]),
            error=VELOCITY_TRACK.value(record), fallen=record["eval/terminated"],
        )
        for i, record in enumerate(records)
        if "eval/terminated" in record
    ]  # fmt: skip
    provenance = run.provenance()
    kept = ("started", "seed", "config_sha256", "python", "packages", "device")
    origin = {
        "git": short_commit(provenance["git"]), **{key: provenance[key] for key in kept},
        **_load(times),
    }  # fmt: skip
    command = ["robot-rl", *shlex.split(provenance["command"])[1:]]
    return EntrantCurve(command=_present(command, times.parent), origin=origin, points=points)


def _their_curve(folder: Path) -> EntrantCurve:
    document = json.loads((folder / "run_config.json").read_text())
    config = document["config"]
    times = np.array([(line["time"], line["cpu"]) for line in lines_of(folder / TIMES)]).T
    events = min(folder.glob("events.out.tfevents.*"))
    begun = float(events.name.split(".")[3])  # [s]: the learning's; the envs are made before
    before = float(np.interp(begun, *times))
    points = []
    for line in lines_of(folder / EVALUATIONS):
        path = folder / line["file"]
        saved = path.stat().st_mtime
        points.append(
            Point(
                steps=_steps(config, iteration_of(path)), seconds=saved - begun,
                cpu_seconds=float(np.interp(saved, *times)) - before,
                error=line["error"], fallen=line["fallen"],
            )
        )  # fmt: skip
    run, settings = document["run"], {**config, "env": {**config["env"], "scene": {}}}
    settings["training"] = {**config["training"], "log_dir": ""}
    origin = {
        "started": run["start_time_utc"], "seed": run["effective_seed"],
        "config_sha256": config_hash(settings), "device": run["hardware"]["chip"],
        **json.loads((folder / "versions.json").read_text()), **_load(folder / TIMES),
    }  # fmt: skip
    command = _present(json.loads((folder / "command.json").read_text()), folder)
    points.sort(key=lambda point: point.steps)
    return EntrantCurve(command=command, origin=origin, points=points)


def _load(times: Path) -> dict[str, float]:
    """Mean load average of the machine during a training."""
    return {"load_average": float(np.mean([line["load"] for line in lines_of(times)]))}


def _steps(config: Mapping[str, Any], iteration: int) -> int:
    """Transitions that a checkpoint has learned from; PPO counts iterations from 0."""
    settings = config["algo"]
    if "num_steps_per_env" in settings:
        return (iteration + 1) * settings["num_steps_per_env"] * settings["num_envs"]
    return (iteration + settings["learning_starts"]) * settings["num_envs"]


def _present(words: Sequence[str], folder: Path) -> list[str]:
    """A command without the folders of one machine."""
    told = [word for word in words if not word.startswith(("training.log_dir=", "runs="))]
    model = "env.scene.model_file="
    told = [word if not word.startswith(model) else f"{model}<unilab>{_MODEL}" for word in told]
    kind = "runs" if words[0].endswith("robot-rl") else "training.log_dir"
    return [*told, f"{kind}={OUT}/{folder.name}"]


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]
