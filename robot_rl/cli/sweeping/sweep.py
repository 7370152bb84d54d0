"""A sweep from its command line to the table of what came of it."""

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from configs.compose import compose, expand
from configs.schema import RunConfig
from robot_rl.cli.command_line import EXIT_USAGE
from robot_rl.cli.run_lookup import asked_hash, newest_runs
from robot_rl.cli.runs import print_table
from robot_rl.cli.sweeping.launching import SERIAL, launch, launcher_name, split_wishes
from robot_rl.cli.sweeping.worker import Worker
from robot_rl.core.errors import ConfigError, RobotRLError
from robot_rl.training.reporting.console import format_count, format_number, format_percent
from robot_rl.training.runs.run_folder import RunFolder, RunState
from robot_rl.training.runs.run_summary import RunSummary, summarise


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of a sweep."""

    number: int
    """Counted from 1."""
    overrides: tuple[str, ...]
    """Overrides for `robot-rl train`."""
    name: str
    """Overrides that other jobs do not have, such as `seed=1 learner.n_step=3`."""
    config: RunConfig
    """The run that is asked for."""
    asked: str
    """Its `asked_hash`."""


def plan(overrides: Sequence[str]) -> list[Job]:
    """One job for every combination of the values of a sweep; all of them are composed.

    Raises:
        ConfigError: A job has a mistake, or two jobs ask for the same run.
    """
    rows = expand(overrides)
    varying = [len(set(column)) > 1 for column in zip(*rows, strict=True)]
    jobs: list[Job] = []
    seen: dict[str, str] = {}
    for number, row in enumerate(rows, start=1):
        words = [text for text, varies in zip(row, varying, strict=True) if varies] or row
        config = compose(row).config
        job = Job(
            number=number,
            overrides=tuple(row),
            name=" ".join(words) or "defaults",
            config=config,
            asked=asked_hash(config),
        )
        if job.asked in seen:
            raise ConfigError(
                f"the sweep asks for the same run twice: {seen[job.asked]}, and {job.name}; "
                "expected every combination once"
            )
        seen[job.asked] = job.name
        jobs.append(job)
    return jobs


def runs_of(jobs: Sequence[Job]) -> dict[int, Path]:
    """The newest run that came of each job so far, by its number; jobs without one are absent."""
    newest = {folder: newest_runs(folder) for folder in {job.config.runs for job in jobs}}
    found = ((job.number, newest[job.config.runs].get(job.asked)) for job in jobs)
    return {number: run for number, run in found if run is not None}


def sweep(overrides: Sequence[str], train: Callable[[Sequence[str]], int], *, once: bool) -> int:
    """Train every combination; a failed job is reported and does not stop the others.

    Args:
        overrides: The command line; `hydra/launcher=...` says where the jobs run.
        train: Trains one run in this process; returns its exit code.
        once: Leave finished jobs out and go on with unfinished ones; else train all anew.

    Returns:
        Exit code: 0 where every job is finished.

    Raises:
        ConfigError: Any job, or the launcher, has a mistake; nothing was trained.
        MissingExtraError: The launcher is not installed.
    """
    wishes, rest = split_wishes(overrides)
    name = launcher_name(wishes)
    jobs = plan(rest)  # a mistake in the last one is told before the first one trains
    if name == SERIAL:
        return _one_after_another(jobs, train, once=once)
    return _through_launcher(jobs, name, wishes, once=once)


def _one_after_another(
    jobs: Sequence[Job], train: Callable[[Sequence[str]], int], *, once: bool
) -> int:
    failed: dict[int, str] = {}
    code = 0
    for job in jobs:
        print(f"\n[{job.number}/{len(jobs)}] {' '.join(job.overrides)}", flush=True)
        try:
            stopped = train([*job.overrides, f"once={str(once).lower()}"])
        except RobotRLError as error:
            failed[job.number] = str(error)
            code = max(code, EXIT_USAGE)
        except Exception:  # noqa: BLE001 - a defect of ours in one run; the others go on
            traceback.print_exc()
            failed[job.number] = "see the traceback above"
            code = max(code, 1)
        else:
            if stopped:
                code = stopped
                break
    _report(jobs, runs_of(jobs), failed)
    return code


def _through_launcher(jobs: Sequence[Job], name: str, wishes: Sequence[str], *, once: bool) -> int:
    before = runs_of(jobs)
    waiting: list[Job] = []
    for job in jobs:
        run = before.get(job.number)
        if once and _state(run) is RunState.FINISHED:
            print(f"[{job.number}/{len(jobs)}] {job.name}: finished already, {run}")
        else:
            waiting.append(job)
    logs: dict[int, Path] = {}
    gave_up = ""
    if waiting:
        folder = Path(jobs[0].config.runs) / "sweeps" / f"{datetime.now():%Y-%m-%d_%H-%M-%S}"
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{len(waiting)} jobs through {name}; what they say is in {folder}", flush=True)
        logs = {job.number: (folder / f"job_{job.number}.txt").absolute() for job in waiting}
        command = (sys.executable, "-m", "robot_rl.cli", "train")
        worker = Worker(
            commands=[[*command, *job.overrides, f"once={str(once).lower()}"] for job in waiting],
            labels=[f"[{job.number}/{len(jobs)}] {job.name}" for job in waiting],
            logs=[str(path) for path in logs.values()],
            folder=str(Path.cwd()),
        )
        gave_up = launch(worker, wishes, folder)
    runs = runs_of(jobs)
    failed: dict[int, str] = {}
    for number, log in logs.items():
        run = runs.get(number)
        old = not once and run == before.get(number)  # the one of an earlier sweep
        if old or _state(run) is not RunState.FINISHED:
            failed[number] = _why(run, log)
    _report(jobs, runs, failed)
    if gave_up:
        print(
            f"{name} gave up: {gave_up}; jobs that still run go on, and the same command again "
            "goes on with the others",
            file=sys.stderr,
        )
    return 1 if failed or gave_up else 0


def _state(run: Path | None) -> RunState | None:
    return None if run is None else RunFolder.open(run).status().state


def _why(run: Path | None, log: Path) -> str:
    """Why a job has not come to its end, and where it says more."""
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    told = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    reason = told[-1] if told else ""
    if run is not None and not reason:
        reason = RunFolder.open(run).status().reason
    return f"{reason or next(filter(None, reversed(lines)), 'it has not begun')} ({log})"


def _report(jobs: Sequence[Job], runs: Mapping[int, Path], failed: Mapping[int, str]) -> None:
    """The table of all jobs, and a line for each that failed."""
    found = {number: summarise(path) for number, path in runs.items()}
    rows = [_row(job, found.get(job.number), job.number in failed) for job in jobs]
    print()
    print_table(["job", "overrides", "status", "best", "steps", "run"], rows, left=3)
    for job in jobs:
        if job.number in failed:
            trains = _state(runs.get(job.number)) is RunState.RUNNING
            word = "still trains" if trains else "failed"
            print(f"{word}: {job.name}: {failed[job.number]}", file=sys.stderr)
    finished = sum(one.status.state is RunState.FINISHED for one in found.values())
    print(f"\n{finished} of {len(jobs)} runs finished")
    if finished < len(jobs):
        print("the same command again goes on with the others")


def _row(job: Job, run: RunSummary | None, failed: bool) -> list[str]:
    if run is None:
        return [str(job.number), job.name, "failed" if failed else "waits", "-", "-", "-"]
    show = format_number if run.success != run.success else format_percent  # NaN: nobody judges it
    best = "-" if run.best != run.best else show(run.best)
    state = run.status.state.value
    return [str(job.number), job.name, state, best, format_count(run.step), str(run.path)]
