"""Runs at a glance: one row per run for lists, keys to group them by, and which may be deleted."""

import math
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import time
from typing import Any

from robot_rl.core.errors import ConfigError, RobotRLError, StorageError
from robot_rl.link.record_log import holds_records
from robot_rl.training.reporting.metrics import Record, read_metrics
from robot_rl.training.runs.run_folder import RunFolder, RunState, RunStatus
from robot_rl.training.storage.checkpoint import CheckpointStore, read_manifest
from robot_rl.training.storage.durable import is_used, storage_errors


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One row of a list of runs."""

    path: Path
    status: RunStatus
    step: int
    """Environment steps of the last record or status, whichever is later."""
    success: float
    """Last evaluated success rate, else the last one of the rollouts; NaN if there is none."""
    episode_return: float
    """Last evaluated return, else the last one of the rollouts; NaN if there is none."""
    best: float
    """Score of the best checkpoint; NaN if none has one."""
    checkpoints: int
    """Checkpoints that it could be resumed from."""
    has_experience: bool
    """It holds what robots have sent, or were about to send."""
    age: timedelta
    """Since anything was last written."""
    num_bytes: int
    """Of all its files."""


def summarise(path: Path) -> RunSummary:
    """Read what a list shows of the run at `path`."""
    run = RunFolder.open(path)
    status = run.status()
    records = read_metrics(run.metrics_path)
    store = CheckpointStore(run.checkpoints, read_only=True)
    files = _files(path)
    return RunSummary(
        path=path,
        status=status,
        step=max(status.step, int(records[-1]["step"]) if records else 0),
        success=_last(records, "eval/success", "rollout/success"),
        episode_return=_last(records, "eval/return", "rollout/return"),
        best=_best_score(store),
        checkpoints=len(store.steps()),
        has_experience=any(map(holds_records, _logs(path))),
        age=timedelta(seconds=max(0.0, time() - max(file.st_mtime for file in files))),
        num_bytes=sum(file.st_size for file in files),
    )


def group_of(run: RunFolder, key: str) -> str:
    """Group of a run when runs are compared.

    Args:
        key: "task", "robot", "learner", "seed", "name" (all of these but the seed), "run" (each
            by itself) or a dotted path into the configuration, such as "learner.gamma".

    Raises:
        ConfigError: The run has no such key.
    """
    if key == "run":
        return run.path.name
    named = run.provenance().get("run", {})
    if key == "name" and named:
        return " ".join(str(named[part]) for part in ("task", "robot", "learner"))
    if key in named:
        return str(named[key])
    value: Any = run.config()
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            raise ConfigError(
                f"the run {run.path} has no '{key}' to group by; known: name, run, "
                f"{', '.join(dict.fromkeys([*named, *run.config()]))}"
            )
        value = value[part]
    return str(value)


def removable(
    runs: Sequence[RunSummary],
    *,
    keep: int | None = None,
    failed: bool = False,
    older_than: timedelta | None = None,
) -> dict[Path, str]:
    """Runs that may be deleted, each with the reason.

    Never one that is being written or used, and never one that holds experience of robots.

    Args:
        keep: Keep only this many of the newest; None sets no number.
        failed: Also those that failed, though they could be resumed.
        older_than: Also those in which nothing was written for that long.
    """
    reasons = {}
    by_age = sorted(runs, key=lambda run: run.age)
    for place, run in enumerate(by_age):
        state = run.status.state
        if state is RunState.RUNNING or run.has_experience:
            continue
        if run.checkpoints == 0 and state is not RunState.FINISHED:  # guests save in their own way
            reasons[run.path] = f"{state.value}, without a checkpoint"
        elif failed and state is RunState.FAILED:
            reasons[run.path] = f"failed: {run.status.reason}"
        elif older_than is not None and run.age > older_than:
            reasons[run.path] = f"not touched for {run.age.days} days"
        elif keep is not None and place >= keep:
            reasons[run.path] = f"not among the newest {keep}"
    return reasons


def delete_run(path: Path) -> None:
    """Delete a run and everything in it.

    Raises:
        StorageError: A process is writing or using it, or the disk refused.
    """
    with RunFolder.open(path, write=True), storage_errors("delete the run", path):
        if is_used(path):
            raise StorageError(f"the run {path} is used by robot-rl learn; end that first")
        shutil.rmtree(path)


def _logs(path: Path) -> list[Path]:
    """Folders with the steps of robots: the learner's, and those of spools."""
    return [path / "experience", *path.glob("robots/*/spool/*")]


def _files(path: Path) -> list[os.stat_result]:
    """Of regular files; those that vanish meanwhile, as in a run that is training, are left out."""
    found = []
    for file in path.rglob("*"):
        with suppress(FileNotFoundError):
            found.append(file.lstat())
    return [entry for entry in found if stat.S_ISREG(entry.st_mode)]


def _last(records: Sequence[Record], *names: str) -> float:
    for name in names:
        for record in reversed(records):
            if name in record:
                return record[name]
    return math.nan


def _best_score(store: CheckpointStore) -> float:
    best = store.best()
    if best is None:
        return math.nan
    try:
        return float(read_manifest(best)["score"])
    except RobotRLError:
        return math.nan
