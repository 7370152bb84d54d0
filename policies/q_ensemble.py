"""Ensemble of action-value networks, evaluated in one batched pass."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from policies.initialization import Initialization, initialize
from policies.mlp import Activation, ensemble_mlp
from policies.normalizer import IdentityNormalizer, RunningNormalizer
from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError


@dataclass(kw_only=True)
class QEnsembleConfig:
    """Shape of the critics."""

    members: int = 2
    """E: number of independent critics."""
    hidden: list[int] = field(default_factory=lambda: [256, 256])
    """Widths of the hidden layers."""
    activation: Activation = Activation.relu
    """Nonlinearity of the hidden layers."""
    layer_norm: bool = False
    """Layer norm before every activation."""
    normalize: bool = True
    """Normalise observations by running statistics."""
    initialization: Initialization = Initialization.torch
    """Weights of an mlp in the beginning."""

    def __post_init__(self) -> None:
        """Refuse networks that cannot be built."""
        if self.members < 1:
            raise ConfigError(f"critic.members must be at least 1, got {self.members}")
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"critic.hidden needs widths of at least 1, got {self.hidden}")


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
        normalizer = RunningNormalizer(obs_size) if config.normalize else IdentityNormalizer()
        self.normalizer: RunningNormalizer | IdentityNormalizer = normalizer
        self.network = ensemble_mlp(
            config.members,
            [obs_size + action_size, *config.hidden, outputs],
            config.activation,
            layer_norm=config.layer_norm,
        )
        initialize(self.network, config.initialization)

    def forward(self, obs: Obs, action: Tensor) -> Tensor:
        """Outputs of the members, (E, B, W)."""
        inputs = torch.cat([self.normalizer(obs[self.group]), action], dim=-1)
        return self.network(inputs)

    def update_statistics(self, obs: Obs) -> None:
        """Take the group that is read, (N, D), into the normaliser."""
        self.normalizer.update(obs[self.group])

    def constrain(self) -> None:
        """Nothing to project: the weights are free."""
