"""The base of a residual run: read, put around worlds and actors, and kept with the run."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from configs.schema import RunConfig
from policies.networks.frozen import CorrectedPolicy, FrozenBase, read_base
from policies.networks.residual import ResidualActor
from robot_rl.core.base_action import BaseActionEnv
from robot_rl.core.env import BatchEnv, EnvSpec
from robot_rl.learners.residual import ResidualConfig
from robot_rl.training.runs.run_folder import RunFolder
from robot_rl.training.storage.durable import storage_errors

if TYPE_CHECKING:
    from robot_rl.training.prior_episodes import ObservationAugmenter

_KEPT = "base"
"""Folder in a run: policies by their number."""


def _base(config: RunConfig, spec: EnvSpec, count: int) -> FrozenBase:
    assert isinstance(config.learner, ResidualConfig)
    terms = None if config.task is None else config.task.actor
    return FrozenBase(read_base(config.learner.base, spec, terms), count, spec.action_size)


def with_base(config: RunConfig, env: BatchEnv) -> BatchEnv:
    """The worlds, with what the base would do where the run is one of a residual."""
    if not isinstance(config.learner, ResidualConfig):
        return env
    return BaseActionEnv(env, _base(config, env.spec, env.spec.num_envs))


def without_base(env: BatchEnv) -> BatchEnv:
    """The worlds themselves."""
    return env.env if isinstance(env, BaseActionEnv) else env


def observation_augmenter(config: RunConfig, spec: EnvSpec) -> "ObservationAugmenter | None":
    """Adds the base's actions to stored episodes; None without a base."""
    if not isinstance(config.learner, ResidualConfig):
        return None
    from robot_rl.training.prior_episodes import BaseActions  # pyarrow is an extra

    return BaseActions(_base(config, spec, 1), spec.action_size)


def playable(config: RunConfig, spec: EnvSpec, policy: nn.Module) -> nn.Module:
    """A policy that acts in worlds as they are: a residual brings its base."""
    if not isinstance(policy, ResidualActor):
        return policy
    return CorrectedPolicy(policy, _base(config, spec, spec.num_envs))


def keep_base(run: RunFolder, config: RunConfig) -> None:
    """Copy the base into the run's folder: where it came from may go.

    Raises:
        StorageError: The disk refused.
    """
    if not isinstance(config.learner, ResidualConfig):
        return
    with storage_errors("keep the base policy in", run.path):
        for number, name in enumerate(config.learner.base.paths):
            kept = run.path / _KEPT / f"{number}{Path(name).suffix}"
            kept.parent.mkdir(exist_ok=True)
            if Path(name).is_dir():
                shutil.copytree(name, kept)
            else:
                shutil.copyfile(name, kept)


def kept_base(run: RunFolder, config: RunConfig) -> RunConfig:
    """The config with the base that lies in the run's folder."""
    if not isinstance(config.learner, ResidualConfig):
        return config
    base = config.learner.base
    kept = [run.path / _KEPT / f"{i}{Path(name).suffix}" for i, name in enumerate(base.paths)]
    paths = [str(k) if k.exists() else name for k, name in zip(kept, base.paths, strict=True)]
    return replace(config, learner=replace(config.learner, base=replace(base, paths=paths)))
