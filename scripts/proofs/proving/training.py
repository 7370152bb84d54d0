"""Trains the seeds of a proof side by side, each with the very command that a person would type.

What is finished is not trained again and what was stopped goes on: runs are recognised by their
configuration, so a proof may be killed at any moment and started again.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from configs.builders import run_device
from configs.compose import compose, read_options, to_plain
from configs.schema import RunConfig
from robot_rl.core.errors import RobotRLError
from robot_rl.core.process import clean_environ
from robot_rl.training.reporting.console import format_clock
from robot_rl.training.runs.provenance import config_hash, plain
from robot_rl.training.runs.run_folder import RunFolder, RunState, find_runs
from scripts.baselines.settings import BASELINES, plain_baseline
from scripts.proofs.proving.people_settings import OWN_TRAINERS, plain_people

_ROOT = Path(__file__).parents[3]
_BOOKKEEPING = ("seed", "runs", "logging", "video", "profile")
"""Fields that are not part of what is proven."""
_POLL_SECONDS, _REPORT_SECONDS = 0.5, 30.0


class ProofError(RobotRLError):
    """A training of a proof did not come to its end."""


def module_of(command: str) -> tuple[str, ...]:
    """Arguments of Python that run a command of ours: `train`, `collect`, or another trainer."""
    if command in OWN_TRAINERS:
        return ("-m", f"scripts.proofs.{command}")
    return (
        ("-m", f"scripts.baselines.{command}")
        if command in BASELINES
        else ("-m", "robot_rl.cli", command)
    )


def environ() -> dict[str, str]:
    """Environment of a child: one thread, and this repository to import from."""
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return clean_environ({"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "PYTHONPATH": path})


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """One seed of one training."""

    label: str
    """For messages, such as "plant A, seed 3"."""
    overrides: tuple[str, ...]
    """Overrides of the training, such as `task=hover`."""
    seed: int
    runs: Path
    """Folder of all runs."""
    script: str = "train"
    """Trainer: `train`, or one of `BASELINES` or `OWN_TRAINERS`, which begin anew if stopped."""
    after: "TrainingJob | None" = None
    """Training that must be finished before: that of its teacher."""

    def arguments(self) -> list[str]:
        """Command line of the script; trainings run side by side, one thread each."""
        return [
            "threads=1", *self.overrides, f"seed={self.seed}", "video=false", f"runs={self.runs}",
        ]  # fmt: skip

    def command(self) -> str:
        """Command as a person would type it."""
        return shlex.join(["python", *module_of(self.script), *self.arguments()])

    @cached_property
    def config(self) -> RunConfig:
        """The run as the script makes it; a baseline does not use its learner."""
        return self._composed[0]

    @cached_property
    def plain(self) -> dict[str, Any]:
        """Configuration that is proven, without seed, folder, logging and video."""
        return plain(_proven(self._composed[1]))

    @cached_property
    def identity(self) -> str:
        """SHA-256 of `plain`."""
        return config_hash(self.plain)

    def trained(self) -> dict[str, Any]:
        """Fields of `Trained`, for results."""
        return {
            "command": self.command(),
            "config_sha256": self.identity,
            "config": self.plain,
        }

    @cached_property
    def _composed(self) -> tuple[RunConfig, dict[str, Any]]:
        """The run, and as its folder keeps it."""
        settings, own, rest = None, None, self.arguments()
        if self.script in BASELINES:
            settings, rest = read_options(BASELINES[self.script], rest)
        elif self.script in OWN_TRAINERS:
            own, rest = read_options(OWN_TRAINERS[self.script], rest)
        config = compose(rest).config
        config = replace(config, device=str(run_device(config)))
        if own is not None:
            return config, plain_people(own, config)
        return config, to_plain(config) if settings is None else plain_baseline(settings, config)

    def find(self) -> RunFolder | None:
        """The run of this job: a finished one if there is one, else the newest.

        Begun after its teacher's run ended, and after the data that it names were collected: its
        configuration names no more than folders.
        """
        found = [RunFolder.open(path) for path in find_runs(self.runs)]
        mine = [run for run in found if _seed_and_identity(run) == (self.seed, self.identity)]
        collected = _made_at(self.config)
        mine = [run for run in mine if run.config_path.stat().st_mtime_ns >= collected]
        if self.after is not None:
            teacher = self.after.find()
            if teacher is None or teacher.status().state is not RunState.FINISHED:
                return None
            ended = (teacher.path / "status.json").stat().st_mtime_ns
            mine = [run for run in mine if run.config_path.stat().st_mtime_ns >= ended]
        finished = [run for run in mine if run.status().state is RunState.FINISHED]
        return next(reversed(finished or mine), None)


def _made_at(config: RunConfig) -> int:
    """Time at which a proof made the newest of what a training begins with [ns]; 0 for nothing.

    Data and bases have a file beside them that is written once (proving/stages.py, residual.py).
    """
    training, base = config.training, getattr(config.learner, "base", None)
    data = [training.prior.run, training.demonstrations.data]
    beside = [Path(f"{folder}.collected") for folder in data if folder]
    beside += [Path(f"{folder}.identity") for folder in getattr(base, "paths", ())]
    return max((one.stat().st_mtime_ns for one in beside if one.is_file()), default=0)


def _proven(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in _BOOKKEEPING}


def _seed_and_identity(run: RunFolder) -> tuple[int, str]:
    return _read_identity(run.config_path, run.config_path.stat().st_mtime_ns)


@lru_cache(maxsize=1000)
def _read_identity(path: Path, changed_ns: int) -> tuple[int, str]:
    """Read once: YAML is slow, and progress asks for it again and again."""
    config = RunFolder.open(path.parent).config()
    return config["seed"], config_hash(_proven(config))


def train_all(
    jobs: Sequence[TrainingJob], *, workers: int, say: Callable[[str], None] = print
) -> dict[TrainingJob, RunFolder]:
    """Bring every job to its end.

    Ctrl-C and SIGTERM let the trainings save and stop; the same call goes on with them later.

    Args:
        jobs: What to train.
        workers: How many at once.
        say: Takes lines about the progress.

    Returns:
        The finished run of every job.

    Raises:
        ProofError: A training failed; the others have been brought to their end.
        KeyboardInterrupt: After the trainings have stopped.
    """
    states = {job: _state(job) for job in jobs}
    waiting = deque(job for job in jobs if states[job] is not RunState.FINISHED)
    say(f"{len(jobs) - len(waiting)} of {len(jobs)} trainings were finished before")
    team = _Team(waiting, len(jobs), workers, say)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    try:
        failed = team.work()
    except BaseException:
        team.stop()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    if failed:
        raise ProofError(
            f"{len(failed)} of {len(jobs)} trainings failed: "
            + "; ".join(f"{job.label} ({reason})" for job, reason in failed.items())
            + "; the others are kept, and the same command tries these again"
        )
    found = {job: job.find() for job in jobs}
    return {job: run for job, run in found.items() if run is not None}


def _discard_replay(run: RunFolder) -> None:
    """Remove the replay of a finished seed, which is most of a gigabyte and is not resumed."""
    shutil.rmtree(run.replay, ignore_errors=True)


@dataclass(kw_only=True)
class _Child:
    job: TrainingJob
    process: subprocess.Popen[bytes]
    log: Path


class _Team:
    """Child processes that take jobs from a queue."""

    def __init__(
        self, waiting: deque[TrainingJob], total: int, workers: int, say: Callable[[str], None]
    ) -> None:
        self._waiting, self._total, self._workers, self._say = waiting, total, workers, say
        self._children: list[_Child] = []
        self._failed: dict[TrainingJob, str] = {}
        self._start, self._last_report = time.monotonic(), time.monotonic()
        self._before = {job: _steps(job)[0] for job in waiting}

    def work(self) -> dict[TrainingJob, str]:
        """Train until nothing is left; returns the failures."""
        while self._waiting or self._children:
            for _ in range(len(self._waiting)):
                if len(self._children) < self._workers:
                    self._begin(self._waiting.popleft())
            time.sleep(_POLL_SECONDS)
            for child in [one for one in self._children if one.process.poll() is not None]:
                self._children.remove(child)
                self._end(child)
            if time.monotonic() - self._last_report > _REPORT_SECONDS:
                self._report()
        return self._failed

    def stop(self) -> None:
        """Let the children save and stop, and wait for them; a second Ctrl-C aborts them."""
        for child in self._children:
            child.process.send_signal(signal.SIGINT)
        try:
            for child in self._children:
                child.process.wait()
        except KeyboardInterrupt:
            for child in self._children:
                child.process.kill()

    def _begin(self, job: TrainingJob) -> None:
        if job.after in self._failed:
            self._failed[job] = f"{job.after.label} failed"
            return
        if job.after is not None and _state(job.after) is not RunState.FINISHED:
            self._waiting.append(job)
            return
        if reason := _other_teacher(job):
            self._failed[job] = reason
            return
        run = job.find()
        state = run.status().state if run else None
        if run and state is RunState.FINISHED:
            _discard_replay(run)
            return
        if state is RunState.RUNNING:
            self._waiting.append(job)  # of a proof that was killed itself: it may come to its end
            return
        resumed = run is not None and job.script not in (*BASELINES, *OWN_TRAINERS)
        arguments = [f"resume={run.path}"] if run and resumed else job.arguments()
        log = job.runs / "logs" / f"{job.label.replace(', ', '_').replace(' ', '_')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            process = subprocess.Popen(
                [sys.executable, *module_of(job.script), *arguments],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environ(),
                start_new_session=True,  # Ctrl-C comes to us, and from us to them once
            )
        self._children.append(_Child(job=job, process=process, log=log))
        self._say(f"{'goes on with' if resumed else 'starts'} {job.label}")

    def _end(self, child: _Child) -> None:
        run = child.job.find()
        if run is None or run.status().state is not RunState.FINISHED:
            reason = f"exit code {child.process.returncode}, see {child.log}"
            self._failed[child.job] = reason
            self._say(f"FAILED {child.job.label}: {reason}")
            return
        _discard_replay(run)
        self._say(f"finished {child.job.label} in {format_clock(run.status().seconds)}")
        self._report()

    def _report(self) -> None:
        """One line: how much is done, who is how far, how long it takes from here."""
        self._last_report = time.monotonic()
        steps = {job: _steps(job) for job in self._before}
        done = sum(steps[job][0] - before for job, before in self._before.items())
        goals = {job: steps[job] for job in self._before if job not in self._failed}
        left = sum(max(0, total - now) for now, total in goals.values())
        seconds = left / done * (time.monotonic() - self._start) if done > 0 else float("nan")
        ended = self._total - len(self._waiting) - len(self._children)
        parts = [f"{ended} of {self._total} trainings ended"]
        for child in self._children:
            now, total = steps[child.job]
            parts.append(f"{child.job.label}: {now / total:.0%}")
        self._say(f"{'; '.join(parts)}; about {format_clock(seconds)} to go")


def _other_teacher(job: TrainingJob) -> str:
    """Why the folder that is named would give another teacher; empty if it does not."""
    if job.after is None or (teacher := job.after.find()) is None:
        return ""
    newest = find_runs(job.after.runs)[-1]
    if newest == teacher.path or job.runs == job.after.runs:
        return ""
    return (
        f"{job.after.runs} has {newest.name} as its newest run, not {teacher.path.name}; "
        "move that one away"
    )


def _state(job: TrainingJob) -> RunState | None:
    run = job.find()
    return None if run is None else run.status().state


def _steps(job: TrainingJob) -> tuple[int, int]:
    """World-steps taken and planned."""
    run = job.find()
    return (0 if run is None else run.status().step), job.config.training.length
