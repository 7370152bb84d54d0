"""A `BatchEnv` around another one, which remembers something of its own."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env import BatchEnv, EnvSpec, EnvStep, Obs


class EnvWrapper(ABC):
    """Envs whose observations, steps or rewards are changed; saved and restored as a whole."""

    def __init__(self, env: BatchEnv, spec: EnvSpec) -> None:
        """Wrap envs; `spec` says what they are from outside."""
        self.env = env
        """The envs inside."""
        self.spec = spec
        """As seen from outside."""

    def reset(
        self, seed: int | None = None, mask: Tensor | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Obs:  # fmt: skip
        """Start new episodes, or restore `state_dict`."""
        if state is not None:
            self.env.spec.check_reset(mask, state)
            obs = self.env.reset(seed=seed, state=state["worlds"])
            self._load(state)
            return self._shown(obs)
        obs = self.env.reset(seed=seed, mask=mask)
        everyone = torch.ones(self.spec.num_envs, dtype=torch.bool, device=self.spec.device)
        self._begin(everyone if mask is None else mask, obs)
        return self._shown(obs)

    @abstractmethod
    def step(self, action: Tensor) -> EnvStep:
        """Step the envs."""
        ...

    def check(self) -> None:
        """As the envs."""
        self.env.check()

    def state_dict(self) -> dict[str, Any]:
        """The envs' state, and what is remembered beside it."""
        return {"worlds": self.env.state_dict(), **self._remembered()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.env.load_state_dict(state["worlds"])
        self._load(state)

    def close(self) -> None:
        """Close the envs."""
        self.env.close()

    @abstractmethod
    def _begin(self, mask: Tensor, obs: Obs) -> None:
        """New episodes begin in the masked envs, (N,) bool, with these observations."""
        ...

    @abstractmethod
    def _remembered(self) -> dict[str, Any]:
        """Plain values beside the envs' state; without the key `worlds`."""
        ...

    @abstractmethod
    def _load(self, state: Mapping[str, Any]) -> None:
        """Restore `_remembered` out of a whole state."""
        ...

    def _shown(self, obs: Obs) -> Obs:
        """Observations of a reset as they are from outside."""
        return obs
