"""Assembles a training run from its configuration: ranks, env, learner, replay, trainer.

A residual's base, a teacher, collectors of Ray and demonstrations are each one function; a run
without them passes them by.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from configs.builders import run_device
from configs.compose import from_plain, to_plain
from configs.schema import RunConfig, component_of, components, make_env, parts_of_program
from robot_rl.buffers.compiled_returns import find_gather
from robot_rl.buffers.frames import image_bytes
from robot_rl.buffers.returns import RowLayout
from robot_rl.cli.checks import check_settings, check_success_is_judged
from robot_rl.cli.components import bare_env, make_learner, with_base
from robot_rl.cli.learned_reward import (
    check_one_process,
    episode_augmenter,
    minibatch_rewards,
    with_reward,
)
from robot_rl.cli.robustness_axes import read_axes
from robot_rl.core.base_action import BaseActionEnv
from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import ConfigError, SpecMismatchError, unknown_name
from robot_rl.core.learner import Learner
from robot_rl.core.observation import IMAGE_PREFIX
from robot_rl.core.seeding import derive_seed
from robot_rl.learners.cloning import CloningConfig
from robot_rl.rewards.env import LearnedRewardEnv
from robot_rl.training.assembly import assemble_trainer
from robot_rl.training.cloning_trainer import CloningTrainer
from robot_rl.training.cluster.async_collector import AsyncCollector, RemoteEnv
from robot_rl.training.cluster.remote_collector import RemoteCollector
from robot_rl.training.collector import Collector
from robot_rl.training.config import ClusterConfig
from robot_rl.training.evaluation import AS_TRAINED
from robot_rl.training.late_evaluations import EvaluationProcess
from robot_rl.training.ranks import Ranks, check_memory, device_of, seed_of, share_of
from robot_rl.training.snapshots import snapshot_resets
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.trainer import VALIDATION_SEED, Trainer
from sim.env import SimEnv

Record = Callable[[Mapping[str, float]], None]
"""Takes one record of metrics per interval."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that can begin; made before its folder is, so that what cannot be built leaves none."""

    env: BatchEnv
    evaluation_env: BatchEnv
    changed: Mapping[str, BatchEnv]
    """Envs of further conditions that are evaluated under, by their names."""
    ranks: Ranks
    make_trainer: Callable[[CheckpointStore, Record], Trainer | CloningTrainer]
    """Makes the loop, once there is a folder to save in."""
    title: str
    """Envs and devices, for the console."""
    methods: tuple[str, ...] = ()
    """Lines on what computes updates and samples, which are kept with the run."""
    notes: tuple[str, ...] = ()
    """Further lines to show before it begins."""


def build_run(config: RunConfig, ranks: Ranks) -> Run:
    """Build what a process trains with.

    Raises:
        ConfigError: The run cannot be divided, or this machine has too little memory.
        DeviceError: A device does not exist here.
    """
    torch.set_num_threads(config.threads)
    device = device_of(run_device(config), ranks)
    check_settings(config, ranks)
    if isinstance(config.learner, CloningConfig):
        return _build_cloning_run(config, device, ranks)
    if config.cluster.collectors:
        env = _start_collectors(config, device)
        block_steps = config.cluster.steps(config.num_envs)
        make_collector = partial(AsyncCollector, block_steps=block_steps)
    else:
        env, make_collector = make_training_env(config, device, ranks)
    learner = make_learner(config, env.spec, ranks)
    share_of(learner.samples_per_update, ranks, "learner.batch_size")
    check_success_is_judged(config, learner, env)
    methods = (
        f"updates: {learner.update_method}",
        f"samples of the replay: {find_gather(device, learner.compile)[1]}",
    )
    conditions, told = evaluation_conditions(config)
    evaluation_env, changed = env, dict[str, BatchEnv]()
    if not ranks.rank:  # only rank 0 evaluates: the others need no such envs
        evaluation_env, changed = make_evaluation_envs(conditions, device)
    setup = _setup_beside(config, conditions, device, ranks)
    reset_states, inner = None, env.template if isinstance(env, RemoteEnv) else env
    inner = inner.env if isinstance(inner, LearnedRewardEnv) else inner
    sim = inner if isinstance(inner, SimEnv) else None
    if config.training.snapshots.data:
        reset_states = snapshot_resets(config.training.snapshots, env.spec, sim)

    def make_trainer(checkpoints: CheckpointStore, record: Record) -> Trainer:
        return assemble_trainer(
            config.training, env=env, evaluation_env=evaluation_env, learner=learner,
            checkpoints=checkpoints, record=record,
            interval_seconds=config.logging.interval_seconds, seed=seed_of(config.seed, ranks),
            ranks=ranks, reset_states=reset_states, make_collector=make_collector,
            augment=episode_augmenter(config, bare_env(env).spec),
            mirror=sim.mirror if sim else None, pay=minibatch_rewards(config, env, learner),
            changed=changed, beside=_evaluation_process(setup, checkpoints) if setup else None,
        )  # fmt: skip

    return Run(
        env=env, evaluation_env=evaluation_env, changed=changed, ranks=ranks,
        make_trainer=make_trainer, methods=methods,
        title=f"{env.spec.num_envs * ranks.count} envs on {_where(config, device, ranks)}",
        notes=(*told, *replay_notes(config, env, learner, ranks)),
    )  # fmt: skip


def _setup_beside(
    config: RunConfig, conditions: Mapping[str, RunConfig], device: torch.device, ranks: Ranks
) -> dict[str, Any]:
    """All that a process beside evaluates with; empty where none is asked for.

    Raises:
        ConfigError: It cannot be had here.
    """
    if not config.training.evaluation_beside:
        return {}
    asked = "training.evaluation_beside=true starts a process that"
    if isinstance(config.learner, CloningConfig):
        raise ConfigError(f"{asked} is not for learners of demonstrations: leave it out")
    if ranks.count > 1:
        raise ConfigError(f"{asked} is for a training in one process: leave torchrun or it out")
    if parts := parts_of_program(config):
        raise ConfigError(f"{asked} does not know {', '.join(parts)} of your program: leave it out")
    return {
        "conditions": {name: to_plain(one) for name, one in conditions.items()},
        "device": str(device),
    }


def _evaluation_process(
    setup: Mapping[str, Any], checkpoints: CheckpointStore
) -> EvaluationProcess:
    command = [sys.executable, "-m", "robot_rl.cli.evaluation_process"]
    return EvaluationProcess(command, setup, checkpoints.folder.with_name("evaluation_beside.log"))


def _build_cloning_run(config: RunConfig, device: torch.device, ranks: Ranks) -> Run:
    """The same from demonstrations alone: envs only to evaluate in, no replay."""
    from robot_rl.training.demonstrations import read_demonstrations  # pyarrow is an extra

    conditions, told = evaluation_conditions(config)
    _setup_beside(config, conditions, device, ranks)
    env, changed = make_evaluation_envs(conditions, device)
    learner: Any = make_learner(config, env.spec, ranks)  # a `Cloning`
    data = Path(config.training.demonstrations.data)
    _check_task(config, data)
    demonstrations = read_demonstrations(
        data, config.training.demonstrations, env.spec, learner.actor_groups,
        chunk_length=learner.chunk_length, seed=config.seed,
    )  # fmt: skip

    def make_trainer(checkpoints: CheckpointStore, record: Record) -> CloningTrainer:
        return CloningTrainer(
            config.training, evaluation_env=env, learner=learner, demonstrations=demonstrations,
            checkpoints=checkpoints, record=record,
            interval_seconds=config.logging.interval_seconds, changed=changed,
        )  # fmt: skip

    count = sum(one.spec.num_envs for one in (env, *changed.values()))
    return Run(
        env=env, evaluation_env=env, changed=changed, ranks=ranks, make_trainer=make_trainer,
        title=f"{count} envs to evaluate in on {device}", notes=told,
    )  # fmt: skip


def _check_task(config: RunConfig, data: Path) -> None:
    """Refuse episodes that say that they are of another of our tasks."""
    from robot_rl.datasets.reader import EpisodeDataset  # pyarrow

    if config.task is None:
        return
    own = component_of(config.task).name
    known = {one.name for one in components() if one.group == "task"}
    others = sorted(set(EpisodeDataset(data).tasks) & known - {own})
    if others:
        raise SpecMismatchError(
            f"the demonstrations in {data} are of task {', '.join(others)}, and this run is of "
            f"task {own}; name others with training.demonstrations.data=..., or choose "
            f"task={others[0]}"
        )


def make_training_env(
    config: RunConfig, device: torch.device, ranks: Ranks
) -> tuple[BatchEnv, Callable[..., Collector]]:
    """This process's share of the envs, and what steps them for the replay."""
    count = share_of(config.num_envs, ranks, "num_envs")
    if ranks.count > 1:
        check_one_process(config, "torchrun")
    env = make_env(
        config, num_envs=count, device=device, seed=seed_of(config.seed, ranks), evaluation=False,
        copies=ranks.local_count,
    )  # fmt: skip
    follow = env.set_global_step if isinstance(env, SimEnv) else None
    return with_base(config, with_reward(config, env)), partial(Collector, set_global_step=follow)


def make_evaluation_env(config: RunConfig, device: torch.device) -> BatchEnv:
    """One env per evaluation episode, at evaluation starts."""
    env = make_env(
        config, num_envs=config.training.evaluation_episodes, device=device, seed=VALIDATION_SEED,
        evaluation=True,
    )  # fmt: skip
    return with_base(config, env)


def make_evaluation_envs(
    conditions: Mapping[str, RunConfig], device: torch.device
) -> tuple[BatchEnv, dict[str, BatchEnv]]:
    """Envs as trained, and those of further conditions by their names."""
    first, *others = ((name, make_evaluation_env(one, device)) for name, one in conditions.items())
    return first[1], dict(others)


def evaluation_conditions(config: RunConfig) -> tuple[dict[str, RunConfig], tuple[str, ...]]:
    """Runs as they are evaluated, by condition, each with its share of the episodes.

    Returns:
        At least one, as trained first, and lines that tell of several.

    Raises:
        ConfigError: The robot or the task has no such change, or there are too few episodes.
    """
    asked = config.training.evaluation_conditions
    if not asked:
        return {AS_TRAINED: config}, ()
    axes = _axes(config, f"training.evaluation_conditions={asked}")
    every, plain, same = asked == [_EVERY], to_plain(config), list[str]()
    names = list(axes) if every else [_full_name(name, axes) for name in asked]
    found = {AS_TRAINED: config}
    for name in dict.fromkeys(names):
        try:
            changed = from_plain(plain, axes[name])
        except ConfigError as error:
            if every:
                same.append(f"{name} (not for this task)")
                continue
            raise ConfigError(
                f"training.evaluation_conditions: '{name}' is not for this task ({error})"
            ) from error
        if changed != config:
            found[name] = changed
        elif name != AS_TRAINED:
            same.append(f"{name} (training draws that)")
    count, left = divmod(config.training.evaluation_episodes, len(found))
    if not count:
        raise ConfigError(
            f"training.evaluation_episodes={left} are too few for {len(found)} conditions "
            f"({', '.join(found)}); expected at least one of each, and a hundred to tell them apart"
        )
    told = [f"evaluates under {len(found)} conditions, {count} episodes each: {', '.join(found)}"]
    if same:
        told.append(f"left out of the conditions: {', '.join(same)}")
    shares = {name: count + (left if name == AS_TRAINED else 0) for name in found}
    return {
        name: replace(one, training=replace(one.training, evaluation_episodes=shares[name]))
        for name, one in found.items()
    }, tuple(told)


_EVERY = "every"
"""Word for all changes that a robot has."""


def _axes(config: RunConfig, asked: str) -> dict[str, list[str]]:
    if config.robot is None:
        raise ConfigError(f"{asked} changes robots of our own; this env has none")
    return read_axes(config.robot.spec)


def _full_name(name: str, axes: Mapping[str, list[str]]) -> str:
    """The change that a name, or the beginning of one, means."""
    begun = [axis for axis in axes if name and axis.startswith(name)]
    if name in axes or len(begun) == 1:
        return name if name in axes else begun[0]
    if begun:
        raise ConfigError(
            f"training.evaluation_conditions: '{name}' begins {len(begun)} names: "
            f"{', '.join(map(repr, begun))}; give more of one"
        )
    raise ConfigError(unknown_name("training.evaluation_conditions", name, [*axes, _EVERY]))


def _start_collectors(config: RunConfig, device: torch.device) -> RemoteEnv:
    """Start a run's collectors; returns the envs that they step, on the learner's device.

    Raises:
        ConfigError: They cannot be started.
        MissingExtraError: Ray is not installed.
    """
    from robot_rl.training.cluster.ray_fleet import RayFleet  # an extra

    check_one_process(config, "cluster.collectors")
    template = make_env(config, num_envs=1, device=device, seed=config.seed, evaluation=False)
    template = with_base(config, with_reward(config, template))
    fleet = RayFleet(config.cluster, partial(build_remote_collector, config))
    return RemoteEnv(template, config.num_envs, fleet)


def build_remote_collector(config: RunConfig, number: int) -> RemoteCollector:
    """A collector's worlds and its copy of the learner, in the collector's process."""
    torch.set_num_threads(config.threads)
    cluster: ClusterConfig = config.cluster
    seed = derive_seed(config.seed, f"collector {number}") >> 32  # Gymnasium takes 32 bits
    env = make_env(
        config, num_envs=cluster.share(config.num_envs), device=torch.device(cluster.device),
        seed=seed, evaluation=False,
    )  # fmt: skip
    follow = env.set_global_step if isinstance(env, SimEnv) else None
    env = with_base(config, with_reward(config, env))
    return RemoteCollector(
        env, lambda seed: make_learner(replace(config, seed=seed), env.spec), follow
    )


def replay_notes(
    config: RunConfig, env: BatchEnv, learner: Learner, ranks: Ranks
) -> tuple[str, ...]:
    """Lines about the replay's memory and the run's length, before the memory is taken.

    Raises:
        ConfigError: The machine does not have it.
    """
    spec, capacity = env.spec, config.training.replay_capacity
    groups = (*learner.actor_groups, *learner.critic_groups)
    rows = capacity // ranks.count // spec.num_envs * spec.num_envs
    frames = image_bytes(spec, groups, rows)
    needed = rows * RowLayout(spec, groups).row_bytes + frames
    check_memory(
        needed, spec.device, copies=ranks.local_count,
        what=f"replay of {rows:,} transitions",
        remedy=f"lower training.replay_capacity ({capacity})",
    )  # fmt: skip
    text = f"replay: {rows:,} transitions, {needed / 1e6:,.0f} MB on {spec.device}"
    if frames:
        text += f", of it {frames / 1e6:,.0f} MB frames of cameras"
    if ranks.count > 1:
        text += f", for each of {ranks.count} ranks"
    notes = [text]
    inner = env.template if isinstance(env, RemoteEnv) else env
    seen = (*groups, *(inner.base.groups if isinstance(inner, BaseActionEnv) else ()))
    unseen = [name for name in spec.groups if name.startswith(IMAGE_PREFIX) and name not in seen]
    if unseen:
        notes.append(
            f"warning: {', '.join(unseen)}: drawn, and seen by nobody; learner.images.encoder=conv "
            "lets learner and policy see"
        )
    if not config.training.save_replay:
        notes.append("it is not saved: a resumed run will begin with an empty one")
    if unlearned := config.training.unlearned:
        notes.append(f"warning: {unlearned}")
    return tuple(notes)


def _where(config: RunConfig, device: torch.device, ranks: Ranks) -> str:
    if config.cluster.collectors:
        return f"{config.cluster.collectors} collectors, learner on {device}"
    return str(device) if ranks.count == 1 else f"{ranks.count} ranks on {device.type}"
