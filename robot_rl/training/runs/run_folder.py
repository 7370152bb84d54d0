"""The folder of one run: who is writing it, how it stands, and where everything lies.

    runs/2026-01-31_14-05-09_hover_crazyflie_sac_s1/
      config.yaml       resolved configuration      metrics.jsonl   every interval's numbers
      provenance.json   code, machine, command      log.txt         messages
      status.json       running, finished, failed   checkpoints/    replay/  plots/  videos/
      bundle/           the exported policy         tensorboard/    wandb/   (mirrors of metrics)
      profile/          where the time went (only with profile=true)
      learn.json        options of robot-rl learn   experience/     robots/  weights/  (its own)

Only one process may write a run; a file lock (`flock`), which the kernel releases however the
process ends, says whether one does. That is also how a killed run is told from a running one.
Processes beside a learner, such as those of a robot, mark the run as in use by a second one.
"""

import difflib
import json
import logging
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import IO, Any

import yaml

from robot_rl.core.errors import ConfigError, StorageError
from robot_rl.training.runs.provenance import plain
from robot_rl.training.storage.durable import (
    is_locked,
    is_used,
    make_folder,
    mark_used,
    replace_file,
    replace_json,
    storage_errors,
    sync_folder,
    take_lock,
)

LEARN_OPTIONS = "learn.json"
"""File in the folder of a run of `robot-rl learn`: options that it was begun with."""
_DATE = re.compile(r"^[\d-]+_[\d-]+_")


class RunState(Enum):
    """State of a run."""

    RUNNING = "running"
    """A process is writing it, or robots use it."""
    FINISHED = "finished"
    """It came to its planned end."""
    FAILED = "failed"
    """It ended by an error; `reason` says which."""
    INTERRUPTED = "interrupted"
    """It was stopped, or its process is gone without a word (killed, power lost)."""


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """Contents of status.json."""

    state: RunState
    reason: str = ""
    """Why it failed or was interrupted, one sentence."""
    step: int = 0
    """Environment steps taken."""
    total_steps: int = 0
    """Environment steps planned; 0 if unknown."""
    seconds: float = 0.0
    """Wall time spent training, all sessions together [s]."""
    pid: int = 0
    """Process that wrote this."""
    hostname: str = ""
    """Machine it ran on."""
    updated: str = ""
    """Time of writing, ISO 8601 with time zone."""


@dataclass(frozen=True, kw_only=True)
class RunName:
    """Parts of a run's name; recorded in provenance.json, so that runs can be grouped."""

    task: str
    robot: str
    learner: str
    seed: int

    def __str__(self) -> str:
        parts = (self.task, self.robot, self.learner, f"s{self.seed}")
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", "_".join(parts))


class RunFolder:
    """One run on disk. `create` and `open(..., write=True)` hold its lock until `close`.

    Its attributes are the paths in the picture above; `bundle` is missing until it is exported.
    """

    def __init__(self, path: Path, lock: IO[str] | None) -> None:
        """Use `create` or `open`."""
        self._lock = lock
        self.path = path
        self.config_path = path / "config.yaml"
        self.metrics_path = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.replay = path / "replay"
        self.plots = path / "plots"
        self.videos = path / "videos"
        self.bundle = path / "bundle"

    @classmethod
    def create(
        cls,
        root: Path | str,
        name: RunName,
        config: Mapping[str, Any],
        provenance: Mapping[str, Any],
    ) -> "RunFolder":
        """Make a new run below `root` and lock it; its folder is named by the date and `name`.

        Raises:
            StorageError: `root` cannot be written.
        """
        root = Path(root)
        stem = f"{datetime.now():%Y-%m-%d_%H-%M-%S}_{name}"
        with storage_errors("make a run in", root.absolute()):
            make_folder(root)
            path = _make_unique(root, stem)
            run = cls(path, _lock(path))
            for folder in (run.checkpoints, run.replay, run.plots, run.videos):
                folder.mkdir()
            origin = {"run": asdict(name), **plain(provenance)}
            replace_json(path / "provenance.json", origin)
            run.write_config(config)  # last: what has one is a run, and can be gone on with
            sync_folder(root)
        run.mark(RunState.RUNNING)
        return run

    @classmethod
    def open(cls, path: Path | str, *, write: bool = False) -> "RunFolder":
        """Open an existing run: to read it, or to go on with it (`write`, takes the lock).

        Raises:
            ConfigError: There is no run at `path`; the message lists the nearest ones.
            StorageError: Another process is writing it, or the folder cannot be written.
        """
        path = Path(path)
        if not (path / "config.yaml").is_file():
            raise ConfigError(_not_a_run(path))
        if not write:
            return cls(path, None)
        with storage_errors("resume the run", path):
            return cls(path, _lock(path))

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write the resolved configuration; again where a run goes on with other settings."""
        text = yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True)
        with storage_errors("write", self.config_path):
            replace_file(self.config_path, text.encode())

    def config(self) -> dict[str, Any]:
        """The resolved configuration, as plain dicts, lists and scalars.

        Raises:
            ConfigError: The file is damaged.
        """
        try:
            found = yaml.safe_load(self.config_path.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            reason = str(error).partition("\n")[0]
            raise ConfigError(f"{self.config_path} cannot be read: {reason}") from error
        if not isinstance(found, dict):
            raise ConfigError(f"{self.config_path} is damaged: it holds no configuration")
        return found

    def provenance(self) -> dict[str, Any]:
        """Records of `collect_provenance`, and `run`: task, robot, learner and seed."""
        return _read_json(self.path / "provenance.json")

    def chosen(self) -> dict[str, Any]:
        """Task, robot and learner by the names under which they were chosen.

        Raises:
            ConfigError: provenance.json is missing or damaged.
        """
        found = self.provenance().get("run")
        if not isinstance(found, dict):
            raise ConfigError(
                f"{self.path / 'provenance.json'} is missing or damaged; it tells task, robot and "
                "learner of the run: put it back, or train a new run"
            )
        return found

    @property
    def is_of_learn(self) -> bool:
        """True for a run of `robot-rl learn`, which goes on with that command alone.

        A run of `robot-rl train` tells what was asked for: earlier versions of `learn` have put
        files of theirs into some.
        """
        files = (LEARN_OPTIONS, "experience", "robots")
        found = any((self.path / name).exists() for name in files)
        return found and "asked_sha256" not in self.provenance()

    def status(self) -> RunStatus:
        """State of the run: `RUNNING` where a process uses it, whatever was marked last.

        `INTERRUPTED` where it says running and no process writes or uses it.
        """
        found = _read_json(self.path / "status.json")
        known = {k: v for k, v in found.items() if k in RunStatus.__dataclass_fields__}
        told = known.pop("state", "")
        state = RunState(told) if told in [one.value for one in RunState] else RunState.INTERRUPTED
        if is_used(self.path):
            state = RunState.RUNNING
            known["reason"] = ""
        elif state is RunState.RUNNING and self._lock is None and not is_locked(self.path):
            state = RunState.INTERRUPTED
            known["reason"] = "its process is gone"
        return RunStatus(state=state, **known)

    def mark(
        self,
        state: RunState,
        *,
        step: int = 0,
        total_steps: int = 0,
        seconds: float = 0.0,
        reason: str = "",
    ) -> None:
        """Write status.json, atomically. Cheap enough for every log interval.

        Raises:
            StorageError: The disk refused.
        """
        status = RunStatus(
            state=state,
            reason=reason,
            step=step,
            total_steps=total_steps,
            seconds=seconds,
            pid=os.getpid(),
            hostname=socket.gethostname(),
            updated=datetime.now().astimezone().isoformat(timespec="seconds"),
        )
        path = self.path / "status.json"
        with storage_errors("write", path):
            replace_json(path, {**asdict(status), "state": state.value})

    def log_handler(self) -> logging.Handler:
        """Handler that appends to log.txt; the caller adds it to a logger and closes it."""
        with storage_errors("write", self.path / "log.txt"):
            handler = logging.FileHandler(self.path / "log.txt", encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        return handler

    @contextmanager
    def used(self) -> Iterator[None]:
        """Mark the run as in use during the body, without its lock; any number of processes may.

        Raises:
            StorageError: The folder cannot be written.
        """
        with storage_errors("use the run", self.path):
            mark = mark_used(self.path)
        with mark:
            yield

    def close(self) -> None:
        """Release the lock; the status stays as it was marked last."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def find_runs(root: Path | str) -> list[Path]:
    """Folders of all runs below `root`, at most two levels down, oldest first."""
    root = Path(root)
    found = [
        config.parent for config in (*root.glob("*/config.yaml"), *root.glob("*/*/config.yaml"))
    ]
    runs = (path for path in found if (path / "status.json").is_file())
    return sorted(runs, key=lambda path: (path / "config.yaml").stat().st_mtime)


def _lock(path: Path) -> IO[str]:
    lock = take_lock(path)
    if lock is None:
        status = _read_json(path / "status.json")
        raise StorageError(
            f"the run {path} is being written by process {status.get('pid', '?')} on "
            f"{status.get('hostname', '?')}; wait for it to end or stop it first"
        )
    return lock


def _make_unique(root: Path, stem: str) -> Path:
    number = 1
    while True:
        path = root / (stem if number == 1 else f"{stem}_{number}")
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return path


def _not_a_run(path: Path) -> str:
    runs = list(dict.fromkeys(run for root in (path.parent, path) for run in find_runs(root)))
    names = {_DATE.sub("", run.name): run for run in runs}  # people misremember the date
    near = difflib.get_close_matches(_DATE.sub("", path.name), names, n=3, cutoff=0.5)
    known = [str(names[name]) for name in near] or [str(run) for run in runs[-3:]]
    what = "has no config.yaml" if path.exists() else "does not exist"
    order = "nearest" if near else "newest"
    known = f"{order}: {', '.join(known)}" if known else f"there are none in {path.parent}"
    return f"'{path}' is not a run: it {what}; {known}"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
