"""Numbers of a run over time: JSON lines are the truth, TensorBoard and wandb are mirrors of it.

A record is a flat dict: `step` (environment steps taken), `seconds` (wall time spent training, all
sessions together [s]) and metrics named `rollout/...`, `train/...`, `eval/...` or `time/...`. One
record per log interval, one line each. JSON has no NaN or infinity: both are written as null and
read as NaN.
"""

import json
import logging
import math
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from robot_rl.core.errors import ConfigError, MissingExtraError
from robot_rl.training.storage.durable import replace_file, storage_errors

Record: TypeAlias = dict[str, float]
"""`step`, `seconds` and metrics by name."""

_NAME = re.compile(r"(rollout|train|eval|time)/\S+")


class Sink(Protocol):
    """A mirror of the records."""

    def write(self, record: Mapping[str, float]) -> None:
        """Mirror one record."""
        ...

    def close(self) -> None:
        """Flush and release; nothing is written after."""
        ...


class MetricLog:
    """Appends records to a JSON lines file and hands each on to the sinks."""

    def __init__(
        self, path: Path | str, sinks: Sequence[Sink] = (), *, resume_step: int | None = None
    ) -> None:
        """Open the file for appending.

        Args:
            sinks: From `open_sinks`; closed with this log.
            resume_step: Step that a run goes on from. Records after it were written between the
                last checkpoint and the interruption; they will be written again, so they are
                dropped, as is a last line that was written half.

        Raises:
            StorageError: The file cannot be written.
        """
        self.path = Path(path)
        self._sinks = tuple(sinks)
        self._last: Record = {"step": -1}
        with storage_errors("write the metrics", self.path):
            if resume_step is not None:
                kept = [r for r in read_metrics(self.path) if r["step"] <= resume_step]
                replace_file(self.path, b"".join(map(_line, kept)))
            self._file = self.path.open("ab")
            self._last_start = self._file.tell()

    def write(self, record: Mapping[str, float]) -> None:
        """Append one record; it survives a kill of this process from here on.

        Args:
            record: Floats, on the host: read tensors once per interval, before this. `step` must
                not be below that of the record before; a record of the same step is merged with
                it, so that no step appears twice.

        Raises:
            StorageError: The disk refused.
        """
        unknown = [n for n in record if n not in ("step", "seconds") and not _NAME.fullmatch(n)]
        if unknown or "step" not in record or "seconds" not in record:
            raise ValueError(
                f"a record has the names {sorted(record)}; expected step, seconds and names that "
                f"start with rollout/, train/, eval/ or time/{f' (not {unknown})' * bool(unknown)}"
            )
        if record["step"] < self._last["step"]:
            raise ValueError(f"step {record['step']} came after step {self._last['step']}")
        same_step = record["step"] == self._last["step"]
        self._last = {**self._last, **record} if same_step else dict(record)
        with storage_errors("write the metrics", self.path):
            if same_step:
                self._file.truncate(self._last_start)
            self._last_start = self._file.seek(0, os.SEEK_END)
            self._file.write(_line(self._last))
            self._file.flush()
        for sink in self._sinks:
            sink.write(record)

    def close(self) -> None:
        """Close the file and the sinks.

        Raises:
            StorageError: The disk refuses what it refused before: a file flushes when it closes.
        """
        for sink in self._sinks:
            sink.close()
        with storage_errors("write the metrics", self.path):
            self._file.close()

    def __enter__(self) -> "MetricLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def set_aside(path: Path) -> Path:
    """Rename the records of a run that begins again; returns their new place, which was free.

    Raises:
        StorageError: The disk refused.
    """
    number = 1
    while (kept := path.with_name(f"{path.stem}_before_{number}{path.suffix}")).exists():
        number += 1
    with storage_errors("keep the metrics in", kept):
        path.rename(kept)
    return kept


def read_metrics(path: Path | str) -> list[Record]:
    """All records of a run, also while it is being written; no file is no records.

    Lines that are not a record (the last one, written half; a disk's damage) are passed over.
    """
    try:
        lines = Path(path).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [record for record in map(_parse, lines) if record is not None]


def _parse(line: bytes) -> Record | None:
    try:
        found: Any = json.loads(line)
        if not isinstance(found, dict) or "step" not in found:
            return None
        return {k: math.nan if v is None else v for k, v in found.items()}
    except ValueError:
        return None


def _line(record: Mapping[str, float]) -> bytes:
    numbers = {n: float(v) if math.isfinite(v) else None for n, v in record.items()}
    numbers["step"] = int(record["step"])
    return json.dumps(numbers, allow_nan=False).encode() + b"\n"


def share_of_time(records: Sequence[Record], what: str) -> float | None:
    """Share of wall time that went into `collect` or `learn`, in [0, 1]; None if not counted."""
    spent, total, before = 0.0, 0.0, 0.0
    for record in records:
        seconds, before = record["seconds"] - before, record["seconds"]
        if f"time/{what}_fraction" in record:
            spent += record[f"time/{what}_fraction"] * seconds
            total += seconds
    return spent / total if total > 0 else None


_logger = logging.getLogger(__name__)
_LOGIN_SECONDS = 20  # a forgotten login must not hold up a night's training at a prompt


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
    """Group there; None is the run's name without its seed, so that seeds stand together."""

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
    resume_step: int | None = None,
) -> list[Sink]:
    """Sinks that `config` asks for.

    Args:
        folder: The run's; they write into `tensorboard/` and `wandb/` there.
        group: Shared by runs that differ in the seed.
        resume_step: Step that the run goes on from; None for a new one.

    Raises:
        MissingExtraError: A package that is asked for is not installed.
    """
    sinks: list[Sink] = []
    if config.tensorboard:
        sinks.append(TensorBoardSink(folder / "tensorboard", resume_step=resume_step))
    if config.wandb is not WandbMode.off:
        group = config.wandb_group or group
        sinks.append(WandbSink(config, folder, name=name, group=group, run_config=run_config))
    return sinks


class _Mirror:
    """A sink that is left out after its first failure, with one warning: it stops no training."""

    _title, _failures = "wandb", (Exception,)

    def __init__(self) -> None:
        self._target: Any = None

    def write(self, record: Mapping[str, float]) -> None:
        """Mirror one record."""
        self._attempt(lambda: self._mirror(record))

    def close(self) -> None:
        """Flush and close; wandb online waits for the upload."""
        self._attempt(self._end)
        self._target = None

    def _mirror(self, record: Mapping[str, float]) -> None:
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
    """Scalars in a TensorBoard event file; on resume, events after the step are hidden there."""

    _title, _failures = "TensorBoard", (OSError,)

    def __init__(self, folder: Path, *, resume_step: int | None = None) -> None:
        super().__init__()
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtraError("tensorboard", "train", "logging.tensorboard=true") from None
        purge_step = None if resume_step is None else resume_step + 1
        try:
            self._target = SummaryWriter(str(folder), purge_step=purge_step)
        except OSError as error:
            self._give_up(error)

    def _mirror(self, record: Mapping[str, float]) -> None:
        for name, value in record.items():  # its thread meets a failure; the next call hears of it
            if name not in ("step", "seconds"):
                self._target.add_scalar(name, value, int(record["step"]))

    def _end(self) -> None:
        self._target.close()


class WandbSink(_Mirror):
    """One wandb run, or one per session where it is offline.

    wandb.json in the run folder remembers the id, so that an online run goes on under it. An
    offline run cannot be resumed (wandb starts it again from nothing), so each session is a new
    segment of the same group. Charts use our `step` as their axis, not wandb's own counter: that
    one only grows, and would refuse what comes after a resume from an older checkpoint.
    """

    def __init__(
        self,
        config: LoggingConfig,
        folder: Path,
        *,
        name: str,
        group: str,
        run_config: Mapping[str, Any],
    ) -> None:
        super().__init__()
        try:
            import wandb
        except ImportError:
            raise MissingExtraError(
                "wandb", "train", f"logging.wandb={config.wandb.name}"
            ) from None
        try:
            memory = folder / "wandb.json"
            known = json.loads(memory.read_bytes()) if memory.exists() else {}
            base = known.get("id") or secrets.token_hex(4)
            segment = int(known.get("sessions", 0)) + 1
            offline = config.wandb is WandbMode.offline
            is_segment = offline and segment > 1
            self._target = wandb.init(
                project=config.wandb_project,
                entity=config.wandb_entity,
                dir=str(folder),
                id=f"{base}-{segment}" if is_segment else base,
                name=f"{name} ({segment})" if is_segment else name,
                group=group,
                config=dict(run_config),
                mode="offline" if offline else "online",
                resume=None if offline else "allow",
                settings=wandb.Settings(
                    console="off", silent=True, login_timeout=_LOGIN_SECONDS, disable_git=True
                ),
            )
            self._target.define_metric("step", hidden=True)
            self._target.define_metric("*", step_metric="step")
            replace_file(memory, json.dumps({"id": base, "sessions": segment}).encode())
        except Exception as error:  # noqa: BLE001 - a mirror never stops training
            self._give_up(error)

    def _mirror(self, record: Mapping[str, float]) -> None:
        self._target.log({name: value for name, value in record.items() if math.isfinite(value)})

    def _end(self) -> None:
        self._target.finish()
