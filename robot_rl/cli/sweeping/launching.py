"""Hydra's launchers place the jobs of a sweep: in local processes, or in a queue of a cluster.

A launcher is handed a configuration with one field, the number of the job: what a run is told is
composed by `configs/compose.py` alone, with its own checks and sentences, where the job runs.
"""

import logging
import math
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from hydra import compose, initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.types import HydraContext
from omegaconf.errors import OmegaConfBaseException

from configs.catalog import CONFIGS
from robot_rl.cli.sweeping.worker import Worker
from robot_rl.core.errors import ConfigError, MissingExtraError, unknown_name

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
        worker: Runs a job by its number.
        wishes: Overrides that choose the launcher and set its fields.
        folder: Takes what the launcher writes.

    Returns:
        Why the launcher gave up; empty where it did not.

    Raises:
        ConfigError: A field of the launcher is unknown or has a wrong value.
    """
    ConfigStore.instance().store(name="sweep_job", node={"job": 0})
    place = str(folder.absolute()).replace("'", "\\'")
    lines = [*_defaults(wishes), *wishes, *_SILENT_OVERRIDES, f"hydra.sweep.dir='{place}'"]
    with (
        _saving_on_interrupt(),
        initialize_config_dir(str(CONFIGS.absolute()), version_base="1.3", job_name="train"),
    ):
        try:
            config = compose("sweep_job", overrides=lines, return_hydra_config=True)
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
        try:
            launcher.launch([[f"job={n}"] for n in range(len(worker.commands))], 0)
        except Exception as error:
            # A queue's own, of many kinds; what became of the jobs is in their runs.
            _logger.info("the launcher failed", exc_info=True)
            return str(error).strip().partition("\n")[0] or type(error).__name__
    return ""


def _defaults(wishes: Sequence[str]) -> list[str]:
    """Defaults of ours that differ from Hydra's."""
    field = "hydra.launcher.max_num_timeout="
    asked = any(text.startswith(field) for text in wishes)
    return [] if asked or launcher_name(wishes) != _SLURM_LAUNCHER else [f"{field}{_MAX_SESSIONS}"]


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
