"""Policies of Gymnasium environments, exported: observation in, action out, without a robot."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from configs.schema import RunConfig
from configs.schema import make_env as make_run_env
from policies.env_policy import EnvPolicySpec, read_env_policy
from policies.export import export_env_policy
from robot_rl.cli.bundling import Exported, network_and_chunks, origin_of, told_config
from robot_rl.cli.components import load_policy
from robot_rl.core.errors import ConfigError
from robot_rl.training.runs.run_folder import RunFolder
from sim.adapters.gymnasium_env import ActionChoice, action_scale
from sim.adapters.gymnasium_film import native_policy
from sim.adapters.gymnasium_make import make_single

_STEPS = 100
"""Of the environment, in which the exported policy is compared with torch."""


def reason_not_exported(config: RunConfig, groups: Sequence[str], policy: nn.Module) -> str:
    """Reason why a policy of a Gymnasium environment cannot be exported; empty where it can.

    Args:
        groups: Names of the observation groups of the env's `EnvSpec`.
    """
    if network_and_chunks(policy)[1]:
        return "remembers or plans"
    with closing(make_single(config.env)) as single:
        space: Any = single.observation_space
    if hasattr(space, "low") and list(groups) == ["actor"]:
        return ""
    return f"reads {type(space).__name__} as {', '.join(groups)}"


def export_env_run(run: RunFolder, config: RunConfig, which: str, path: Path) -> Exported:
    """Export the policy of a run in a Gymnasium environment, and ask it again what torch answered.

    Raises:
        BundleError: The network cannot be exported, or `path` holds something else.
        CheckpointError: There is no such checkpoint.
        ConfigError: It sees more than one array of numbers, or remembers.
        StorageError: The folder cannot be written.
    """
    env = make_run_env(config, num_envs=1, device=torch.device("cpu"), seed=0, evaluation=True)
    with closing(env):
        policy = load_policy(run, config, env.spec, which)
    if reason := reason_not_exported(config, list(env.spec.groups), policy.module):
        raise ConfigError(
            f"the policy of '{config.env.id}' {reason}; what is exported answers one array of "
            "numbers: play it with run.evaluate() and run.policy()"
        )
    network, _ = network_and_chunks(policy.module)
    single = make_single(config.env)
    space = single.observation_space
    scale = action_scale(single.action_space, config.env.action_low, config.env.action_high)
    seen: list[np.ndarray] = []
    act, (observation, _) = native_policy(config.env, policy.module), single.reset(seed=0)
    for _ in range(_STEPS):
        seen.append(np.ravel(observation).astype(np.float32))
        observation, _, ended, cut, _ = single.step(act(observation))
        if ended or cut:
            observation, _ = single.reset()
    single.close()
    meaning: dict[str, Any]
    if isinstance(scale, ActionChoice):
        meaning = {"low": [], "high": [], "choices": scale.size, "first": scale.first}
    else:
        meaning = {"low": scale.low.ravel().tolist(), "high": scale.high.ravel().tolist()}
    spec = EnvPolicySpec(
        environment=config.env.id, observation_shape=list(space.shape or ()),
        action_shape=list(single.action_space.shape or ()),
        action_dtype=str(single.action_space.dtype), **meaning,
    )  # fmt: skip
    export_env_policy(
        path, policy=network, spec=spec, observations=np.stack(seen),
        provenance={**origin_of(run, config, policy), "config": told_config(config)},
    )  # fmt: skip
    exported, rows = read_env_policy(path, verify=False), np.stack(seen)  # export verified it
    decided = getattr(network, "decided", None)
    if decided is not None:  # else rounding chooses
        rows = rows[decided({"actor": torch.from_numpy(rows)}).numpy()]
    unit = network({"actor": torch.from_numpy(rows)}).detach().clamp(-1.0, 1.0)
    difference = np.abs(exported.actions(rows).ravel() - scale.to_native(unit).ravel())
    return Exported(
        path=path,
        difference=float(difference.max()),
        num_envs=1,
        steps=_STEPS,
        of_robot=False,
    )
