"""Collectors of a run in processes of their own: worlds and a copy of the learner in each."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from configs.schema import RunConfig, component_of, make_env
from robot_rl.cli.base_policy import with_base
from robot_rl.cli.components import make_learner
from robot_rl.core.errors import ConfigError
from robot_rl.core.seeding import derive_seed
from robot_rl.training.cluster.async_collector import AsyncCollector
from robot_rl.training.cluster.fleet import RemoteEnv
from robot_rl.training.cluster.remote_collector import RemoteCollector
from robot_rl.training.config import ClusterConfig
from robot_rl.training.ranks import Ranks
from sim.env import SimEnv


def check_collectors(config: RunConfig, ranks: Ranks) -> None:
    """Refuse what cannot be collected elsewhere, before any process is started.

    Raises:
        ConfigError: It cannot.
    """
    asked = f"cluster.collectors={config.cluster.collectors}"
    if ranks.count > 1:
        raise ConfigError(
            f"{asked} has one learner, and torchrun started {ranks.count}; leave torchrun out: "
            "robot-rl train ..."
        )
    component = component_of(config.learner)
    if "teacher" in component.needs:
        raise ConfigError(
            f"{asked}: learner={component.name} acts by more than its policy, which is all that "
            "collectors hear of; leave cluster.collectors out"
        )
    if config.training.demonstrations.data:
        raise ConfigError(f"{asked}: learning from demonstrations collects nothing; leave it out")
    if config.training.snapshots.data:
        raise ConfigError(
            f"{asked}: training.snapshots begins episodes in worlds of the learner's own process; "
            "leave one of the two out"
        )
    config.cluster.share(config.num_envs)


def start_collectors(config: RunConfig, device: torch.device) -> RemoteEnv:
    """Start a run's collectors; the envs that they step, as the learner sees them.

    Args:
        config: The run.
        device: Of the learner.

    Raises:
        ConfigError: They cannot be started.
        MissingExtraError: Ray is not installed.
    """
    from robot_rl.training.cluster.ray_fleet import RayFleet  # an extra

    template = with_base(
        config,
        make_env(config, num_envs=1, device=device, seed=config.seed, evaluation=False),
    )
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
    env = with_base(config, env)
    return RemoteCollector(
        env, lambda seed: make_learner(replace(config, seed=seed), env.spec), follow
    )


def collector_maker(config: RunConfig) -> Callable[..., Any]:
    """Makes what the training loop takes steps from."""
    return partial(AsyncCollector, block_steps=config.cluster.steps(config.num_envs))
