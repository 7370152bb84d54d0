"""Deterministic actor (Fujimoto et al. 2018), and IQL's normal around one; normaliser inside.

IQL's actor is a normal around tanh of a network, with one spread for all observations. It is not
squashed: an action at the end of its range has a finite density, so that stored actions can be
made likely as they are. What is drawn beyond the range is cut off.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from policies.networks.images import ImageTrunk
from policies.networks.inputs import ActorConfig, ActorNetwork
from robot_rl.core.env import Obs, TermSpec
from robot_rl.core.errors import ConfigError


@dataclass(kw_only=True)
class DeterministicActorConfig(ActorConfig):
    """Shape of the actor."""

    last_layer_std: float = 0.0
    """Standard deviation of the weights of an mlp's last layer in the beginning, its biases being
    zero: small ones begin near the middle of the action range. 0 draws them as the others."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.last_layer_std >= 0:
            raise ConfigError(f"actor.last_layer_std must be >= 0, got {self.last_layer_std}")
        if self.last_layer_std > 0:
            self.check_mlp("last_layer_std", f"{self.last_layer_std:g}")


class DeterministicActor(ActorNetwork):
    """One action for an observation."""

    def __init__(
        self, config: DeterministicActorConfig, obs_size: int, action_size: int, *,
        terms: Sequence[TermSpec] = (), estimated: int = 0,
        groups: Sequence[str] | None = None, trunk: ImageTrunk | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            config, obs_size, action_size, terms, estimated, groups=groups, trunk=trunk
        )
        self.config = config
        if config.last_layer_std > 0:
            last = [layer for layer in self.network.modules() if isinstance(layer, nn.Linear)][-1]
            nn.init.normal_(last.weight, std=config.last_layer_std)
            nn.init.zeros_(last.bias)

    def forward(self, obs: Obs) -> Tensor:
        """Action, (N, A), in [-1, 1]: what is learned, evaluated and deployed."""
        output = self.network(self.normalized(obs))
        return torch.tanh(output.float())  # bf16 would leave 256 actions between 0 and 1


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
        super().__init__()
        self.config = config
        self.mode = DeterministicActor(config, obs_size, action_size, terms=terms)
        self.groups = self.mode.groups
        """Observation groups that are seen."""
        self.log_std = nn.Parameter(torch.full((action_size,), config.log_std_start))

    def forward(self, obs: Obs) -> Tensor:
        """Mode of the policy, (N, A), in [-1, 1]: what is evaluated and deployed."""
        return self.mode(obs)

    def decided(self, obs: Obs) -> Tensor:
        """As of `ActorNetwork`, (N,) bool."""
        return self.mode.decided(obs)

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
