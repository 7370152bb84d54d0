"""Sweeps: many runs of one command, in processes of this machine or in the queue of a cluster.

A launcher is handed a configuration with one field, the number of the job: a run is composed by
`configs.compose` alone, with its own checks and sentences, where the job runs.
"""

import logging
import math
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.types import HydraContext
from omegaconf.errors import OmegaConfBaseException

from configs.catalog import CONFIGS
from configs.compose import Composition, compose, expand
from configs.schema import RunConfig
from robot_rl.cli.command_line import EXIT_USAGE
from robot_rl.cli.components import run_name
from robot_rl.cli.resume import newest_runs
from robot_rl.cli.runs import print_table
from robot_rl.cli.session import asked_hash
from robot_rl.cli.sweep_worker import Worker
from robot_rl.core.errors import ConfigError, MissingExtraError, RobotRLError, unknown_name
from robot_rl.training.reporting.console import format_count, format_number, format_percent
from robot_rl.training.reporting.mirrors import WandbMode
from robot_rl.training.runs.run_folder import RunFolder, RunState
from robot_rl.training.runs.run_summary import RunSummary, summarise

SERIAL = "basic"
"""Hydra's name for one job after another in this process."""
_SLURM_LAUNCHER = "submitit_slurm"
_PACKAGES = {
    "joblib": "hydra-joblib-launcher",
    "submitit_local": "hydra-submitit-launcher",
    _SLURM_LAUNCHER: "hydra-submitit-launcher",
}
_MAX_SESSIONS = 1000
"""Times a job may be queued again because its time was up; submitit's default is never."""
_EARLY_SECONDS = 60
"""Slurm's warnings come so much too early at most (sbatch(1), --signal)."""
_BEGINNING_SECONDS = 60
"""Of a job, in which there may be nothing to save yet."""
_SILENT_OVERRIDES = (
    "hydra.output_subdir=null",  # a run says by itself what it was told
    "hydra.job.chdir=false",
    "hydra.sweep.subdir=.",
    "hydra/job_logging=none",
    "hydra/hydra_logging=none",
)
_logger = logging.getLogger(__name__)


def split_wishes(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Overrides of Hydra's launcher, and all others.

    Raises:
        ConfigError: They are about another part of Hydra.
    """
    wishes = [text for text in overrides if text.startswith(("hydra.", "hydra/"))]
    for text in wishes:
        if not text.startswith(("hydra/launcher=", "hydra.launcher.")):
            raise ConfigError(
                f"'{text}' is of a part of Hydra that is not used here; expected "
                "hydra/launcher=<name> or hydra.launcher.<field>=<value>"
            )
    return wishes, [text for text in overrides if text not in wishes]


def launcher_name(wishes: Sequence[str]) -> str:
    """The launcher that is asked for; the last word counts, and none means `SERIAL`.

    Raises:
        ConfigError: It is unknown, or fields were given to none.
        MissingExtraError: It is not installed.
    """
    if not wishes:
        return SERIAL
    named = [text.partition("=")[2] for text in wishes if text.startswith("hydra/launcher=")]
    name = named[-1] if named else SERIAL
    with initialize_config_dir(str(CONFIGS.absolute()), version_base="1.3", job_name="train"):
        known = GlobalHydra.instance().config_loader().get_group_options("hydra/launcher")
    if name not in known and name in _PACKAGES:
        raise MissingExtraError(_PACKAGES[name], "sweep", f"hydra/launcher={name}")
    if name not in known:
        raise ConfigError(unknown_name("hydra/launcher", name, {*known, *_PACKAGES}))
    fields = [text for text in wishes if text.startswith("hydra.launcher.")]
    if name == SERIAL and fields:
        raise ConfigError(
            f"'{fields[0]}' needs a launcher, and none was chosen; choose one with "
            f"hydra/launcher=..., known: {', '.join(sorted(_PACKAGES))}"
        )
    return name


def launch(worker: Worker, wishes: Sequence[str], folder: Path) -> str:
    """Run all jobs of a worker where a launcher places them, and wait for them.

    Args:
        folder: Made for what the jobs say.

    Returns:
        Why the launcher gave up; empty where it did not.

    Raises:
        ConfigError: A field of the launcher is unknown or has a wrong value.
    """
    name = launcher_name(wishes)
    ConfigStore.instance().store(name="sweep_job", node={"job": 0})
    place = str(folder.absolute()).replace("'", "\\'")
    lines = [*_defaults(name, wishes), *wishes, *_SILENT_OVERRIDES, f"hydra.sweep.dir='{place}'"]
    with (
        _saving_on_interrupt(),
        initialize_config_dir(str(CONFIGS.absolute()), version_base="1.3", job_name="train"),
    ):
        try:
            config = hydra_compose("sweep_job", overrides=lines, return_hydra_config=True)
            _check_time(config.hydra.launcher)
            launcher = Plugins.instance().instantiate_launcher(
                hydra_context=HydraContext(
                    config_loader=GlobalHydra.instance().config_loader(), callbacks=Callbacks()
                ),
                task_function=worker,
                config=config,
            )
        except (HydraException, OmegaConfBaseException) as error:
            told = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise ConfigError(f"{' '.join(wishes)}: {' '.join(told[:2])}") from error
        folder.mkdir(parents=True, exist_ok=True)
        count = len(worker.commands)
        print(f"{count} jobs through {name}; what they say is in {folder}", flush=True)
        try:
            launcher.launch([[f"job={n}"] for n in range(count)], 0)
        except Exception as error:
            # A queue's own, of many kinds; what became of the jobs is in their runs.
            _logger.info("the launcher failed", exc_info=True)
            return str(error).strip().partition("\n")[0] or type(error).__name__
    return ""


def _defaults(name: str, wishes: Sequence[str]) -> list[str]:
    """Defaults of ours that differ from Hydra's."""
    field = "hydra.launcher.max_num_timeout="
    asked = any(text.startswith(field) for text in wishes)
    return [] if asked or name != _SLURM_LAUNCHER else [f"{field}{_MAX_SESSIONS}"]


def _check_time(launcher: Mapping[str, Any]) -> None:
    """Refuse a time limit whose warning comes before there is anything to save.

    Raises:
        ConfigError: The warning may come in the job's first minute.
    """
    limit, ahead = launcher.get("timeout_min"), launcher.get("signal_delay_s")
    if limit is None or ahead is None:
        return
    least = math.ceil((ahead + _EARLY_SECONDS + _BEGINNING_SECONDS) / 60)
    if limit < least:
        raise ConfigError(
            f"hydra.launcher.timeout_min={limit} leaves no time: jobs are told to save "
            f"hydra.launcher.signal_delay_s={ahead} seconds before that, and Slurm may do so "
            f"{_EARLY_SECONDS} s earlier; expected at least {least} minutes, or less delay"
        )


@contextmanager
def _saving_on_interrupt() -> Iterator[None]:
    """Ctrl-C lets the jobs of this machine save and end, before a launcher kills its workers."""

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a second one does not wait
        below = psutil.Process().children(recursive=True)
        jobs = [child for child in below if _leads(child.pid)]  # as `Worker` starts them
        for job in jobs:
            with suppress(psutil.NoSuchProcess):  # ended meanwhile
                job.terminate()
        psutil.wait_procs(jobs)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may listen
        return
    before = signal.signal(signal.SIGINT, handle)
    # A launcher's worker that has no job yet would die of Ctrl-C, and joblib then kills all others.
    # Blocked signals are inherited, so that only a thread from before hears it. The trackers of
    # resources, Python's and joblib's, would lift the block when they start.
    resource_tracker.ensure_running()
    if find_spec("joblib"):
        import_module("joblib.externals.loky.backend.resource_tracker").ensure_running()
    ended = threading.Event()
    threading.Thread(target=ended.wait, name="Ctrl-C", daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        ended.set()
        signal.signal(signal.SIGINT, before)


def _leads(process: int) -> bool:
    """True if a process, which may have ended meanwhile, leads a session of its own."""
    try:
        return os.getsid(process) == process
    except ProcessLookupError:
        return False


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
        composition = compose(row)
        if group := _wandb_group(composition, [w for w in words if len(rows) > 1]):
            row = [*row, f"logging.wandb_group='{group}'"]
            composition = compose(row)
        config = composition.config
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


def _wandb_group(composition: Composition, varying: Sequence[str]) -> str:
    """Group in wandb of the jobs that differ in the seed alone; empty where a run has its own."""
    config = composition.config
    if config.logging.wandb is WandbMode.off or config.logging.wandb_group:
        return ""
    name = run_name(config, composition.chosen)
    words = [text for text in varying if not text.startswith("seed=")]
    if not words:
        return ""
    text = " ".join([f"{name.task}_{name.robot}_{name.learner}", *words])
    return re.sub(r"['\"\\$]", "", text)  # Hydra would read more than text in them


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
        once: Leave finished jobs out and resume unfinished ones; else train all anew.

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
