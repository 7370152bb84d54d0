"""What critics think of stored actions and of others: figures by which offline learning is read.

After Kumar et al. 2021, "A Workflow for Offline Model-Free Robotic Reinforcement Learning"
(arXiv:2109.10813): what they mean is said by `robot_rl/training/schedule.py`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from robot_rl.core.env import Obs
from robot_rl.core.transition import Batch

_SEED = 20_211
"""Actions are drawn from the same stream every time: curves do not jump for that."""

Actor = Callable[[Obs], Tensor]
Value = Callable[[Obs, Tensor], Tensor]


def inspect_values(
    batch: Batch, actor: Actor, value: Value, next_value: Value
) -> dict[str, Tensor]:
    """Values of a batch's actions, of random ones and of the policy's.

    Args:
        batch: B rows.
        actor: The policy's action.
        value: Values of all critics, (E, B).
        next_value: Value of the target critics, (B,).

    Returns:
        Means over the rows whose weight is not 0: `q_data`, `q_random`, `q_policy`, and `td_error`,
        the squared error of one step of the policy without entropy.
    """
    generator = torch.Generator(device=batch.action.device)
    generator.manual_seed(_SEED)
    uniform = torch.empty_like(batch.action).uniform_(-1, 1, generator=generator)
    q = value(batch.obs, batch.action)  # (E, B)
    target = batch.reward + batch.discount * next_value(batch.next_obs, actor(batch.next_obs))
    known = (batch.weight > 0).to(q.dtype)  # rows that are not valid hold zeros

    def mean(each: Tensor) -> Tensor:  # (E, B)
        return (each * known).sum(-1).mean() / known.sum().clamp(min=1.0)

    return {
        "q_data": mean(q),
        "q_random": mean(value(batch.obs, uniform)),
        "q_policy": mean(value(batch.obs, actor(batch.obs))),
        "td_error": mean((q - target) ** 2),
    }
