"""Samples of tanh(normal) and their log-probability as one node of the graph.

Written out with its gradient: on a CPU every small operation of a graph costs more in bookkeeping
than in arithmetic, and here are twenty of them in each direction.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_CONSTANT = 0.5 * math.log(2 * math.pi) + 2 * math.log(2)
"""Of one entry: from the normal, and from the logarithm of the squashing's slope."""


def squashed_normal(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Action tanh(u) of u = mean + noise * std, and its log-probability.

    Args:
        mean: Of the normal, (N, A).
        log_std: Logarithm of its standard deviation, (N, A).
        noise: Standard normals, (N, A); gets no gradient.

    Returns:
        Action (N, A) in [-1, 1] and log-probability (N,). The log-determinant of the squashing is
        exact: log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)).
    """
    return _SquashedNormal.apply(mean, log_std, noise)  # pyright: ignore[reportReturnType]  untyped


class _SquashedNormal(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, log_std: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        std = log_std.exp()
        u = torch.addcmul(mean, noise, std)  # (N, A)
        action = torch.tanh(u)
        squash = u + torch.nn.functional.softplus(-2 * u)
        parts = torch.addcmul(2 * squash - log_std, noise, noise, value=-0.5)
        ctx.save_for_backward(action, noise, std)
        return action, parts.sum(-1) - _CONSTANT * noise.shape[-1]

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  the decorator hides names
        ctx: Any, of_action: Tensor, of_log_prob: Tensor
    ) -> tuple[Tensor, Tensor, None]:
        action, noise, std = ctx.saved_tensors
        of_each = of_log_prob.unsqueeze(-1)
        # d log_prob / du = 2 tanh(u): the farther out, the denser lie the actions.
        of_u = torch.addcmul(of_action * (1 - action * action), of_each, action, value=2)
        return of_u, torch.addcmul(-of_each, of_u, noise * std), None
