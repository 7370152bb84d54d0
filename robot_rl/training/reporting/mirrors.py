"""Mirrors of a run's numbers and results: TensorBoard and Weights & Biases (wandb).

A mirror that cannot be opened, or fails, is left out with one warning; the training goes on, and
metrics.jsonl and the run's folder have everything.
"""

import json
import logging
import math
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from robot_rl.core.errors import ConfigError, MissingExtraError, RobotRLError
from robot_rl.training.reporting.metrics import MetricLog, Record, RunResults, Sink, read_metrics
from robot_rl.training.runs.run_folder import RunFolder
from robot_rl.training.storage.checkpoint import CheckpointStore, read_manifest
from robot_rl.training.storage.durable import replace_json

_logger = logging.getLogger(__name__)
_LOGIN_SECONDS = 20  # a forgotten login must not hold up a night's training at a prompt
_GROUP_LENGTH = 128  # of wandb


class WandbMode(Enum):
    """Mode of wandb. In YAML quote "off", which is a boolean there otherwise."""

    off = "off"
    """Not used."""
    offline = "offline"
    """Into the run folder; `wandb sync` uploads it later."""
    online = "online"
    """To the server."""


@dataclass(kw_only=True)
class LoggingConfig:
    """Console output of a run and mirrors of its metrics; metrics.jsonl is always written."""

    interval_seconds: float = 2.0
    """Wall time between two records and console lines [s]."""
    quiet: bool = False
    """True shows nothing on the terminal."""
    tensorboard: bool = True
    """Write TensorBoard events into the run folder."""
    wandb: WandbMode = WandbMode.off
    """Mirror to Weights & Biases."""
    wandb_project: str = "robot_rl"
    """Project there."""
    wandb_entity: str | None = None
    """Team or user there; None is the account's default."""
    wandb_group: str | None = None
    """Group there; None is the run's name without its seed, so that seeds stand together, and in a
    sweep also what the sweep varies."""

    def __post_init__(self) -> None:
        if not self.interval_seconds > 0:
            raise ConfigError(
                f"logging.interval_seconds is {self.interval_seconds}; expected more than 0 seconds"
            )


def open_sinks(
    config: LoggingConfig,
    folder: Path,
    *,
    name: str,
    group: str,
    run_config: Mapping[str, Any],
    tags: Sequence[str] = (),
    job_type: str = "train",
    resume_step: int | None = None,
) -> list[Sink]:
    """Sinks that `config` asks for; one that cannot be opened says so and does nothing.

    Args:
        folder: The run's; they write into `tensorboard/` and `wandb/` there.
        group: Shared by runs that differ in the seed.
        tags: Of wandb, beside those of the environment variable WANDB_TAGS.
        job_type: Of wandb: train, or learn on a robot.
        resume_step: Step that the run goes on from; None for a new one.
    """
    sinks: list[Sink] = []
    if config.tensorboard:
        sinks.append(
            TensorBoardSink(folder / "tensorboard", run_config=run_config, resume_step=resume_step)
        )
    if config.wandb is not WandbMode.off:
        sinks.append(
            WandbSink(
                config, folder, name=name, group=config.wandb_group or group, tags=tags,
                job_type=job_type, run_config=run_config,
            )
        )  # fmt: skip
    return sinks


def results_of(run: RunFolder, *, step: int, drawn: bool) -> RunResults:
    """Results that lie in the folder of a run.

    Args:
        step: Steps done.
        drawn: Plots, videos and bundle are of this session; False leaves out what may be older.

    Raises:
        CheckpointError: The best checkpoint is damaged.
    """
    evaluations: list[Record] = []
    for record in read_metrics(run.metrics_path):
        values = {name: value for name, value in record.items() if name.startswith("eval/")}
        if values:
            evaluations.append({"step": record["step"], **values})
    store = CheckpointStore(run.checkpoints, read_only=True)
    best, latest = store.best(), store.latest()
    manifest = read_manifest(best) if best else {}
    checkpoints: dict[Path, Sequence[str]] = {}
    for path, alias in ((best, "best"), (latest, "latest")):
        if path is not None:
            checkpoints[path] = (*checkpoints.get(path, ()), alias)
    return RunResults(
        step=step,
        evaluations=evaluations,
        best={name: float(manifest[name]) for name in ("score", "step") if name in manifest},
        pictures=_files(run, "*.png") if drawn else {},
        videos=_files(run, "*.mp4") if drawn else {},
        bundle=run.bundle if drawn and run.bundle.is_dir() else None,
        checkpoints=checkpoints,
    )


def show_results(metrics: MetricLog, run: RunFolder, *, step: int, drawn: bool) -> None:
    """Hand results of a run on to its mirrors; arguments as of `results_of`."""
    try:
        metrics.show(results_of(run, step=step, drawn=drawn))
    except RobotRLError as error:  # the run is saved: it is not lost now
        _logger.warning("TensorBoard and wandb get no results: %s", error)


def _files(run: RunFolder, pattern: str) -> dict[str, Path]:
    found = [path for folder in (run.plots, run.videos) for path in sorted(folder.glob(pattern))]
    return {path.stem: path for path in found}


class _Mirror:
    """A sink that is left out after its first failure, with one warning: it stops no training."""

    _title, _failures = "wandb", (Exception,)

    def __init__(self) -> None:
        self._target: Any = None

    def write(self, record: Mapping[str, float]) -> None:
        """Mirror one record."""
        self._attempt(lambda: self._mirror(record))

    def show(self, results: RunResults) -> None:
        """Mirror what the run has come to."""
        self._attempt(lambda: self._show(results))

    def close(self) -> None:
        """Flush and close; wandb online waits for the upload."""
        self._attempt(self._end)
        self._target = None

    def _mirror(self, record: Mapping[str, float]) -> None:
        raise NotImplementedError

    def _show(self, results: RunResults) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError

    def _attempt(self, work: Callable[[], None]) -> None:
        if self._target is not None:
            try:
                work()
            except self._failures as error:
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._target = None
        said = getattr(error, "strerror", None) or str(error).strip().partition("\n")[0]
        _logger.warning(
            "%s is left out from here on: %s; metrics.jsonl has everything",
            self._title, said or type(error).__name__,
        )  # fmt: skip


class TensorBoardSink(_Mirror):
    """Scalars, configuration and plots in an event file; TensorBoard shows no videos.

    On resume, events after the step are hidden there.
    """

    _title, _failures = "TensorBoard", (OSError,)

    def __init__(
        self,
        folder: Path,
        *,
        run_config: Mapping[str, Any] | None = None,
        resume_step: int | None = None,
    ) -> None:
        super().__init__()
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            self._give_up(MissingExtraError("tensorboard", "train", "logging.tensorboard=true"))
            return
        purge_step = None if resume_step is None else resume_step + 1
        try:
            self._target = SummaryWriter(str(folder), purge_step=purge_step)
            if run_config:
                text = json.dumps(run_config, indent=2, ensure_ascii=False, default=str)
                lines = "".join(f"    {line}\n" for line in text.splitlines())  # Markdown: code
                self._target.add_text("config", lines, resume_step or 0)
        except OSError as error:
            self._give_up(error)

    def _mirror(self, record: Mapping[str, float]) -> None:
        for name, value in record.items():  # its thread meets a failure; the next call hears of it
            if name not in ("step", "seconds"):
                self._target.add_scalar(name, value, int(record["step"]))

    def _show(self, results: RunResults) -> None:
        for name, value in results.best.items():
            self._target.add_scalar(f"best/{name}", value, results.step)
        for name, path in results.pictures.items():
            from robot_rl.training.reporting.curves import read_figure  # matplotlib: not for all

            pixels = read_figure(path)
            self._target.add_image(f"plots/{name}", pixels, results.step, dataformats="HWC")

    def _end(self) -> None:
        self._target.close()


class WandbSink(_Mirror):
    """One wandb run, whatever the number of sessions.

    wandb.json in the run folder remembers its id, and the rows that were logged: an offline session
    knows nothing of the one before it, and has to number its rows on. Charts use our `step` as
    their axis, not wandb's own counter: that one only grows, and would refuse what comes after a
    resume from an older checkpoint.
    """

    def __init__(
        self,
        config: LoggingConfig,
        folder: Path,
        *,
        name: str,
        group: str,
        tags: Sequence[str],
        job_type: str,
        run_config: Mapping[str, Any],
    ) -> None:
        super().__init__()
        # wandb writes in a process that has the folder in which its first run was begun.
        self._name, self._folder = name, folder.absolute()
        self._offline = config.wandb is WandbMode.offline
        try:
            import wandb
        except ImportError:
            purpose = f"logging.wandb={config.wandb.name}"
            self._give_up(MissingExtraError("wandb", "train", purpose))
            return
        self._wandb: Any = wandb
        own = [tag.strip() for tag in os.environ.get("WANDB_TAGS", "").split(",") if tag.strip()]
        try:
            memory = folder / "wandb.json"
            known = json.loads(memory.read_bytes()) if memory.exists() else {}
            self._id = str(known.get("id") or secrets.token_hex(4))
            self._rows = int(known.get("rows", 0))
            self._target = wandb.init(
                project=config.wandb_project,
                entity=config.wandb_entity,
                dir=str(self._folder),
                id=self._id,
                name=name,
                group=group[:_GROUP_LENGTH],
                job_type=job_type,
                tags=list(dict.fromkeys([*tags, *own])),
                config=dict(run_config),
                mode="offline" if self._offline else "online",
                resume="allow",
                settings=wandb.Settings(
                    console="off", silent=True, login_timeout=_LOGIN_SECONDS, disable_git=True
                ),
            )
            self._target.define_metric("step", hidden=True)
            self._target.define_metric("*", step_metric="step")
            self._remember()
        except Exception as error:  # noqa: BLE001 - a mirror never stops training
            self._give_up(error)

    def _mirror(self, record: Mapping[str, float]) -> None:
        self._log({name: value for name, value in record.items() if math.isfinite(value)})

    def _log(self, values: Mapping[str, Any]) -> None:
        self._target.log(dict(values), commit=True, step=self._rows if self._offline else None)
        self._rows += 1
        if self._offline:
            self._remember()

    def _remember(self) -> None:
        replace_json(self._folder / "wandb.json", {"id": self._id, "rows": self._rows})

    def _show(self, results: RunResults) -> None:
        wandb = self._wandb
        with self._staging():
            media: dict[str, Any] = {}
            for name, path in results.pictures.items():
                media[f"plots/{name}"] = wandb.Image(str(path))
            for name, path in results.videos.items():
                media[f"videos/{name}"] = wandb.Video(str(path), format="mp4")
            if results.evaluations:
                media["evaluations"] = self._table(results.evaluations)
            if media:
                self._log({"step": results.step, **media})
            for name, value in results.best.items():
                self._target.summary[f"best/{name}"] = value
            for path, aliases in results.checkpoints.items():
                self._keep(path, "checkpoint", aliases, {"folder": path.name})
            if results.bundle is not None:
                self._keep(results.bundle, "bundle", ("best", "latest"), dict(results.best))

    def _table(self, evaluations: Sequence[Record]) -> Any:
        """Evaluations as rows; what is not finite is an empty cell."""
        columns = list(dict.fromkeys(name for record in evaluations for name in record))
        rows = [[record.get(name, math.nan) for name in columns] for record in evaluations]
        cells = [[value if math.isfinite(value) else None for value in row] for row in rows]
        return self._wandb.Table(columns=columns, data=cells)

    def _keep(
        self, folder: Path, kind: str, aliases: Sequence[str], metadata: Mapping[str, Any]
    ) -> None:
        artifact = self._wandb.Artifact(
            f"{self._name}-{kind}", type="model", metadata={"run": self._name, **metadata}
        )
        for path in sorted(folder.rglob("*")):
            if path.is_file():  # `add_dir` prints
                artifact.add_file(str(path), name=str(path.relative_to(folder)))
        self._target.log_artifact(artifact, aliases=list(aliases))

    @contextmanager
    def _staging(self) -> Iterator[None]:
        """Copies that wait for `wandb sync` lie in the run's folder, not in the user's home."""
        before = os.environ.get("WANDB_DATA_DIR")
        if not self._offline or before:
            yield
            return
        os.environ["WANDB_DATA_DIR"] = str(self._folder / "wandb")
        try:
            yield
        finally:
            del os.environ["WANDB_DATA_DIR"]

    def _end(self) -> None:
        self._target.finish()
        # wandb 0.31 now and then writes nothing of the second offline run of a process: 14 of 570
        # files stayed empty; of 150, with a wandb process for each run, none.
        if self._offline and self._wandb.run is None:
            self._wandb.teardown()
