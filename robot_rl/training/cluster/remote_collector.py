"""A collector away from the learner: its own envs, and a copy of the policy that acts in them.

It works on requests only (`CollectRequest`), so that it is never further ahead of the learner than
the requests that wait for it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robot_rl.core.env import BatchEnv, EnvStep, Obs
from robot_rl.core.learner import Learner
from robot_rl.core.seeding import derive_seed
from robot_rl.training.collector import copied_obs
from robot_rl.training.storage.state_tree import flatten, restore

_FIELDS = ("reward", "terminated", "truncated", "success", "valid", "action", "intervened")


@dataclass(frozen=True, kw_only=True)
class Block:
    """S steps of n envs, in order of time."""

    obs: dict[str, np.ndarray]
    """Observations that were acted on, (S + 1, n, ...): the last is acted on next."""
    next_obs: dict[str, np.ndarray]
    """True successors, groups (S, n, ...)."""
    fields: dict[str, np.ndarray]
    """The other entries of `EnvStep`, (S, n, ...)."""
    weights: np.ndarray | None
    """Of the reward terms, (S, K), where there are terms."""
    version: int
    """Version of the policy that acted."""

    @property
    def steps(self) -> int:
        """S."""
        return len(self.fields["reward"])

    def step(self, t: int, device: torch.device) -> tuple[Obs, EnvStep]:
        """Observations that were acted on, and the step that followed."""

        def there(array: np.ndarray) -> Tensor:
            return torch.tensor(array[t], device=device)  # a copy: what was sent is read-only

        fields: dict[str, Any] = {name: there(array) for name, array in self.fields.items()}
        after = {name: torch.tensor(x[t + 1], device=device) for name, x in self.obs.items()}
        return {name: there(array) for name, array in self.obs.items()}, EnvStep(
            obs=after,
            next_obs={name: there(array) for name, array in self.next_obs.items()},
            reward_terms=fields.pop("reward_terms", None),
            reward_weights=None if self.weights is None else there(self.weights),
            **fields,
        )


def pack_block(
    obs: Sequence[Obs], steps: Sequence[EnvStep], groups: Sequence[str], version: int
) -> Block:
    """Join steps into a block.

    Args:
        obs: What was acted on, and what is acted on next: one more than there are steps.
        steps: Copies that no later step overwrites.
        groups: Observation groups that the learner needs; others stay behind.
    """
    first = steps[0]
    named = first.reward_terms is not None
    weighs = first.reward_weights is not None
    names = (*_FIELDS, "reward_terms") if named else _FIELDS
    return Block(
        obs={name: _joined(one[name] for one in obs) for name in groups},
        next_obs={name: _joined(step.next_obs[name] for step in steps) for name in groups},
        fields={name: _joined(getattr(step, name) for step in steps) for name in names},
        weights=_joined(_weights(step) for step in steps) if weighs else None,
        version=version,
    )


def copied(step: EnvStep, groups: Sequence[str]) -> EnvStep:
    """A step that the next one does not overwrite, without what the learner does not need."""
    fields: dict[str, Any] = {name: getattr(step, name).clone() for name in _FIELDS}
    return EnvStep(
        obs={},
        next_obs={name: step.next_obs[name].clone() for name in groups},
        reward_terms=None if step.reward_terms is None else step.reward_terms.clone(),
        reward_weights=None if step.reward_weights is None else step.reward_weights.clone(),
        **fields,
    )


def joined_steps(steps: Sequence[EnvStep]) -> EnvStep:
    """One step of the envs of all collectors, those of the first one first."""
    fields: dict[str, Any] = {
        name: torch.cat([getattr(step, name) for step in steps]) for name in _FIELDS
    }
    terms = [step.reward_terms for step in steps if step.reward_terms is not None]
    weights = [step.reward_weights for step in steps if step.reward_weights is not None]
    return EnvStep(
        obs=joined_obs([step.obs for step in steps]),
        next_obs=joined_obs([step.next_obs for step in steps]),
        reward_terms=torch.cat(terms) if terms else None,
        reward_weights=weights[0] if weights else None,
        **fields,
    )


def joined_obs(parts: Sequence[Obs]) -> Obs:
    """Observations of the envs of all collectors."""
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _joined(parts: Iterable[Tensor]) -> np.ndarray:
    return torch.stack(list(parts)).cpu().numpy()


def _weights(step: EnvStep) -> Tensor:
    assert step.reward_weights is not None
    return step.reward_weights


Weights = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class CollectRequest:
    """A block that a collector is to collect."""

    steps: int
    """S: steps of all its envs."""
    version: int
    """Of the weights that come with it."""
    at_random: bool
    """Draw actions uniformly instead of asking the policy."""
    env_steps: int
    """Steps of the run, all collectors together."""


class RemoteCollector:
    """Acts, steps, and hands out what happened."""

    def __init__(
        self, env: BatchEnv, make_learner: Callable[[int], Learner],
        set_global_step: Callable[[int], None] | None = None,
    ) -> None:  # fmt: skip
        """Join the parts; `begin` must come before the first `collect`.

        Args:
            make_learner: Makes from a seed what acts and never learns: its policy's weights are
                replaced, its noise is its own.
            set_global_step: Tells the envs how far the run is, all collectors together.
        """
        self._env = env
        self._make_learner = make_learner
        self._set_global_step = set_global_step
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

    def collect(self, request: CollectRequest, weights: Weights) -> Block:
        """Collect a block.

        Raises:
            NonFiniteError: The envs report a value that is not a number.
        """
        if request.version != self._version:
            tensors = {name: torch.tensor(array) for name, array in weights.items()}
            self._learner.policy().load_state_dict(tensors)
            self._version = request.version
        if self._set_global_step is not None:
            self._set_global_step(request.env_steps)
        seen, steps = [self._obs], list[EnvStep]()
        with torch.no_grad():
            for _ in range(request.steps):
                step = self._env.step(self._act(request))
                steps.append(copied(step, self._groups))
                self._obs = copied_obs(step.obs)
                self._learner.begin(step.ended)
                seen.append(self._obs)
        self._env.check()
        return pack_block(seen, steps, self._groups, request.version)

    def state(self) -> dict[str, Any]:
        """State that its envs go on from, where the learner can read it: on the CPU."""
        return restore(*flatten(self._env.state_dict()))

    def _act(self, request: CollectRequest) -> Tensor:
        if not request.at_random:
            return self._learner.act(self._obs, explore=True)
        spec = self._env.spec
        shape = (spec.num_envs, spec.action_size)
        return torch.rand(shape, generator=self._generator, device=spec.device) * 2 - 1


def weights_of(learner: Learner) -> dict[str, np.ndarray]:
    """The weights that act, normaliser and all, as arrays that are not changed any more."""
    state = learner.policy().state_dict()
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in state.items()}
