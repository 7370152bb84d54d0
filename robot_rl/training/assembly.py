"""Assembles a `Trainer` from its settings: replay, stored experience, minibatches, phases.

replay -> prior data -> minibatches -> schedule -> collector -> trainer
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from robot_rl.buffers.minibatches import Minibatches, MirrorImages
from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import Learner
from robot_rl.core.mirror import EnvMirror
from robot_rl.core.transition import Batch
from robot_rl.training.collector import Collector
from robot_rl.training.config import Symmetry, TrainerConfig
from robot_rl.training.late_evaluations import EvaluationProcess
from robot_rl.training.prior import Prior, open_prior
from robot_rl.training.ranks import Ranks, share_of
from robot_rl.training.schedule import PhaseSchedule, check_offline
from robot_rl.training.start import load_start
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.trainer import Stored, Trainer

if TYPE_CHECKING:
    from robot_rl.training.prior_episodes import ObservationAugmenter  # pyarrow is an extra


def assemble_trainer(
    config: TrainerConfig, *, env: BatchEnv, evaluation_env: BatchEnv, learner: Learner,
    checkpoints: CheckpointStore, record: Callable[[Mapping[str, float]], None],
    interval_seconds: float, seed: int, ranks: Ranks | None = None,
    reset_states: Stored | None = None, augment: "ObservationAugmenter | None" = None,
    make_collector: Callable[..., Collector] = Collector,
    mirror: Callable[[], EnvMirror] | None = None,
    pay: Callable[[Batch], Batch] | None = None,
    changed: Mapping[str, BatchEnv] | None = None, beside: EvaluationProcess | None = None,
) -> Trainer:  # fmt: skip
    """Build the loop over an environment and a learner.

    Args:
        env: Envs to learn in; with several ranks this one's.
        evaluation_env: Envs to evaluate in; used by rank 0.
        seed: Seed of starts, random actions and sampling; another one on every rank.
        reset_states: States that episodes begin in at first, which the environment has already.
        augment: Adds to stored episodes the groups that the envs add to observations.
        mirror: The environment's left and right exchanged; None where it knows none.
        pay: Gives minibatches their rewards anew; None for those that were stored.
        changed: Envs of further conditions to evaluate under, by their names.
        beside: Process that evaluates while this one trains.

    Raises:
        ConfigError: The parts do not fit each other.
        CheckpointError: Stored experience is damaged.
        SpecMismatchError: Stored experience is of other envs.
    """
    ranks = ranks or Ranks()
    replay = make_replay(config, env, learner, ranks, seed)
    prior = _open_prior(config, env, learner, replay, ranks, seed, augment)
    size = share_of(learner.samples_per_update, ranks, "learner.batch_size")
    images = None
    if config.symmetry is Symmetry.augment:
        if mirror is None:
            raise ConfigError(
                "training.symmetry=augment needs an environment that knows its left and right, "
                "such as task=velocity robot=go2; this one describes none: choose "
                "training.symmetry=none"
            )
        images = MirrorImages(mirror(), env.spec.device)
    minibatches = Minibatches(
        replay, size, prior=prior.replay if prior and config.prior.share > 0 else None,
        share=config.prior.share, images=images, pay=pay,
    )  # fmt: skip
    schedule = PhaseSchedule(
        config.offline, learner, start_steps=config.start_steps, prior=prior,
        minibatches=Minibatches(prior.replay, size, images=images, pay=pay) if prior else None,
    )  # fmt: skip
    collector = make_collector(
        env, learner, replay, random_steps=0 if config.begins_trained else config.random_steps,
        seed=seed, ranks=ranks,
    )  # fmt: skip
    stored = {"prior": prior, "snapshots": reset_states}

    def warm_start() -> None:
        if config.start.run:
            load_start(config.start, learner)  # its normalisers are what it acts with
        else:
            schedule.warm_start_normalizers()

    return Trainer(
        config, learner=learner, collector=collector, minibatches=minibatches, schedule=schedule,
        evaluation_env=evaluation_env, checkpoints=checkpoints, record=record,
        interval_seconds=interval_seconds, ranks=ranks, warm_start=warm_start, changed=changed,
        beside=beside,
        stored={name: one for name, one in stored.items() if one is not None},
    )  # fmt: skip


def make_replay(
    config: TrainerConfig, env: BatchEnv, learner: Learner, ranks: Ranks, seed: int
) -> ReplayBuffer:
    """A rank's share of the replay, with what the learner asks of it."""
    wanted, spec = learner.monte_carlo_returns, env.spec
    replay = ReplayBuffer(
        spec, (*learner.actor_groups, *learner.critic_groups),
        capacity=config.replay_capacity // ranks.count, gamma=learner.gamma, n_step=learner.n_step,
        chunks=learner.chunk_length > 0, interventions=learner.intervention_mask,
        config=config.replay, seed=seed, compile=learner.compile,
        returns=wanted if wanted is not None and wanted.online else None,
    )  # fmt: skip
    if spec.reward_weights:
        replay.set_reward_weights(torch.tensor(spec.reward_weights, device=spec.device))
    return replay


def _open_prior(
    config: TrainerConfig, env: BatchEnv, learner: Learner, replay: ReplayBuffer, ranks: Ranks,
    seed: int, augment: Any,
) -> Prior | None:  # fmt: skip
    """Stored experience, where some is named; refuses what cannot learn from it alone."""
    check_offline(config.offline, env.spec, learner)
    if not config.prior.run:
        return None
    prior = open_prior(
        config.prior, replay, env.spec, (*learner.actor_groups, *learner.critic_groups),
        seed=seed, augment=augment, returns=learner.monte_carlo_returns,
        held_out=config.offline.held_out if config.offline.updates else 0.0,
        copies=ranks.local_count,
    )  # fmt: skip
    prior.set_sampling_weights(config.prior)
    return prior
