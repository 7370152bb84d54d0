"""Assembles a training run from its configuration: ranks, env, learner, replay, trainer.

A residual's base, a teacher, collectors of Ray and demonstrations are each one function called from
here; a run without them passes them by.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from configs.builders import run_device
from configs.schema import RunConfig, make_env
from policies.networks.trunks import NetworkKind
from robot_rl.buffers.returns import RowLayout
from robot_rl.cli.base_policy import observation_augmenter, with_base, without_base
from robot_rl.cli.collectors import check_collectors, collector_maker, start_collectors
from robot_rl.cli.components import make_learner
from robot_rl.cli.demonstrations import check_cloning, cloning_parts
from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import Learner
from robot_rl.learners.cloning import CloningConfig
from robot_rl.training.assembly import assemble_trainer
from robot_rl.training.cloning_trainer import CloningTrainer
from robot_rl.training.cluster.fleet import RemoteEnv
from robot_rl.training.collector import Collector
from robot_rl.training.prior import check_place
from robot_rl.training.ranks import Ranks, check_memory, device_of, seed_of, share_of
from robot_rl.training.snapshots import snapshot_resets
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.trainer import VALIDATION_SEED, Trainer
from sim.env import SimEnv

_ENV_BYTES = 2000
"""Memory of one env, at least: measured with hover, the smallest [B]."""
Record = Callable[[Mapping[str, float]], None]
"""Takes one record of metrics per interval."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that can begin; made before its folder is, so that what cannot be built leaves none."""

    env: BatchEnv
    evaluation_env: BatchEnv
    ranks: Ranks
    make_trainer: Callable[[CheckpointStore, Record], Trainer | CloningTrainer]
    """Makes the loop, once there is a folder to save in."""
    title: str
    """Envs and devices, for the console."""
    notes: tuple[str, ...] = ()
    """Lines to show before it begins."""


def build_run(config: RunConfig, ranks: Ranks) -> Run:
    """Build what a process trains with.

    Args:
        config: The whole run's.
        ranks: Processes that train it together.

    Raises:
        ConfigError: The run cannot be divided, or this machine has too little memory.
        DeviceError: A device does not exist here.
    """
    torch.set_num_threads(config.threads)
    device = device_of(run_device(config), ranks)
    if config.cluster.collectors:
        check_collectors(config, ranks)
    if isinstance(config.learner, CloningConfig):
        return _build_cloning_run(config, device, ranks)
    check_run(config)
    if config.cluster.collectors:
        env, make_collector = start_collectors(config, device), collector_maker(config)
    else:
        env, make_collector = make_training_env(config, device, ranks)
    learner = make_learner(config, env.spec, ranks)
    share_of(learner.samples_per_update, ranks, "learner.batch_size")
    check_success_is_judged(config, learner, env)
    notes = replay_notes(config, env, learner, ranks)
    # Only rank 0 evaluates: the others need no such envs.
    evaluation_env = env if ranks.rank else make_evaluation_env(config, device)
    reset_states, inner = None, env.template if isinstance(env, RemoteEnv) else env
    sim = inner if isinstance(inner, SimEnv) else None
    if config.training.snapshots.data:
        reset_states = snapshot_resets(config.training.snapshots, env.spec, sim)

    def make_trainer(checkpoints: CheckpointStore, record: Record) -> Trainer:
        return assemble_trainer(
            config.training, env=env, evaluation_env=evaluation_env, learner=learner,
            checkpoints=checkpoints, record=record,
            interval_seconds=config.logging.interval_seconds, seed=seed_of(config.seed, ranks),
            ranks=ranks, reset_states=reset_states, make_collector=make_collector,
            augment=observation_augmenter(config, without_base(env).spec),
            mirror=sim.mirror if sim else None,
        )  # fmt: skip

    return Run(
        env=env, evaluation_env=evaluation_env, ranks=ranks, make_trainer=make_trainer,
        title=f"{env.spec.num_envs * ranks.count} envs on {_where(config, device, ranks)}",
        notes=notes,
    )  # fmt: skip


def _build_cloning_run(config: RunConfig, device: torch.device, ranks: Ranks) -> Run:
    """The same from demonstrations alone: envs only to evaluate in, no replay."""
    check_cloning(config, ranks)
    env = make_evaluation_env(config, device)
    learner, demonstrations = cloning_parts(config, env, ranks)

    def make_trainer(checkpoints: CheckpointStore, record: Record) -> CloningTrainer:
        return CloningTrainer(
            config.training, evaluation_env=env, learner=learner, demonstrations=demonstrations,
            checkpoints=checkpoints, record=record,
            interval_seconds=config.logging.interval_seconds,
        )  # fmt: skip

    title = f"{env.spec.num_envs} envs to evaluate in on {device}"
    return Run(env=env, evaluation_env=env, ranks=ranks, make_trainer=make_trainer, title=title)


def make_training_env(
    config: RunConfig, device: torch.device, ranks: Ranks
) -> tuple[BatchEnv, Callable[..., Collector]]:
    """This process's share of the envs, and what steps them for the replay."""
    count = share_of(config.num_envs, ranks, "num_envs")
    check_memory(
        count * _ENV_BYTES, device, copies=ranks.local_count,
        what=f"{count:,} envs", remedy=f"lower num_envs ({config.num_envs})",
    )  # fmt: skip
    env = make_env(
        config, num_envs=count, device=device, seed=seed_of(config.seed, ranks), evaluation=False
    )
    follow = env.set_global_step if isinstance(env, SimEnv) else None
    return with_base(config, env), partial(Collector, set_global_step=follow)


def make_evaluation_env(config: RunConfig, device: torch.device) -> BatchEnv:
    """One env per evaluation episode, at evaluation starts."""
    count = config.training.evaluation_episodes
    env = make_env(
        config, num_envs=count, device=device, seed=VALIDATION_SEED, evaluation=True
    )  # fmt: skip
    return with_base(config, env)


def check_run(config: RunConfig) -> None:
    """Refuse settings that contradict each other, before anything is made."""
    if config.training.demonstrations.data:
        raise ConfigError(
            f"training.demonstrations.data={config.training.demonstrations.data} is for learners "
            "that learn from demonstrations alone; choose learner=bc, flow or act, or mix them "
            "into what this learner sees with training.prior.run=..."
        )
    if config.training.prior.run:
        check_place(config.training.prior)
    _check_real(config)
    _check_frozen(config)


def _check_real(config: RunConfig) -> None:
    """Refuse to weigh simulated transitions beside none: H2O itself would say so much later."""
    gap, prior = getattr(config.learner, "dynamics_gap", None), config.training.prior
    if gap is not None and gap.weight > 0 and not (prior.run and prior.share > 0):
        raise ConfigError(
            f"learner.dynamics_gap.weight={gap.weight} weighs simulated transitions beside real "
            f"ones, of which training.prior.run='{prior.run}' and training.prior.share="
            f"{prior.share} give none; name them, with a share such as 0.5"
        )


def _check_frozen(config: RunConfig) -> None:
    """Refuse normalisers that would never take anything in."""
    frozen, training = getattr(config.learner, "freeze_normalizers", False), config.training
    if frozen and not (training.prior.run or training.start.run):
        raise ConfigError(
            "learner.freeze_normalizers=true leaves normalisers at stored experience, and there "
            "is none; name some with training.prior.run=..., or a run whose learner has "
            "seen some with training.start.run=..."
        )
    if not frozen:
        return
    parts = {name: getattr(config.learner, name, None) for name in ("actor", "critic", "value")}
    flash = [n for n, part in parts.items() if getattr(part, "kind", None) is NetworkKind.flash]
    if flash:
        raise ConfigError(
            f"learner.freeze_normalizers=true does not hold the batch norm of learner.{flash[0]}"
            ".kind=flash, which goes on with every minibatch; take mlp, simba or bro, or set "
            "learner.freeze_normalizers=false"
        )


def check_success_is_judged(config: RunConfig, learner: Learner, env: BatchEnv) -> None:
    """Refuse to count every episode of worlds that judge no success as a failure."""
    wanted = learner.monte_carlo_returns
    if wanted is None or not (wanted.online and wanted.failure_reward):
        return
    if not env.spec.judges_success:
        raise ConfigError(
            f"learner.conservatism.failure_reward={wanted.failure_reward} counts own episodes "
            "without success as failures, and these worlds judge none; "
            + (
                "name what does with env.success=..., or take failure_reward=0"
                if hasattr(config.env, "success")
                else "take failure_reward=0"
            )
        )


def replay_notes(
    config: RunConfig, env: BatchEnv, learner: Learner, ranks: Ranks
) -> tuple[str, ...]:
    """Lines about the replay's memory and the run's length, before the memory is taken.

    Raises:
        ConfigError: The machine does not have it.
    """
    spec, capacity = env.spec, config.training.replay_capacity
    layout = RowLayout(spec, (*learner.actor_groups, *learner.critic_groups))
    rows = capacity // ranks.count // spec.num_envs * spec.num_envs
    needed = rows * layout.row_bytes
    check_memory(
        needed, spec.device, copies=ranks.local_count,
        what=f"replay of {rows:,} transitions",
        remedy=f"lower training.replay_capacity ({capacity})",
    )  # fmt: skip
    text = f"replay: {rows:,} transitions, {needed / 1e6:,.0f} MB on {spec.device}"
    if ranks.count > 1:
        text += f", for each of {ranks.count} ranks"
    notes = [text]
    if not config.training.save_replay:
        notes.append("it is not saved: a resumed run will begin with an empty one")
    if unlearned := config.training.unlearned:
        notes.append(f"warning: {unlearned}")
    return tuple(notes)


def _where(config: RunConfig, device: torch.device, ranks: Ranks) -> str:
    if config.cluster.collectors:
        return f"{config.cluster.collectors} collectors, learner on {device}"
    return str(device) if ranks.count == 1 else f"{ranks.count} ranks on {device.type}"
