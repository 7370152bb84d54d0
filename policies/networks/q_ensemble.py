"""Ensemble of action-value networks, evaluated in one batched pass."""

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
class QEnsembleConfig:
    """Shape of the critics."""

    members: int = 2
    """E: number of independent critics."""
    kind: NetworkKind = NetworkKind.mlp
    """Shape of the network: mlp (hidden, activation, layer_norm), or simba, bro, flash (width,
    blocks)."""
    hidden: list[int] = field(default_factory=lambda: [256, 256])
    """Widths of the hidden layers of an mlp."""
    activation: Activation = Activation.relu
    """Nonlinearity of the hidden layers of an mlp."""
    layer_norm: bool = False
    """Layer norm before every activation of an mlp."""
    width: int = 256
    """Width of the stream of the other kinds."""
    blocks: int = 2
    """Residual blocks of the other kinds."""
    normalize: bool = True
    """Normalise observations by running statistics."""
    initialization: Initialization = Initialization.torch
    """Weights of an mlp in the beginning."""

    def __post_init__(self) -> None:
        """Refuse networks that cannot be built."""
        if self.members < 1:
            raise ConfigError(f"critic.members must be at least 1, got {self.members}")
        check_shape(self, "critic")


class QEnsemble(nn.Module):
    """Q(obs, action) of E members; reads one observation group (privileged where there is one)."""

    def __init__(
        self, config: QEnsembleConfig, group: str, obs_size: int, action_size: int,
        outputs: int = 1,
    ) -> None:  # fmt: skip
        """Build the network.

        Args:
            config: Shape of the network.
            group: Observation group that is read: `critic`, or `actor` where there is no other.
            obs_size: Width of that group.
            action_size: A.
            outputs: W: 1 for the value alone, more for a distribution.
        """
        super().__init__()
        self.group = group
        self.normalizer = make_normalizer(obs_size, wanted=config.normalize)
        inputs = obs_size + action_size
        self.network = make_network(config, inputs, outputs, members=config.members)
        self._constrained = constrained_layers(self.network)
        initialize(self.network, config.initialization)

    def forward(self, obs: Obs, action: Tensor) -> Tensor:
        """Outputs of the members, (E, B, W)."""
        inputs = torch.cat([self.normalizer(obs[self.group]), action], dim=-1)
        return self.network(inputs)

    def update_statistics(self, obs: Obs) -> None:
        """Take the group that is read, (N, D), into the normaliser."""
        self.normalizer.update(obs[self.group])

    def constrain(self) -> None:
        """Bring constrained weights back to their norm after a step of the optimiser."""
        for layer in self._constrained:
            layer.project()
