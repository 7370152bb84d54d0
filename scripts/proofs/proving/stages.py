"""Stages before the trainings of a proof: each is done once, and goes on where it was stopped."""

import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.datasets.files.manifest import is_dataset
from robot_rl.training.runs.run_folder import RunFolder, RunState
from scripts.proofs.proving.training import ProofError, TrainingJob, environ, module_of


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """Arguments of a stage."""

    runs: Path
    """Folder of all runs."""
    jobs: Mapping[str, Sequence[TrainingJob]]
    """All trainings of the proof, by group."""
    workers: int
    """Trainings at once."""
    say: Callable[[str], None]
    """Takes lines about the progress."""


def call(script: str, *arguments: str) -> None:
    """Run one of our scripts to its end.

    Raises:
        ProofError: It failed.
    """
    done = subprocess.run(
        [sys.executable, *module_of(script), *arguments], check=False, env=environ()
    )
    if done.returncode:
        raise ProofError(
            f"robot-rl {script} {' '.join(arguments)} ended with exit code {done.returncode}; "
            "its last lines say why, and the same command goes on"
        )


def train_one(job: TrainingJob, say: Callable[[str], None], what: str) -> RunFolder:
    """Bring a training that is of no group to its end.

    Args:
        job: The training.
        say: Takes a line before it begins.
        what: That line.

    Raises:
        ProofError: It failed.
    """
    run = job.find()
    if run is None or run.status().state is not RunState.FINISHED:
        say(what)
        call("train", *([f"resume={run.path}"] if run else job.arguments()))
        run = job.find()
    assert run is not None
    return run


def collect_once(folder: Path, *parts: Sequence[str], script: str = "collect") -> None:
    """Collect a data set; it has another name until it is whole.

    Args:
        folder: Of the data set.
        parts: Arguments of the script, once for each kind of episode in it.
        script: `collect`, or `teleop`.

    Raises:
        ProofError: It failed, or what is there was collected otherwise.
    """
    partial = folder.with_name(f"{folder.name}_partial")
    told = folder.with_name(f"{folder.name}.collected")  # what is, or will be, in it
    wanted = "".join(f"{shlex.join(arguments)}\n" for arguments in parts)
    if told.exists() and told.read_text() != wanted and (is_dataset(folder) or partial.exists()):
        raise ProofError(
            f"{folder} was collected by\n{told.read_text()}and is now asked for by\n{wanted}"
            f"choose another folder with runs=..., or remove {folder.name}* there"
        )
    if is_dataset(folder):
        return
    told.write_text(wanted)
    for arguments in parts:
        call(script, f"out={partial}", "append=true", *arguments)
    partial.rename(folder)
