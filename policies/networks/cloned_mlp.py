"""A network that answers with the demonstrated action, or with a normal distribution around it."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from policies.networks.inputs import make_normalizer
from policies.networks.layers import constrained_layers
from policies.networks.mlp import Activation, Initialization, initialize
from policies.networks.trunks import NetworkKind, check_shape, make_network
from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError


@dataclass(kw_only=True)
class ClonedMLPConfig:
    """Shape of the network."""

    kind: NetworkKind = NetworkKind.mlp
    """Shape of the network: mlp (hidden, activation, layer_norm), or simba, bro, flash (width,
    blocks)."""
    hidden: list[int] = field(default_factory=lambda: [256, 256])
    """Widths of the hidden layers of an mlp."""
    activation: Activation = Activation.relu
    """Nonlinearity of the hidden layers of an mlp."""
    layer_norm: bool = False
    """Layer norm before every activation of an mlp."""
    width: int = 128
    """Width of the stream of the other kinds."""
    blocks: int = 2
    """Residual blocks of the other kinds."""
    log_std_min: float = -4.0
    """Lower bound of the log standard deviation of an action, where the loss is a likelihood: exact
    demonstrations would drive it down without end."""
    log_std_max: float = 1.0
    """Upper bound of it."""
    normalize: bool = True
    """Normalise observations by the statistics of the demonstrations."""
    initialization: Initialization = Initialization.torch
    """Weights of an mlp in the beginning."""

    def __post_init__(self) -> None:
        """Refuse networks that cannot be built."""
        check_shape(self, "actor")
        if self.log_std_min >= self.log_std_max:
            raise ConfigError(
                f"actor.log_std_min {self.log_std_min} must lie below "
                f"log_std_max {self.log_std_max}"
            )


class ClonedMLP(nn.Module):
    """Reads the group `actor`; the mean of the demonstrated actions, and their spread."""

    def __init__(
        self, config: ClonedMLPConfig, obs_size: int, action_size: int, chunk_length: int = 1
    ) -> None:
        """Build the network.

        Args:
            config: Shape of the network.
            obs_size: D, width of the group `actor`.
            action_size: A.
            chunk_length: H, actions that it gives at once.
        """
        super().__init__()
        self.config = config
        self.chunk_length, self.action_size = chunk_length, action_size
        self.normalizer = make_normalizer(obs_size, wanted=config.normalize)
        self.network = make_network(config, obs_size, 2 * chunk_length * action_size)
        self._constrained = constrained_layers(self.network)
        initialize(self.network, config.initialization, heads=2)

    def forward(self, obs: Obs) -> Tensor:
        """Actions (N, A), or chunks (N, H, A) where H is more than 1, in [-1, 1]."""
        mean, _ = self.moments(obs)
        return mean[:, 0] if self.chunk_length == 1 else mean

    def moments(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """Mean in [-1, 1] and log standard deviation of a normal distribution, (N, H, A) each."""
        output = self.network(self.normalizer(obs["actor"])).float()
        shape = (-1, self.chunk_length, self.action_size)
        mean, log_std = (half.reshape(shape) for half in output.chunk(2, dim=-1))
        low, high = self.config.log_std_min, self.config.log_std_max
        return torch.tanh(mean), nn.functional.hardtanh(log_std, low, high)

    def update_statistics(self, obs: Obs) -> None:
        """Take the group `actor`, (N, D), into the normaliser."""
        self.normalizer.update(obs["actor"])

    def constrain(self) -> None:
        """Bring constrained weights back to their norm after a step of the optimiser."""
        for layer in self._constrained:
            layer.project()
