"""A collector away from the learner: its own worlds, and a copy of the policy that acts in them.

It works on requests only (`CollectRequest`), so that it is never further ahead of the learner than
the requests that wait for it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robot_rl.core.env import BatchEnv, EnvStep, FollowsGlobalStep, Obs
from robot_rl.core.learner import Learner
from robot_rl.core.seeding import derive_seed
from robot_rl.training.cluster.blocks import Block, copied, pack_block
from robot_rl.training.collector import copied_obs

Weights = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class CollectRequest:
    """A block that a collector is to collect."""

    steps: int
    """S: steps of all its worlds."""
    version: int
    """Of the weights that come with it."""
    at_random: bool
    """Draw actions uniformly instead of asking the policy."""
    world_steps: int
    """How far the run is, all collectors together."""


class RemoteCollector:
    """Acts, steps, and hands out what happened."""

    def __init__(self, env: BatchEnv, make_learner: Callable[[int], Learner]) -> None:
        """Join the parts; `begin` must come before the first `collect`.

        Args:
            env: Its worlds.
            make_learner: Makes from a seed what acts and never learns: its policy's weights are
                replaced, its noise is its own.
        """
        self._env = env
        self._make_learner = make_learner
        self._learner: Learner
        self._groups: tuple[str, ...] = ()
        self._generator = torch.Generator(device=env.spec.device)
        self._obs: Obs = {}
        self._version = -1

    def begin(self, seed: int, state: Mapping[str, Any] | None) -> None:
        """Begin new episodes.

        Args:
            seed: Of starts, of exploration and of actions at random.
            state: An `RemoteCollector.state` of before: curricula go on from there.
        """
        if state is not None:
            self._env.load_state_dict(state)
        self._learner, self._version = self._make_learner(seed), -1
        self._groups = (*self._learner.actor_groups, *self._learner.critic_groups)
        self._obs = copied_obs(self._env.reset(seed=seed))
        self._generator.manual_seed(derive_seed(seed, "random actions"))
        everywhere = torch.ones(self._env.spec.num_envs, dtype=torch.bool)
        self._learner.begin(everywhere.to(self._env.spec.device))

    def collect(self, order: CollectRequest, weights: Weights) -> Block:
        """Collect a block.

        Raises:
            NonFiniteError: The worlds report a value that is not a number.
        """
        if order.version != self._version:
            self._take(weights)
            self._version = order.version
        if isinstance(self._env, FollowsGlobalStep):
            self._env.set_global_step(order.world_steps)
        seen, steps = [self._obs], list[EnvStep]()
        with torch.no_grad():
            for _ in range(order.steps):
                step = self._env.step(self._act(order))
                steps.append(copied(step, self._groups))
                self._obs = copied_obs(step.obs)
                self._learner.begin(step.ended)
                seen.append(self._obs)
        self._env.check()
        return pack_block(seen, steps, self._groups, order.version)

    def state(self) -> dict[str, Any]:
        """What its worlds go on from."""
        return self._env.state_dict()

    def _act(self, order: CollectRequest) -> Tensor:
        if not order.at_random:
            return self._learner.act(self._obs, explore=True)
        spec = self._env.spec
        shape = (spec.num_envs, spec.action_size)
        return torch.rand(shape, generator=self._generator, device=spec.device) * 2 - 1

    def _take(self, weights: Weights) -> None:
        tensors = {name: torch.tensor(array) for name, array in weights.items()}
        self._learner.policy().load_state_dict(tensors)


def weights_of(learner: Learner) -> dict[str, np.ndarray]:
    """The weights that act, normaliser and all, as arrays that are not changed any more."""
    state = learner.policy().state_dict()
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in state.items()}
