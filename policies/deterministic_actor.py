"""Deterministic actor (Fujimoto et al. 2018): tanh of a network, normaliser inside."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from policies.mlp import Activation, mlp
from policies.normalizer import IdentityNormalizer, RunningNormalizer
from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError


@dataclass(kw_only=True)
class DeterministicActorConfig:
    """Shape of the actor."""

    hidden: list[int] = field(default_factory=lambda: [256, 256])
    """Widths of the hidden layers."""
    activation: Activation = Activation.relu
    """Nonlinearity of the hidden layers."""
    layer_norm: bool = False
    """Layer norm before every activation."""
    last_layer_std: float = 0.0
    """Standard deviation of the last layer's weights at the start, its biases being zero: small
    ones begin near the middle of the action range. 0 draws them as in every other layer."""
    normalize: bool = True
    """Normalise observations by running statistics."""

    def __post_init__(self) -> None:
        """Refuse networks that cannot be built."""
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"actor.hidden needs widths of at least 1, got {self.hidden}")
        if not self.last_layer_std >= 0:
            raise ConfigError(f"actor.last_layer_std must be >= 0, got {self.last_layer_std}")


class DeterministicActor(nn.Module):
    """Reads the group `actor`; one action for an observation."""

    def __init__(self, config: DeterministicActorConfig, obs_size: int, action_size: int) -> None:
        """Build the network.

        Args:
            config: Shape of the network.
            obs_size: D, width of the group `actor`.
            action_size: A.
        """
        super().__init__()
        self.config = config
        normalizer = RunningNormalizer(obs_size) if config.normalize else IdentityNormalizer()
        self.normalizer: RunningNormalizer | IdentityNormalizer = normalizer
        self.network = mlp(
            [obs_size, *config.hidden, action_size],
            config.activation,
            layer_norm=config.layer_norm,
        )
        if config.last_layer_std > 0:
            last = self.network[-1]
            assert isinstance(last, nn.Linear)
            nn.init.normal_(last.weight, std=config.last_layer_std)
            nn.init.zeros_(last.bias)

    def forward(self, obs: Obs) -> Tensor:
        """Action, (N, A), in [-1, 1]: what is learned, evaluated and deployed."""
        output = self.network(self.normalizer(obs["actor"]))
        return torch.tanh(output.float())  # bf16 would leave 256 actions between 0 and 1

    def update_statistics(self, obs: Obs) -> None:
        """Take the group `actor`, (N, D), into the normaliser."""
        self.normalizer.update(obs["actor"])

    def constrain(self) -> None:
        """Nothing to project: the weights are free."""
