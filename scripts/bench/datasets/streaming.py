"""Memory and speed of what is done with a data set that is larger than memory should be.

Each operation runs in a process of its own, as `robot-rl data` does, and tells the most memory
that it has had, the interpreter and its libraries included.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from robot_rl.core.errors import ConfigError, StorageError

BAR_BYTES = 1 << 30
"""Most memory that an operation may take."""
FORMATS = {"minari": 2.1, "robomimic": 3.1, "npz": 4.1}
"""Format of others -> disk that is needed, in sizes of the data set: the last two hold each
observation twice, and .npz waits in files of its own until it is whole."""
_ENDINGS = {"minari": "", "robomimic": ".hdf5", "npz": ".npz"}
_SMALLEST = 0.01
"""Gigabytes."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """Work that was done, and its cost."""

    name: str
    peak: int
    """Most memory [bytes]."""
    seconds: float
    """Of wall time."""
    processor: float
    """Seconds of processor time, imports included."""
    read: int
    """Observations and actions that passed through [bytes]."""

    def line(self, bar: int) -> str:
        """For people."""
        verdict = "reached" if self.peak <= bar else "missed"
        speed = f"{self.read / 1e6 / max(self.seconds, 1e-9):,.0f} MB/s" if self.read else "-"
        return (
            f"  {self.name:<24}{self.peak / 2**20:>8,.0f} MiB{speed:>14}"
            f"{self.processor:>10,.1f} s   bar {bar / 2**20:,.0f} MiB: {verdict}"
        )


def measure_streaming(
    gigabytes: float, scratch: Path, tell: Callable[[str], None], *, file_megabytes: int = 64,
    formats: tuple[str, ...] = ("minari",),
) -> list[dict[str, Any]]:  # fmt: skip
    """Make a data set, and take it through everything that reads all of it.

    Args:
        gigabytes: Of observations and actions (10^9 bytes).
        scratch: Folder for a temporary one, which is removed.
        tell: Takes lines for people.
        file_megabytes: Size of a file of the data set.
        formats: Of others, there and back.

    Raises:
        ConfigError: The size is no size, or the disk has no room.
        StorageError: The scratch folder cannot be written.
    """
    if not gigabytes >= _SMALLEST:
        raise ConfigError(f"gigabytes must be at least {_SMALLEST:g}, got {gigabytes:g}")
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        _check_disk(gigabytes, max(FORMATS[one] for one in formats), scratch)
        place = tempfile.TemporaryDirectory(prefix="robot_rl_data_", dir=scratch)
    except OSError as error:
        raise StorageError(f"{scratch} cannot be written: {error.strerror}") from None
    size = round(gigabytes * 1e9)
    tell(f"a data set of {gigabytes:g} GB: most memory, speed, processor time")
    with place as name:
        bench = _Bench(Path(name), file_megabytes, tell)
        half, whole, back = (bench.folder / one for one in ("half", "whole", "back"))
        bench.run("nothing but imports", 0, "nothing")
        bench.run("write half of it", size // 2, "make", half, size // 2)
        bench.run("merge", size, "merge", half, half, f"out={whole}")
        shutil.rmtree(half)
        bench.run("info", size, "info", whole)
        bench.run("iterate", size, "iterate", whole)
        for kind in formats:
            theirs = bench.folder / f"theirs{_ENDINGS[kind]}"
            bench.run(f"convert to {kind}", size, "convert", whole, theirs, f"to={kind}")
            shutil.rmtree(whole)
            bench.run(f"convert from {kind}", size, "convert", theirs, back)
            shutil.rmtree(theirs) if theirs.is_dir() else theirs.unlink()
            back.rename(whole)
        bench.run("info of what came back", size, "info", whole)
    return [asdict(one) for one in bench.done]


class _Bench:
    """Runs operations one after another."""

    def __init__(self, folder: Path, file_megabytes: int, tell: Callable[[str], None]) -> None:
        self.folder = folder
        self.done: list[Operation] = []
        self._megabytes, self._tell = file_megabytes, tell

    def run(self, name: str, size: int, *command: object) -> None:
        out = self.folder / "figures.json"
        child = [sys.executable, str(Path(__file__).with_name("child.py")), str(out)]
        ended = subprocess.run(
            [*child, str(self._megabytes), *map(str, command)], capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if ended.returncode:
            said = (ended.stderr or ended.stdout).strip().splitlines() or ["nothing was said"]
            raise StorageError(f"'{name}' failed with exit code {ended.returncode}: {said[-1]}")
        operation = Operation(name=name, read=size, **json.loads(out.read_text()))
        self.done.append(operation)
        self._tell(operation.line(BAR_BYTES))


def _check_disk(gigabytes: float, factor: float, scratch: Path) -> None:
    needed, free = factor * gigabytes * 1e9, shutil.disk_usage(scratch).free
    if needed > free:
        raise ConfigError(
            f"a data set of {gigabytes:g} GB and what is made of it need {needed / 1e9:,.0f} GB of "
            f"disk, and {scratch} has {free / 1e9:,.1f} GB free; take "
            f"gigabytes={0.9 * free / factor / 1e9:.2g}, or another folder with scratch="
        )
