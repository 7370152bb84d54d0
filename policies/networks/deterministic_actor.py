"""Deterministic actor (Fujimoto et al. 2018), and IQL's normal around one; normaliser inside.

IQL's actor is a normal around tanh of a network, with one spread for all observations. It is not
squashed: an action at the end of its range has a finite density, so that stored actions can be
made likely as they are. What is drawn beyond the range is cut off.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from policies.networks.inputs import (
    EncoderConfig,
    check_groups,
    latent_of,
    make_actor_network,
    make_normalizer,
    read_groups,
)
from policies.networks.layers import constrained_layers
from policies.networks.mlp import Activation, Initialization, initialize
from policies.networks.trunks import NetworkKind, check_shape
from robot_rl.core.env import Obs, TermSpec
from robot_rl.core.errors import ConfigError


@dataclass(kw_only=True)
class DeterministicActorConfig:
    """Shape of the actor."""

    groups: list[str] = field(default_factory=lambda: ["actor"])
    """Observation groups that are seen, side by side; with one that a robot does not have, such as
    `critic`, the policy is a teacher in simulation only."""
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    """Encoder between past frames and the network."""
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
    normalize: bool = True
    """Normalise observations by running statistics."""
    initialization: Initialization = Initialization.torch
    """Weights of an mlp in the beginning."""
    last_layer_std: float = 0.0
    """Standard deviation of the weights of an mlp's last layer in the beginning, its biases being
    zero: small ones begin near the middle of the action range. 0 draws them as the others."""

    def __post_init__(self) -> None:
        """Refuse networks that cannot be built."""
        check_shape(self, "actor")
        check_groups(self.groups)
        if not self.last_layer_std >= 0:
            raise ConfigError(f"actor.last_layer_std must be >= 0, got {self.last_layer_std}")
        if self.last_layer_std > 0 and self.kind is not NetworkKind.mlp:
            raise ConfigError(
                f"actor.last_layer_std {self.last_layer_std:g} is for an mlp; actor.kind "
                f"{self.kind.value} draws its weights in its own way"
            )


class DeterministicActor(nn.Module):
    """One action for an observation."""

    def __init__(
        self, config: DeterministicActorConfig, obs_size: int, action_size: int, *,
        terms: Sequence[TermSpec] = (), estimated: int = 0,
    ) -> None:  # fmt: skip
        """Build the network.

        Args:
            config: Shape of the network.
            obs_size: D, width of the groups that are seen.
            action_size: A.
            terms: What these groups consist of, where the network must know it.
            estimated: Width of what `encoder.estimate` names.
        """
        super().__init__()
        self.config = config
        self.groups = tuple(config.groups)
        """Observation groups that are seen."""
        self.normalizer = make_normalizer(obs_size, wanted=config.normalize)
        self.network = make_actor_network(config, obs_size, action_size, terms, estimated)
        self._constrained = constrained_layers(self.network)
        initialize(self.network, config.initialization)
        if config.last_layer_std > 0:
            last = [layer for layer in self.network.modules() if isinstance(layer, nn.Linear)][-1]
            nn.init.normal_(last.weight, std=config.last_layer_std)
            nn.init.zeros_(last.bias)

    def forward(self, obs: Obs) -> Tensor:
        """Action, (N, A), in [-1, 1]: what is learned, evaluated and deployed."""
        output = self.network(self.normalized(obs))
        return torch.tanh(output.float())  # bf16 would leave 256 actions between 0 and 1

    def normalized(self, obs: Obs) -> Tensor:
        """Input of the network, (N, D)."""
        return self.normalizer(read_groups(obs, self.groups))

    def latent(self, obs: Obs) -> Tensor:
        """Latent of the past, (N, L), its estimates first.

        Raises:
            ConfigError: The actor has no encoder.
        """
        return latent_of(self.network, self.normalized(obs))

    def update_statistics(self, obs: Obs) -> None:
        """Take the groups that are seen, (N, ...), into the normaliser."""
        self.normalizer.update(read_groups(obs, self.groups))

    def constrain(self) -> None:
        """Bring constrained weights back to their norm after a step of the optimiser."""
        for layer in self._constrained:
            layer.project()


_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


@dataclass(kw_only=True)
class NormalActorConfig(DeterministicActorConfig):
    """Shape of the actor."""

    log_std_min: float = -5.0
    """Lower bound of the log standard deviation."""
    log_std_max: float = 2.0
    """Upper bound of the log standard deviation."""
    log_std_start: float = 0.0
    """Log standard deviation at the start."""

    def __post_init__(self) -> None:
        """Refuse networks that cannot be built."""
        super().__post_init__()
        if not self.log_std_min <= self.log_std_start <= self.log_std_max:
            raise ConfigError(
                f"actor.log_std_start must lie between actor.log_std_min {self.log_std_min} and "
                f"actor.log_std_max {self.log_std_max}, got {self.log_std_start}"
            )


class NormalActor(nn.Module):
    """Hands out samples, densities of given actions, and the mode."""

    def __init__(
        self, config: NormalActorConfig, obs_size: int, action_size: int, *,
        terms: Sequence[TermSpec] = (),
    ) -> None:  # fmt: skip
        """Build the network.

        Args:
            config: Shape of the network.
            obs_size: D, width of the groups that are seen.
            action_size: A.
            terms: What these groups consist of, where the network must know it.
        """
        super().__init__()
        self.config = config
        self.mode = DeterministicActor(config, obs_size, action_size, terms=terms)
        self.groups = self.mode.groups
        """Observation groups that are seen."""
        self.log_std = nn.Parameter(torch.full((action_size,), config.log_std_start))

    def forward(self, obs: Obs) -> Tensor:
        """Mode of the policy, (N, A), in [-1, 1]: what is evaluated and deployed."""
        return self.mode(obs)

    def explore(self, obs: Obs, generator: torch.Generator | None = None) -> Tensor:
        """Draw an action, (N, A), cut off at the ends of [-1, 1]."""
        mean = self.mode(obs)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        return torch.addcmul(mean, noise, self._log_std().exp()).clamp_(-1, 1)

    def log_prob(self, obs: Obs, action: Tensor) -> Tensor:
        """Logarithm of the normal's density at an action (N, A), (N,)."""
        log_std = self._log_std()
        z = (action - self.mode(obs)) * torch.exp(-log_std)
        return (-0.5 * z * z - log_std - _HALF_LOG_TAU).sum(-1)

    def update_statistics(self, obs: Obs) -> None:
        """Take the groups that are seen, (N, ...), into the normaliser."""
        self.mode.update_statistics(obs)

    def constrain(self) -> None:
        """Bring constrained weights back to their norm after a step of the optimiser."""
        self.mode.constrain()

    def _log_std(self) -> Tensor:
        return self.log_std.clamp(self.config.log_std_min, self.config.log_std_max)
