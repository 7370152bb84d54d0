"""Blocks of steps that travel from a collector to the learner, as arrays of numpy."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robot_rl.core.env import EnvStep, Obs

_FIELDS = ("reward", "terminated", "truncated", "success", "valid", "action", "intervened")


@dataclass(frozen=True, kw_only=True)
class Block:
    """S steps of n worlds, in order of time."""

    obs: dict[str, np.ndarray]
    """What was acted on, groups (S + 1, n, ...): the last is what is acted on next."""
    next_obs: dict[str, np.ndarray]
    """True successors, groups (S, n, ...)."""
    fields: dict[str, np.ndarray]
    """The other entries of `EnvStep`, (S, n, ...)."""
    weights: np.ndarray | None
    """Of the reward terms, (S, K), where there are terms."""
    version: int
    """Which policy acted."""

    @property
    def steps(self) -> int:
        """S."""
        return len(self.fields["reward"])

    def step(self, t: int, device: torch.device) -> tuple[Obs, EnvStep]:
        """What was acted on, and what came of it."""

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
        version: Which policy acted.
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
    """One step of the worlds of all collectors, those of the first one first."""
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
    """Observations of the worlds of all collectors."""
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _joined(parts: Iterable[Tensor]) -> np.ndarray:
    return torch.stack(list(parts)).cpu().numpy()


def _weights(step: EnvStep) -> Tensor:
    assert step.reward_weights is not None
    return step.reward_weights
