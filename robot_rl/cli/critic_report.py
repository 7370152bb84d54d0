"""A run's critics and stored steps, brought together."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from configs.builders import pick_device
from configs.compose import from_plain
from configs.schema import component_of, make_env
from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.cli.components import kept_base, make_learner, observation_augmenter, with_base
from robot_rl.core.errors import ConfigError
from robot_rl.core.transition import Batch
from robot_rl.learners.sac import SAC
from robot_rl.training.prior import open_prior
from robot_rl.training.reporting.statistics import calibrate
from robot_rl.training.runs.run_folder import RunFolder
from robot_rl.training.storage.checkpoint import CheckpointStore


def compare_critics(path: Path, which: str, data: str, parts: int) -> Iterator[str]:
    """Lines of a table.

    Args:
        path: Folder of the run.
        which: Its checkpoint: latest, best, or the folder of one.
        data: Stored steps; empty takes those that the run learned from.
        parts: Parts that every episode is cut into.

    Raises:
        ConfigError: The learner has no such critics, or there are no stored steps.
        CheckpointError: There is no such checkpoint, or it is damaged.
    """
    torch.set_num_threads(1)
    run = RunFolder.open(path)
    config = kept_base(run, from_plain(run.config()))
    stored = replace(config.training.prior, run=data or config.training.prior.run)
    if not stored.run:
        raise ConfigError(
            f"the run {run.path} learned from no stored steps; name some: data=<folder of a data "
            "set, or of a run with a saved replay>"
        )
    env = make_env(config, num_envs=1, device=pick_device("cpu"), seed=0, evaluation=False)
    augment = observation_augmenter(config, env.spec)
    env = with_base(config, env)
    learner = make_learner(config, env.spec)
    if not isinstance(learner, SAC):
        raise ConfigError(
            f"learner={component_of(config.learner).name} has no critics that could be asked here; "
            "expected one of the family of SAC, such as sac, rlpd, residual, cql or h2o"
        )
    checkpoint = CheckpointStore(run.checkpoints, read_only=True).load(which)
    learner.load_state_dict(checkpoint.state["learner"])
    groups = (*learner.actor_groups, *learner.critic_groups)
    own = ReplayBuffer(
        env.spec, groups, capacity=learner.n_step, gamma=learner.gamma, n_step=learner.n_step
    )
    if env.spec.reward_weights:
        own.set_reward_weights(torch.tensor(env.spec.reward_weights))
    prior = open_prior(stored, own, env.spec, groups, seed=0, augment=augment)
    yield f"{run.path.name}, step {checkpoint.step:,}; {prior.sentence}"
    yield from _table(learner, prior.replay, parts)


def _table(learner: SAC, replay: ReplayBuffer, parts: int) -> Iterator[str]:
    scale = float(learner.reward_scale.scale(torch.ones(1)))

    @torch.no_grad()
    def value(batch: Batch) -> tuple[Tensor, Tensor]:
        """In the rewards' own size."""
        of = learner.values.expectation
        stored = of(learner.critic(batch.obs, batch.action))
        policy = of(learner.critic(batch.obs, learner.actor(batch.obs))).mean(0)
        return stored / scale, policy / scale

    names = ("of the episode", "rows", "return", "value", "of policy", "spread", "correlation")
    yield "  ".join(f"{name:>14}" for name in names)
    for one in calibrate(replay, value, parts=parts):
        cells = (
            f"{one.begin:.0%} to {one.end:.0%}", f"{one.rows:,}", f"{one.returned:.4g}",
            f"{one.stored:.4g}", f"{one.policy:.4g}", f"{one.disagreement:.3g}",
            f"{one.correlation:.2f}",
        )  # fmt: skip
        yield "  ".join(f"{cell:>14}" for cell in cells)
