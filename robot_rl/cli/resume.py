"""Going on with a run: which run a command line means, and what may be changed about it."""

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from configs.builders import run_device
from configs.catalog import GROUPS, walk_fields
from configs.compose import changed_keys, from_plain
from configs.schema import RunConfig, check_needs
from robot_rl.cli.components import kept_base, run_path
from robot_rl.cli.learned_reward import kept_reward
from robot_rl.cli.session import asked_hash, dismiss, follow, go_on
from robot_rl.core.errors import ConfigError
from robot_rl.training.ranks import Ranks, join_ranks
from robot_rl.training.reporting.console import format_count
from robot_rl.training.runs.run_folder import RunFolder, RunState, find_runs
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.storage.durable import discard, storage_errors, take_lock
from robot_rl.training.storage.segments import SegmentStore

_FREE = (
    "training.total_steps", "training.evaluation_interval", "training.evaluation_episodes",
    "training.updates_per_step", "training.overlap", "training.save_replay",
    "training.keep_checkpoints", "training.evaluation_beside",
    "training.checkpoint_interval", "training.checkpoint_seconds", "logging.",
    "training.offline.evaluation_interval",
    "training.prior.run", "training.snapshots.data", "training.demonstrations.data",
    "training.demonstrations.patience",
    "learner.teacher", "threads", "device", "rank_timeout_seconds", "video", "profile",
    "env.processes",
    "online.publish_seconds", "online.swap_between_episodes", "online.quota_mb",
    "cluster.address", "cluster.rows", "cluster.cpus", "cluster.start_seconds",
    "cluster.answer_seconds",
)  # fmt: skip
"""Fields, or beginnings of fields, that a run may change on its way; step sizes (`_lr`) too."""

_PLACES = ("training.prior.run", "training.snapshots.data")
"""Free fields that say where something lies: whether there is any stays as it was."""

_FIXED = {
    "env": "the saved replay and critics belong to the environment as it was",
    "task": "the saved worlds, replay and critics belong to the task as it was",
    "robot": "the saved worlds and replay belong to the robot as it was",
    "reward": "the stored rewards were given by this one",
    "learner": "the saved networks, optimisers and replay belong to these settings",
    "num_envs": "the checkpoint holds the state of exactly that many worlds",
    "seed": "all random streams go on where they stopped",
    "training.replay_capacity": "the saved replay has that size",
    "training.replay.": "the saved replay belongs to these settings",
    "training.prior.": "what was learned belongs to these settings",
    "training.demonstrations.": "what was learned belongs to these settings",
    "training.offline.": "what was learned belongs to these settings",
    "training.snapshots.": "they lie at the beginning of the run",
    "training.start.": "it lies at the beginning of the run",
    "training.warm_up_steps": "they lie at the beginning of the run",
    "cluster.collectors": "the checkpoint holds the worlds of exactly that many",
    "cluster.device": "random streams of the saved worlds belong to that kind of device",
    "training.evaluation_conditions": "scores of checkpoints under others do not compare",
    "training.policy_average": "the saved mean is over that many updates",
    "training.symmetry": "what was learned belongs to this setting",
    "training.random_steps": "they lie at the beginning of the run",
    "online.": "what was learned belongs to this setting",
    "runs": "a run stays in its folder",
}


def resume(name: str, overrides: Sequence[str]) -> int:
    """Go on with a run.

    Returns:
        Exit code: 0, or 128 + the signal that stopped it.

    Raises:
        ConfigError: There is no such run, it is one of `robot-rl learn`, or an override does not
            make sense for it.
        StorageError: A process is writing the run, or it cannot be written.
    """
    root = [text.partition("=")[2] for text in overrides if text.startswith("runs=")]
    if name == "latest" and root:  # where to look for it, then; no run moves
        overrides = [text for text in overrides if not text.startswith("runs=")]
    path = run_path(name, *root[-1:], of_learn=False)
    run = RunFolder.open(path)
    if run.is_of_learn:
        raise ConfigError(
            f"{path} is a run of robot-rl learn, which robot-rl train cannot resume; go on with: "
            f"robot-rl learn run={path}"
        )
    config = kept_reward(run, kept_base(run, resumed_config(run, overrides)))
    with join_ranks(config.rank_timeout_seconds) as ranks:
        return follow(config, ranks) if ranks.rank else _resume(path, config, ranks)


def say_done(path: Path, step: int, total: int, longer: str, else_do: str) -> None:
    """Say that a run has all its steps, and how it goes on all the same."""
    print(
        f"{path} has come to {format_count(step)} of {format_count(total)} steps: nothing to do; "
        f"{longer} with training.total_steps=..., or {else_do}"
    )


def _resume(path: Path, config: RunConfig, ranks: Ranks) -> int:
    with RunFolder.open(path, write=True) as run:
        # Without the replay, its segments need not be there. States of other ranks are checked as
        # they are read.
        segments = SegmentStore(run.replay) if config.training.save_replay else None
        store = CheckpointStore(run.checkpoints, segments=segments)
        checkpoint = store.load("latest") if store.steps() else None
        total = config.training.length
        ended = run.status().state is RunState.FINISHED  # else its outcome is still to be reported
        if ended and checkpoint is not None and checkpoint.step >= total:
            dismiss(ranks)
            look = f"look at it with: robot-rl evaluate run={path}"
            say_done(path, checkpoint.step, total, "train it longer", look)
            return 0
        return go_on(run, config, checkpoint, ranks)


def resumed_config(run: RunFolder, overrides: Sequence[str]) -> RunConfig:
    """The run's configuration with overrides.

    Raises:
        ConfigError: An override would change what the saved state depends on.
    """
    values, chosen = run.config(), run.provenance().get("run", {})
    same = {f"{group}={chosen[group]}" for group in GROUPS if group in chosen}
    same.add(f"env={values.get('schemas', {}).get('env', 'sim')}")
    before = from_plain(values)
    config = from_plain(values, [text for text in overrides if text not in same])
    config = replace(config, device=str(run_device(config)))
    if config.device.partition(":")[0] != before.device.partition(":")[0]:
        raise ConfigError(
            f"the run was trained on {before.device} and cannot go on on {config.device}: their "
            f"random streams differ; resume it with device={before.device}, or train a new run"
        )
    old = {field.path: field.value for field in walk_fields(before)}
    for field in walk_fields(config):
        if field.value != old.get(field.path) and not is_free(field.path):
            raise ConfigError(
                f"{field.path} cannot change from {old.get(field.path)} to {field.value} on "
                f"resume: {why_fixed(field.path)}; train a new run for it (without resume=...)"
            )
    for name in _PLACES:
        was, now = (operator.attrgetter(name)(one) for one in (before, config))
        if bool(was) != bool(now):
            raise ConfigError(
                f"{name} cannot change from '{was}' to '{now}' on resume: it may name another "
                "place of the same data, and the run goes on "
                + ("with them" if was else "without any")
                + "; train a new run for it (without resume=...)"
            )
    keys = [key for key in changed_keys(overrides) if key not in GROUPS]
    check_needs(config, keys, beside_robots=run.is_of_learn)
    return config


def is_free(path: str) -> bool:
    """True if a field may change on resume."""
    return path.startswith(_FREE) or (path.startswith("learner.") and path.endswith("_lr"))


def why_fixed(path: str) -> str:
    """Why it may not."""
    return next(reason for start, reason in _FIXED.items() if path.startswith(start))


def newest_runs(folder: str | Path) -> dict[str, Path]:
    """The newest run of each configuration that was asked for, by its `asked_hash`."""
    newest: dict[str, Path] = {}
    for path in find_runs(folder):
        asked = RunFolder.open(path).provenance().get("asked_sha256")
        if isinstance(asked, str):
            newest[asked] = path
    return newest


@contextmanager
def held(config: RunConfig) -> Iterator[bool]:
    """Keep others from beginning the same run, from before it has a folder until it has ended.

    Yields:
        False where another process keeps us from it.

    Raises:
        StorageError: The folder of runs cannot be written.
    """
    folder = Path(config.runs) / ".asked" / asked_hash(config)[:16]
    with storage_errors("hold a run in", folder.absolute()):
        folder.mkdir(parents=True, exist_ok=True)
        lock = take_lock(folder)
    try:
        yield lock is not None
    finally:
        if lock is not None:  # whoever comes now finds the run, if there is one
            discard(folder)
            with suppress(OSError):  # others are held
                folder.parent.rmdir()
            lock.close()
