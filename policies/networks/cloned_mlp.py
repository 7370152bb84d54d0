"""A network that answers with the demonstrated action, or with a normal distribution around it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from policies.networks.inputs import NormalizedNetwork
from policies.networks.trunks import NetworkConfig, make_network
from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError


@dataclass(kw_only=True)
class ClonedMLPConfig(NetworkConfig):
    """Shape of the network."""

    log_std_min: float = -4.0
    """Lower bound of the log standard deviation of an action, where the loss is a likelihood: exact
    demonstrations would drive it down without end."""
    log_std_max: float = 1.0
    """Upper bound of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.log_std_min >= self.log_std_max:
            raise ConfigError(
                f"actor.log_std_min {self.log_std_min} must lie below "
                f"log_std_max {self.log_std_max}"
            )


class ClonedMLP(NormalizedNetwork):
    """Reads the group `actor`; the mean of the demonstrated actions, and their spread."""

    def __init__(
        self, config: ClonedMLPConfig, obs_size: int, action_size: int, chunk_length: int = 1
    ) -> None:
        """Build it for observations (N, D), actions (N, A) and chunks of H."""
        network = make_network(config, obs_size, 2 * chunk_length * action_size)
        super().__init__(config, obs_size, network, heads=2)
        self.config = config
        self.chunk_length, self.action_size = chunk_length, action_size

    def forward(self, obs: Obs) -> Tensor:
        """Actions (N, A), or chunks (N, H, A) where H is more than 1, in [-1, 1]."""
        mean, _ = self.moments(obs)
        return mean[:, 0] if self.chunk_length == 1 else mean

    def moments(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """Mean in [-1, 1] and log standard deviation of a normal distribution, (N, H, A) each."""
        output = self.network(self.normalized(obs)).float()
        shape = (-1, self.chunk_length, self.action_size)
        mean, log_std = (half.reshape(shape) for half in output.chunk(2, dim=-1))
        low, high = self.config.log_std_min, self.config.log_std_max
        return torch.tanh(mean), nn.functional.hardtanh(log_std, low, high)
