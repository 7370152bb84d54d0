"""Numbers of a run over time: JSON lines are the truth, `mirrors.py` copies them elsewhere.

A record is a flat dict: `step` (environment steps taken), `seconds` (wall time spent training, all
sessions together [s]) and metrics named `rollout/...`, `train/...`, `eval/...` or `time/...`. One
record per log interval, one line each. JSON has no NaN or infinity: both are written as null and
read as NaN.
"""

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from robot_rl.training.storage.durable import replace_file, storage_errors

Record: TypeAlias = dict[str, float]
"""`step`, `seconds` and metrics by name."""

_NAME = re.compile(r"(rollout|train|eval|time)/\S+")


@dataclass(frozen=True, kw_only=True)
class RunResults:
    """Everything beside records that a run has to show when it ends or is stopped."""

    step: int
    """Steps done."""
    evaluations: Sequence[Record] = ()
    """Records of evaluations, `step` and `eval/...` alone."""
    best: Mapping[str, float] = field(default_factory=dict[str, float])
    """`score` and `step` of the best checkpoint; empty where none is scored."""
    pictures: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """PNG files by name, such as learning_curve."""
    videos: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """MP4 files by name."""
    bundle: Path | None = None
    """Folder of the exported policy; None where there is none."""
    checkpoints: Mapping[Path, Sequence[str]] = field(default_factory=dict[Path, Sequence[str]])
    """Folders of checkpoints, oldest first, with what each is: best, latest, or both."""


class Sink(Protocol):
    """A mirror of the records."""

    def write(self, record: Mapping[str, float]) -> None:
        """Mirror one record."""
        ...

    def show(self, results: RunResults) -> None:
        """Take what the run has come to."""
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
                dropped, as is a last line that was written half. The next record is merged with
                one of this very step.

        Raises:
            StorageError: The file cannot be written.
        """
        self.path = Path(path)
        self._sinks = tuple(sinks)
        self._last: Record = {"step": -1}
        kept: list[Record] = []
        with storage_errors("write the metrics", self.path):
            if resume_step is not None:
                kept = [r for r in read_metrics(self.path) if r["step"] <= resume_step]
                replace_file(self.path, b"".join(map(_line, kept)))
            self._file = self.path.open("ab")
            self._last_start = self._file.tell()
        if kept:  # the next record may be of the same step
            self._last = kept[-1]
            self._last_start -= len(_line(kept[-1]))

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

    def amend(self, record: Mapping[str, float]) -> None:
        """Add metrics to the record of an earlier step, which was written, or to the last one.

        Args:
            record: As of `write`, without `seconds`.

        Raises:
            StorageError: The disk refused.
        """
        records = read_metrics(self.path)
        for number, found in enumerate(records):
            if found["step"] == record["step"]:
                records[number] = amended = {**found, **record}
                break
        else:
            raise ValueError(f"there is no record of step {record['step']} to add to")
        with storage_errors("write the metrics", self.path):
            self._file.close()
            replace_file(self.path, b"".join(map(_line, records)))
            self._file = self.path.open("ab")
        self._last = records[-1]
        self._last_start = self._file.seek(0, os.SEEK_END) - len(_line(self._last))
        for sink in self._sinks:
            sink.write({**record, "seconds": amended["seconds"]})

    def show(self, results: RunResults) -> None:
        """Hand what the run has come to on to the sinks."""
        for sink in self._sinks:
            sink.show(results)

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
