"""Results of proofs that were never run, to be judged."""

from scripts.proofs.pages.record import GroupResult, ProofRecord, SeedResult, TrialResult

ORIGIN = {
    "date": "2026-01-31T14:05+00:00", "git": "0123456789ab", "python": "3.11",
    "packages": {"torch": "2.13.0"}, "processor": "a processor", "processors": 2,
    "load_average": 0.1, "jobs": 2,
}  # fmt: skip


def trial(success=0.9, *, rms=0.1):
    spread: dict[str, float | None] = {"mean": rms, "median": rms, "p95": 2 * rms, "max": 3 * rms}
    names: tuple[str, ...] = (
        "mean_distance", "mean_speed", "rms_distance_all", "joint_speed", "mean_velocity_error",
        "mean_velocity_error_all", "mean_turn_error", "gait_kept", "depth", "beside", "seconds",
        "action_swing",
    )  # fmt: skip
    return TrialResult(
        episodes=1000, success=success, low=success - 0.02, high=success + 0.01, ended=0.01,
        metrics=dict.fromkeys(names, spread),
    )  # fmt: skip


def made_up(proof, rates, *, rms=0.1, seconds=60.0, hashes=None):
    """Results with these success rates in every group."""
    groups = {}
    for group in proof.groups:
        seeds = [
            SeedResult(
                seed=seed, run=f"run_s{seed}", commit="0123456789ab", training_seconds=seconds,
                world_steps=6_000_000, learner_share=0.7, checkpoint_step=5_000_000,
                trials={name: trial(rate, rms=rms) for name in group.trials},
            )
            for seed, rate in enumerate(rates)
        ]  # fmt: skip
        sha = (hashes or {}).get(group.name, "0" * 64)
        groups[group.name] = GroupResult(command="robot-rl train", config_sha256=sha, seeds=seeds)
    expert = {one.name: trial(0.97, rms=rms) for one in proof.conditions if proof.controller}
    return ProofRecord(
        name=proof.name, command="python -m scripts.proofs", overrides=[], origin=ORIGIN,
        groups=groups, expert=expert,
    )  # fmt: skip
