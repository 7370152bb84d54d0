"""From finished trainings to a record: every policy is flown, everything about it is noted."""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from robot_rl.core.errors import CheckpointError
from robot_rl.training.reporting.metrics import Record, read_metrics, share_of_time
from robot_rl.training.runs.provenance import (
    describe_device,
    git_state,
    package_versions,
    short_commit,
)
from robot_rl.training.runs.run_folder import RunFolder
from scripts.proofs.pages.record import GroupResult, ProofRecord, SeedResult
from scripts.proofs.proving.flights import fly_controller
from scripts.proofs.proving.plan import Group, Proof
from scripts.proofs.proving.training import TrainingJob


def measure(
    proof: Proof,
    jobs: Mapping[str, Sequence[TrainingJob]],
    runs: Mapping[TrainingJob, RunFolder],
    *,
    command: str,
    overrides: Sequence[str],
    workers: int,
    load_average: float,
    episodes: int,
    say: Callable[[str], None] = print,
) -> ProofRecord:
    """Fly everything.

    Args:
        proof: What is asked.
        jobs: Its trainings by group.
        runs: Their finished runs.
        command: What a person typed.
        overrides: Changes to every training.
        workers: Trainings that ran at once.
        load_average: Of the machine before they began.
        episodes: Worlds per trial.
        say: Takes lines about the progress.
    """
    torch.set_num_threads(1)
    groups: dict[str, GroupResult] = {}
    for group in proof.groups:
        seeds = []
        for job in jobs[group.name]:
            say(f"flies {job.label}")
            seeds.append(_fly_seed(proof, group, job, runs[job], episodes))
        groups[group.name] = GroupResult(**jobs[group.name][0].trained(), seeds=seeds)
    first = jobs[proof.groups[0].name][0].config
    expert = {}
    if proof.controller:
        say(f"flies the {proof.controller.name}")
        expert = {
            one.name: fly_controller(proof.controller, first, one, episodes=episodes)
            for one in proof.conditions
        }
    return ProofRecord(
        name=proof.name,
        command=command,
        overrides=list(overrides),
        origin={**machine(first.device), "load_average": load_average, "jobs": workers},
        groups=groups,
        expert=expert,
    )


def _fly_seed(
    proof: Proof, group: Group, job: TrainingJob, run: RunFolder, episodes: int
) -> SeedResult:
    trials, step = {}, 0
    for name in group.trials:
        trials[name], step = proof.fly(run, proof.condition(name), episodes=episodes)
    status, records = run.status(), read_metrics(run.metrics_path)
    if not records or status.seconds <= 0:
        raise CheckpointError(f"the finished run {run.path} has lost its metrics; train it again")
    return SeedResult(
        seed=job.seed,
        run=run.path.name,
        commit=short_commit(run.provenance().get("git")),
        training_seconds=status.seconds,
        world_steps=status.step,
        learner_share=share_of_time(records, "learn"),
        checkpoint_step=step,
        trials=trials,
        evaluations=_evaluations(records, proof.curve),
        more_evaluations={name: _evaluations(records, name) for name in proof.more_curves},
    )


def _evaluations(records: Sequence[Record], metric: str) -> list[tuple[float, float]]:
    return [(record["step"], record[metric]) for record in records if metric in record]


def machine(device: str) -> dict[str, Any]:
    """Date, program and machine of a measurement, for its page."""
    return {
        "date": datetime.now().astimezone().isoformat(timespec="minutes"),
        "git": short_commit(git_state(Path(__file__).parent)),
        "python": platform.python_version(),
        "packages": package_versions(),
        "processor": describe_device(device),
        "processors": os.cpu_count(),
    }
