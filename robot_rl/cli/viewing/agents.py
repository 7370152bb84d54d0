"""Who acts while somebody looks: nobody, chance, a scripted expert, a policy, or a bundle."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from robot_rl.cli.bundling import BundlePolicy
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.episodic import begin_episodes
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.seeding import derive_seed
from sim.env import SimEnv
from sim.experts.catalog import Expert, scripted_expert
from sim.viewing.player import Agent

SIMPLE = ("zero", "random", "scripted")
"""Agents that need no training."""


def make_agent(name: str, env: SimEnv, *, seed: int) -> Agent:
    """An agent by its name, or the one in a bundle's folder.

    Raises:
        ConfigError: It is neither, or the task has no scripted expert.
        BundleError: The folder is no bundle, or it is damaged.
        SpecMismatchError: The bundle is for another robot or control period.
    """
    if name == "zero":
        return ZeroAgent(env.spec)
    if name == "random":
        return RandomAgent(env.spec, seed)
    if name == "scripted":
        return ScriptedAgent(scripted_expert(env))
    if not Path(name).is_dir():
        told = unknown_name("agent", name, SIMPLE)
        raise ConfigError(f"{told}, or the folder of a bundle that export wrote")
    return BundleAgent(BundlePolicy.load(Path(name), env, None))


class ZeroAgent:
    """The middle of every action: rotors at half speed, joints at their default pose."""

    def __init__(self, spec: EnvSpec) -> None:
        """Make the action once."""
        self._action = torch.zeros(spec.num_envs, spec.action_size, device=spec.device)

    def act(self, obs: Obs) -> Tensor:
        """Zero."""
        return self._action

    def begin(self, mask: Tensor) -> None:
        """Nothing is remembered."""


class RandomAgent:
    """Uniform in [-1, 1], anew in every step."""

    def __init__(self, spec: EnvSpec, seed: int) -> None:
        """Seed the stream."""
        self._spec = spec
        self._generator = torch.Generator(device=spec.device)
        self._generator.manual_seed(derive_seed(seed, "random agent"))

    def act(self, obs: Obs) -> Tensor:
        """Anything."""
        spec = self._spec
        shape = (spec.num_envs, spec.action_size)
        return 2 * torch.rand(shape, generator=self._generator, device=spec.device) - 1

    def begin(self, mask: Tensor) -> None:
        """The stream goes on."""


class ScriptedAgent:
    """Rules over the true state of the worlds."""

    def __init__(self, expert: Expert) -> None:
        """Hold the rules."""
        self._expert = expert

    def act(self, obs: Obs) -> Tensor:
        """What the rules say; they look at the worlds themselves."""
        return self._expert.act()

    def begin(self, mask: Tensor) -> None:
        """Nothing is remembered."""


class PolicyAgent:
    """A deterministic policy."""

    def __init__(self, act: Callable[[Obs], Tensor]) -> None:
        """Hold the policy, groups (N, ...) -> (N, A)."""
        self._act = act

    @torch.no_grad()
    def act(self, obs: Obs) -> Tensor:
        """What the policy does."""
        return self._act(obs)

    def begin(self, mask: Tensor) -> None:
        """Tell a policy that remembers."""
        begin_episodes(self._act, mask)


class BundleAgent:
    """A bundle, fed as on a robot."""

    def __init__(self, policy: BundlePolicy) -> None:
        """Hold the policy."""
        self._policy = policy

    def act(self, obs: Obs) -> Tensor:
        """What the bundle does with what the sensors say."""
        return self._policy(obs)

    def begin(self, mask: Tensor) -> None:
        """Forget the episodes that ended."""
        self._policy.begin(mask)
