"""mjlab's own training, PPO of rsl_rl with its own settings, for as long as a stage may take."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.core.process import clean_environ
from scripts.proofs.proving.training import ProofError

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_ENDING_SECONDS = 10.0
"""Left to a training that is told to end."""
_TOLD = ("Train/", "Metrics/", "Episode_Termination/", "Perf/total_fps")
"""Scalars of its log that are kept, by the beginning of their names."""


@dataclass(frozen=True, kw_only=True)
class MjlabTraining:
    """A training that is stopped when its time is up."""

    python: Path
    """That has mjlab: `make adapters` makes one."""
    task: str
    """Its id there."""
    num_envs: int
    """Worlds."""
    device: str
    """cpu or cuda:<index>."""
    seconds: float
    """After which it is stopped, start and compilation included."""
    folder: Path
    """Takes what it writes."""

    def command(self) -> list[str]:
        """Command as a person would type it, beside `CUDA_VISIBLE_DEVICES`."""
        return [
            str(self.python), "-m", "mjlab.scripts.train", self.task,
            "--env.scene.num-envs", str(self.num_envs), "--agent.logger", "tensorboard",
            "--agent.max-iterations", "1000000", "--log-root", str(self.folder.absolute()),
        ]  # fmt: skip

    def run(self) -> dict[str, Any]:
        """Train; returns its command, its seconds, and the course of its scalars.

        Raises:
            ProofError: It failed, or has logged nothing when its time is up.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        start = time.time()
        log = self.folder / "log.txt"
        with log.open("wb") as output:
            process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env=clean_environ({_VISIBLE: visible_device(self.device)}), start_new_session=True,
            )  # fmt: skip
            try:
                code = process.wait(timeout=self.seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
        scalars = read_scalars(self.folder, start)
        if code or not scalars:
            how = f"ended with exit code {code}" if code else "logged nothing"
            raise ProofError(f"mjlab's training of {self.task} {how}, see {log}")
        return {"task": self.task, "command": self.command(), "seconds": self.seconds,
                "scalars": scalars}  # fmt: skip


def visible_device(device: str) -> str:
    """Value of `CUDA_VISIBLE_DEVICES` for one of the devices that this process sees."""
    kind, _, number = device.partition(":")
    if kind != "cuda":
        return ""
    seen = os.environ.get(_VISIBLE, "").split(",")
    return seen[int(number or 0)] if seen != [""] else number or "0"


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and all below it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_ENDING_SECONDS)


def read_scalars(folder: Path, start: float) -> dict[str, Sequence[tuple[float, int, float]]]:
    """Values that rsl_rl has logged below a folder since some time, by name.

    Args:
        folder: Of one training or of several.
        start: The time, as `time.time` tells it [s].

    Returns:
        Seconds since then, iteration and value of each record.
    """
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: dict[str, Sequence[tuple[float, int, float]]] = {}
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        events = EventAccumulator(str(path.parent), size_guidance={"scalars": 0}).Reload()
        names = [name for name in events.Tags()["scalars"] if name.startswith(_TOLD)]
        for name in names:
            new = [one for one in events.Scalars(name) if one.wall_time >= start]
            if new:
                found[name] = [
                    (round(one.wall_time - start, 1), one.step, one.value) for one in new
                ]
    return found
