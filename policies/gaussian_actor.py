"""Squashed Gaussian actor (Haarnoja et al. 2018b): tanh of a normal, normaliser inside."""

import math
from dataclasses import dataclass, field
from enum import Enum

import torch
from torch import Tensor, nn

from policies.initialization import Initialization, initialize, zero_last
from policies.mlp import Activation, mlp
from policies.normalizer import IdentityNormalizer, RunningNormalizer
from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError

_LOG_SQRT_TWO_PI = 0.5 * math.log(2 * math.pi)
_LOG_TWO = math.log(2.0)


class LogStdBound(Enum):
    """How the log standard deviation is kept within its bounds."""

    clamp = "clamp"
    tanh = "tanh"


@dataclass(kw_only=True)
class GaussianActorConfig:
    """Shape of the actor."""

    hidden: list[int] = field(default_factory=lambda: [256, 256])
    """Widths of the hidden layers."""
    activation: Activation = Activation.relu
    """Nonlinearity of the hidden layers."""
    layer_norm: bool = False
    """Layer norm before every activation."""
    log_std_min: float = -5.0
    """Lower bound of the log standard deviation before squashing."""
    log_std_max: float = 2.0
    """Upper bound of the log standard deviation before squashing."""
    log_std_bound: LogStdBound = LogStdBound.clamp
    """`clamp`, or a smooth `tanh` between the bounds."""
    normalize: bool = True
    """Normalise observations by running statistics."""
    initialization: Initialization = Initialization.torch
    """Weights of an mlp in the beginning."""
    zero_head: bool = False
    """Begin with mean 0 and one spread everywhere: its logarithm is 0, or the middle of its bounds
    with `tanh`."""

    def __post_init__(self) -> None:
        """Refuse networks that cannot be built."""
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"actor.hidden needs widths of at least 1, got {self.hidden}")
        if self.log_std_min >= self.log_std_max:
            raise ConfigError(
                f"actor.log_std_min {self.log_std_min} must lie below "
                f"log_std_max {self.log_std_max}"
            )


class GaussianActor(nn.Module):
    """Reads the group `actor`; hands out samples with log-probabilities, and the mode."""

    def __init__(self, config: GaussianActorConfig, obs_size: int, action_size: int) -> None:
        """Build the network.

        Args:
            config: Shape of the network.
            obs_size: D, width of the group `actor`.
            action_size: A.
        """
        super().__init__()
        self.config = config
        self.action_size = action_size
        normalizer = RunningNormalizer(obs_size) if config.normalize else IdentityNormalizer()
        self.normalizer: RunningNormalizer | IdentityNormalizer = normalizer
        self.network = mlp(
            [obs_size, *config.hidden, 2 * action_size],
            config.activation,
            layer_norm=config.layer_norm,
        )
        initialize(self.network, config.initialization, heads=2)
        if config.zero_head:
            zero_last(self.network)

    def forward(self, obs: Obs) -> Tensor:
        """Mode of the policy, (N, A), in [-1, 1]: what is evaluated and deployed."""
        mean = self.network(self.normalizer(obs["actor"]))[..., : self.action_size]
        return torch.tanh(mean)

    def sample(self, obs: Obs, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw an action with the reparametrisation trick.

        Returns:
            Action (N, A) in [-1, 1] and its log-probability (N,). The log-determinant of the
            squashing is exact: log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)).
        """
        mean, log_std = self._moments(obs)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        u = torch.addcmul(mean, noise, log_std.exp())  # (N, A)
        normal = -0.5 * noise * noise - log_std - _LOG_SQRT_TWO_PI
        squash = 2 * (_LOG_TWO - u - nn.functional.softplus(-2 * u))
        return torch.tanh(u), (normal - squash).sum(-1)

    def explore(self, obs: Obs, generator: torch.Generator | None = None) -> Tensor:
        """Draw an action only, (N, A), in [-1, 1]."""
        mean, log_std = self._moments(obs)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        return torch.addcmul(mean, noise, log_std.exp()).tanh_()

    def update_statistics(self, obs: Obs) -> None:
        """Take the group `actor`, (N, D), into the normaliser."""
        self.normalizer.update(obs["actor"])

    def constrain(self) -> None:
        """Nothing to project: the weights are free."""

    def _moments(self, obs: Obs) -> tuple[Tensor, Tensor]:
        output = self.network(self.normalizer(obs["actor"]))
        mean, log_std = output.float().chunk(2, dim=-1)  # bf16 is too coarse for densities
        low, high = self.config.log_std_min, self.config.log_std_max
        if self.config.log_std_bound is LogStdBound.tanh:
            return mean, low + 0.5 * (high - low) * (torch.tanh(log_std) + 1)
        return mean, log_std.clamp(low, high)
