"""Results of proofs that were never run, to be judged."""

import importlib
from types import SimpleNamespace

import pytest


@pytest.fixture
def proofs(monkeypatch):
    names = (
        "proving.flights", "history", "hover", "pages.page", "reach", "pages.record",
        "pages.results", "tracking", "velocity",
    )  # fmt: skip
    modules = {name.rpartition(".")[2]: f"scripts.proofs.{name}" for name in names}
    return SimpleNamespace(
        **{name: importlib.import_module(path) for name, path in modules.items()}
    )


def trial(proofs, success=0.9, *, rms=0.1):
    spread = {"mean": rms, "median": rms, "p95": 2 * rms, "max": 3 * rms}
    names = (
        "mean_distance", "mean_speed", "rms_distance_all", "joint_speed", "mean_velocity_error",
        "mean_velocity_error_all", "mean_turn_error", "gait_kept", "depth", "beside",
    )  # fmt: skip
    return proofs.record.TrialResult(
        episodes=1000, success=success, low=success - 0.02, high=success + 0.01, ended=0.01,
        metrics=dict.fromkeys(names, spread),
    )  # fmt: skip


def made_up(proofs, proof, rates, *, rms=0.1, seconds=60.0, hashes=None):
    """Results with these success rates in every group."""
    groups = {}
    for group in proof.groups:
        seeds = [
            proofs.record.SeedResult(
                seed=seed, run=f"run_s{seed}", commit="0123456789ab", training_seconds=seconds,
                world_steps=6_000_000, learner_share=0.7, checkpoint_step=5_000_000,
                trials={name: trial(proofs, rate, rms=rms) for name in group.trials},
            )
            for seed, rate in enumerate(rates)
        ]  # fmt: skip
        groups[group.name] = proofs.record.GroupResult(
            command="robot-rl train",
            config_sha256=(hashes or {}).get(group.name, "0" * 64),
            seeds=seeds,
        )
    origin = {
        "date": "2026-01-31T14:05+00:00", "git": "0123456789ab", "python": "3.11",
        "packages": {"torch": "2.13.0"}, "processor": "a processor", "processors": 2,
        "load_average": 0.1, "jobs": 2,
    }  # fmt: skip
    expert = {one.name: trial(proofs, 0.97, rms=rms) for one in proof.conditions if proof.expert}
    return proofs.record.ProofRecord(
        name=proof.name, command="python -m scripts.proofs", overrides=[], origin=origin,
        groups=groups, expert=expert,
    )  # fmt: skip
