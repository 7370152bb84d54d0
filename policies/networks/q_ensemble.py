"""Ensemble of action-value networks, evaluated in one batched pass."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from policies.networks.images import ImageTrunk
from policies.networks.inputs import NormalizedNetwork
from policies.networks.trunks import NetworkConfig, make_network
from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError


@dataclass(kw_only=True)
class QEnsembleConfig(NetworkConfig):
    """Shape of the critics."""

    part: ClassVar[str] = "critic"

    members: int = 2
    """E: number of independent critics."""
    width: int = 256

    def __post_init__(self) -> None:
        if self.members < 1:
            raise ConfigError(f"critic.members must be at least 1, got {self.members}")
        super().__post_init__()


class QEnsemble(NormalizedNetwork):
    """Q(obs, action) of E members; reads one observation group (privileged where there is one)."""

    def __init__(
        self, config: QEnsembleConfig, group: str, obs_size: int, action_size: int,
        outputs: int = 1, *, trunk: ImageTrunk | None = None,
    ) -> None:  # fmt: skip
        """Build it for one group: `critic`, or `actor` where there is no other.

        It has W outputs: 1 for the value alone, more for a distribution. A trunk reads the features
        of images, the same for all members (DrQ-v2, RLPD); then the group may be of no width.
        """
        features = 0 if trunk is None else trunk.size
        inputs = obs_size + features + action_size
        network = make_network(config, inputs, outputs, members=config.members)
        super().__init__(
            config, obs_size, network, groups=(group,) if obs_size else (), trunk=trunk
        )
        self.group = group

    def forward(self, obs: Obs, action: Tensor) -> Tensor:
        """Outputs of the members, (E, B, W)."""
        inputs = torch.cat([self.normalized(obs), action], dim=-1)
        return self.network(inputs)
