"""Squashed Gaussian actor (Haarnoja et al. 2018b): tanh of a normal, normaliser inside.

Samples of tanh(normal) and their log-probability are one node of the graph, written out with its
gradient: on a CPU every small operation of a graph costs more in bookkeeping
than in arithmetic, and here are twenty of them in each direction.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from policies.networks.images import ImageTrunk
from policies.networks.inputs import ActorConfig, ActorNetwork
from policies.networks.mlp import zero_last
from robot_rl.core.env import Obs, TermSpec
from robot_rl.core.errors import ConfigError


class LogStdBound(Enum):
    """Function that keeps the log standard deviation within its bounds."""

    clamp = "clamp"
    tanh = "tanh"


@dataclass(kw_only=True)
class GaussianActorConfig(ActorConfig):
    """Shape of the actor."""

    log_std_min: float = -5.0
    """Lower bound of the log standard deviation before squashing."""
    log_std_max: float = 2.0
    """Upper bound of the log standard deviation before squashing."""
    log_std_bound: LogStdBound = LogStdBound.clamp
    """`clamp`, or a smooth `tanh` between the bounds."""
    zero_head: bool = False
    """Let an mlp begin with mean 0 and one spread everywhere: its logarithm is 0, or the middle of
    its bounds with `tanh`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.zero_head:
            self.check_mlp("zero_head", "true")
        if self.log_std_min >= self.log_std_max:
            raise ConfigError(
                f"actor.log_std_min {self.log_std_min} must lie below "
                f"log_std_max {self.log_std_max}"
            )


class GaussianActor(ActorNetwork):
    """Hands out samples with log-probabilities, and the mode."""

    def __init__(
        self, config: GaussianActorConfig, obs_size: int, action_size: int, *,
        terms: Sequence[TermSpec] = (), estimated: int = 0,
        groups: Sequence[str] | None = None, trunk: ImageTrunk | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            config, obs_size, 2 * action_size, terms, estimated, heads=2, groups=groups,
            trunk=trunk,
        )  # fmt: skip
        self.config = config
        self.action_size = action_size
        if config.zero_head:
            zero_last(self.network)

    def forward(self, obs: Obs) -> Tensor:
        """Mode of the policy, (N, A), in [-1, 1]: what is evaluated and deployed."""
        mean = self.network(self.normalized(obs))[..., : self.action_size]
        return torch.tanh(mean.float())  # bf16 would leave steps of 0.004 near the bounds

    def sample(self, obs: Obs, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw a reparametrised action (N, A), in [-1, 1]; with its log-probability (N,)."""
        mean, log_std = self.moments(obs)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        return squashed_normal(mean, log_std, noise)

    def explore(self, obs: Obs, generator: torch.Generator | None = None) -> Tensor:
        """Draw an action only, (N, A), in [-1, 1]."""
        rows = obs[self.groups[0]]
        shape = (*rows.shape[:-1], self.action_size)
        return self.displace(obs, torch.randn(shape, generator=generator, device=rows.device))

    def displace(self, obs: Obs, noise: Tensor) -> Tensor:
        """The action for given normals (N, A): for noise that lasts over several steps."""
        mean, log_std = self.moments(obs)
        return torch.addcmul(mean, noise, log_std.exp()).tanh_()

    def moments(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation before squashing, (N, A) each."""
        output = self.network(self.normalized(obs))
        mean, log_std = output.float().chunk(2, dim=-1)  # bf16 is too coarse for densities
        low, high = self.config.log_std_min, self.config.log_std_max
        if self.config.log_std_bound is LogStdBound.tanh:
            return mean, low + 0.5 * (high - low) * (torch.tanh(log_std) + 1)
        # A clamp whose gradient is one operation in place of six.
        return mean, nn.functional.hardtanh(log_std, low, high)


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
