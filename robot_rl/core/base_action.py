"""Envs in which a base policy says beside every observation what it would do.

A residual policy corrects a base. It is all that the base adds to an environment: observations get
the group `base_action`. Actions that are given, accepted and stored are those that are executed;
demonstrations and people may act as far from the base as they like. Simulated envs and robots
are wrapped alike.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from robot_rl.core.env import BatchEnv, EnvSpec, EnvStep, GroupSpec, Obs
from robot_rl.core.env_wrapper import EnvWrapper
from robot_rl.core.errors import SpecMismatchError

BASE_ACTION = "base_action"
"""The group that is added."""


def with_base_action(spec: EnvSpec) -> EnvSpec:
    """Shapes of envs that observe what a base would do.

    Raises:
        SpecMismatchError: They have the group already.
    """
    if BASE_ACTION in spec.groups:
        raise SpecMismatchError(
            f"the envs observe '{BASE_ACTION}' already; expected envs without a base "
            f"policy: {', '.join(spec.groups)}"
        )
    group = GroupSpec(shape=(spec.action_size,))
    return replace(spec, groups={**spec.groups, BASE_ACTION: group})


class BasePolicy(Protocol):
    """A frozen policy of N envs that may plan ahead: its plan goes on step by step."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Observation groups that it sees."""
        ...

    def next(self, obs: Obs) -> Tensor:
        """Action of all envs for their next step, (N, A), in [-1, 1]; the plans go on by it."""
        ...

    def restart(self, mask: Tensor, obs: Obs) -> Tensor:
        """First action of new episodes in the masked envs, (N, A); the others' rows mean nothing.

        Args:
            mask: (N,) bool. The plans of these envs are thrown away, those of others stay.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Plans, and which policy it is."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`; refuses that of another policy."""
        ...


class BaseActionEnv(EnvWrapper):
    """A `BatchEnv` around another one.

    The true successor of a step is what the old plan goes on from, also where time ended the
    episode; what is acted on next is the first action of a new plan.
    """

    def __init__(self, env: BatchEnv, base: BasePolicy) -> None:
        """Wrap envs.

        Raises:
            SpecMismatchError: They have the group already.
        """
        super().__init__(env, with_base_action(env.spec))
        self.base = base
        self._action = torch.zeros(
            env.spec.num_envs, env.spec.action_size, device=env.spec.device
        )  # that the base would do now

    def step(self, action: Tensor) -> EnvStep:
        """Step the envs, and ask the base about what came of it."""
        step = self.env.step(action)
        after = self.base.next(step.next_obs)
        self._action = after
        self._begin(step.ended, step.obs)
        return replace(
            step,
            obs={**step.obs, BASE_ACTION: self._action},
            next_obs={**step.next_obs, BASE_ACTION: after},
        )

    def _begin(self, mask: Tensor, obs: Obs) -> None:
        first = self.base.restart(mask, obs)
        self._action = torch.where(mask[:, None], first, self._action)

    def _remembered(self) -> dict[str, Any]:
        return {"base": self.base.state_dict(), "action": self._action.clone()}

    def _load(self, state: Mapping[str, Any]) -> None:
        self.base.load_state_dict(state["base"])
        self._action = state["action"].to(self._action.device, copy=True)

    def _shown(self, obs: Obs) -> Obs:
        return {**obs, BASE_ACTION: self._action}
