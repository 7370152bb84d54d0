"""One step of the worlds of all ranks, for statistics that all ranks must hold alike.

Rows are joined, not their sums: whatever a learner counts, it counts what one process with all the
worlds would, in the same order, and so does every rank.
"""

import torch
from torch import Tensor

from robot_rl.core.env import EnvStep, Obs

_FLAGS = ("terminated", "truncated", "success", "valid", "intervened")


def pack_step(step: EnvStep) -> Tensor:
    """Vectors, reward and flags of a step as rows of floats, (N, W); images stay behind."""
    flags = torch.stack([getattr(step, name) for name in _FLAGS], dim=-1)
    obs, next_obs = _vectors(step.obs), _vectors(step.next_obs)
    parts = [*obs.values(), *next_obs.values(), step.action, step.reward[:, None], flags]
    return torch.cat([part.float() for part in parts], dim=-1)


def unpack_step(rows: Tensor, example: EnvStep) -> EnvStep:
    """Inverse of `pack_step` for any number of rows; without metrics and reward terms.

    Args:
        rows: (M, W).
        example: A step with the same groups and sizes.
    """
    obs, next_obs = _vectors(example.obs), _vectors(example.next_obs)
    parts = [*obs.values(), *next_obs.values(), example.action]
    widths = [part.shape[-1] for part in parts] + [1, len(_FLAGS)]
    pieces = list(rows.split(widths, dim=-1))
    flags = dict(zip(_FLAGS, (pieces.pop() > 0).unbind(-1), strict=True))
    reward, action = pieces.pop()[:, 0], pieces.pop()
    return EnvStep(
        obs=dict(zip(obs, pieces[: len(obs)], strict=True)),
        next_obs=dict(zip(next_obs, pieces[len(obs) :], strict=True)),
        action=action,
        reward=reward,
        **flags,
    )


def _vectors(obs: Obs) -> Obs:
    return {name: x for name, x in obs.items() if x.ndim == 2 and x.is_floating_point()}
