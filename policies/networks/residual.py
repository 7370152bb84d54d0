"""Actor that corrects a base policy, clamp(base + scale * tanh(f)), and the critics of it.

Learners see executed actions only; what they call its log-probability is that of the residual in
units of its scale, and so is a target entropy (robot_rl/learners/residual.py has one that holds the
noise of executed actions instead). What the clamp cuts off has no density of its own: the
residual's stands for it.

A residual moves an action by hundredths of its range, and what it is worth may turn within
thousandths. To a critic that reads executed actions alone such a step is next to nothing: the slope
that the actor ascends is the one between actions far apart, of demonstrations and of the base. In
units of the scale the same step is as large as any other input.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from policies.networks.gaussian_actor import squashed_normal
from policies.networks.images import ImageTrunk
from policies.networks.inputs import make_normalizer
from policies.networks.mlp import Activation, Initialization, initialize, mlp, zero_last
from policies.networks.q_ensemble import QEnsemble
from robot_rl.core.base_action import BASE_ACTION
from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError


@dataclass(kw_only=True)
class FrozenBaseConfig:
    """Policies of a frozen base (`frozen.py`), and their mixture."""

    paths: list[str] = field(default_factory=list[str])
    """Folders of bundles, or ONNX files: `actor (N, D)`, and images of cameras if it sees some, ->
    `action (N, A)`, or chunks (N, H, A)."""
    weights: list[float] = field(default_factory=list[float])
    """Of the actions of several: above 0, divided by their sum; empty weighs all alike."""
    replan_interval: int = 0
    """Actions of a chunk that are done before the next; 0 takes the bundle's own, of an ONNX file
    all of the chunk."""

    def __post_init__(self) -> None:
        if self.weights and len(self.weights) != len(self.paths):
            raise ConfigError(
                f"learner.base.weights has {len(self.weights)} entries for {len(self.paths)} "
                "policies of learner.base.paths; expected one for each, or none"
            )
        if not all(weight > 0 for weight in self.weights):
            raise ConfigError(f"learner.base.weights must all be above 0, got {self.weights}")
        if self.replan_interval < 0:
            raise ConfigError(
                f"learner.base.replan_interval must be >= 0, got {self.replan_interval}"
            )


@dataclass(kw_only=True)
class ResidualActorConfig:
    """Shape of the actor, and how far it may go from its base."""

    scale: float = 0.2
    """Farthest that an executed action is from the base's (kappa), of the action range [-1, 1]."""
    initial_std: float = 0.05
    """Standard deviation of the executed action in the beginning, whatever the scale."""
    hidden: list[int] = field(default_factory=lambda: [256, 256])
    """Widths of the hidden layers."""
    activation: Activation = Activation.relu
    """Nonlinearity of the hidden layers."""
    layer_norm: bool = True
    """Layer norm before every activation."""
    log_std_min: float = -10.0
    """Lower bound of the log standard deviation before squashing."""
    log_std_max: float = 2.0
    """Upper bound of it."""
    normalize: bool = True
    """Normalise observations by running statistics; base actions are taken as they are."""
    initialization: Initialization = Initialization.torch
    """Weights in the beginning, but for the last layer's, which are zero."""

    def __post_init__(self) -> None:
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"actor.hidden must name widths of at least 1, got {self.hidden}")
        if not 0 < self.scale <= 2:
            raise ConfigError(f"actor.scale must lie in (0, 2], got {self.scale}")
        if not self.initial_std > 0:
            raise ConfigError(f"actor.initial_std must be above 0, got {self.initial_std}")
        if not self.log_std_min <= self.initial_log_std <= self.log_std_max:
            raise ConfigError(
                f"actor.initial_std {self.initial_std} of a scale of {self.scale} is "
                f"{self.initial_log_std:.3g} as a logarithm before squashing; expected "
                f"log_std_min {self.log_std_min} to log_std_max {self.log_std_max}"
            )

    @property
    def initial_log_std(self) -> float:
        """Logarithm of the standard deviation before squashing, in units of the scale."""
        return math.log(self.initial_std / self.scale)


class ResidualActor(nn.Module):
    """Reads `actor`, `base_action`, features of images; in the beginning its mode is the base."""

    def __init__(
        self, config: ResidualActorConfig, obs_size: int, action_size: int,
        trunk: ImageTrunk | None = None,
    ) -> None:  # fmt: skip
        """Make it; with a trunk it reads the features of images too."""
        super().__init__()
        self.config = config
        self.action_size = action_size
        self.trunk = trunk
        self.groups = ("actor", BASE_ACTION, *(() if trunk is None else trunk.groups))
        """Groups that are read."""
        self.normalizer = make_normalizer(obs_size, wanted=config.normalize)
        features = 0 if trunk is None else trunk.size
        sizes = [obs_size + action_size + features, *config.hidden, 2 * action_size]
        self.network = mlp(sizes, config.activation, layer_norm=config.layer_norm)
        initialize(self.network, config.initialization, heads=2)
        zero_last(self.network)

    def forward(self, obs: Obs) -> Tensor:
        """Mode of the policy, (N, A), in [-1, 1]: what is evaluated and deployed."""
        mean, _ = self._moments(obs)
        return self._executed(obs, torch.tanh(mean))

    def sample(self, obs: Obs, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw an executed action with the reparametrisation trick.

        Returns:
            Action (N, A) in [-1, 1], and the log-probability of the residual in units of the
            scale, (N,).
        """
        mean, log_std = self._moments(obs)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        residual, log_prob = squashed_normal(mean, log_std, noise)
        return self._executed(obs, residual), log_prob

    def explore(self, obs: Obs, generator: torch.Generator | None = None) -> Tensor:
        """Draw an executed action only, (N, A), in [-1, 1]."""
        shape = obs[BASE_ACTION].shape
        return self.displace(
            obs, torch.randn(shape, generator=generator, device=obs[BASE_ACTION].device)
        )

    def displace(self, obs: Obs, noise: Tensor) -> Tensor:
        """The executed action for given normals (N, A)."""
        mean, log_std = self._moments(obs)
        return self._executed(obs, torch.tanh(mean + noise * log_std.exp()))

    def update_statistics(self, obs: Obs) -> None:
        """Take the group `actor`, (N, D), into the normaliser."""
        self.normalizer.update(obs["actor"])

    def constrain(self) -> None:
        """Nothing: no weights are constrained."""

    def _executed(self, obs: Obs, residual: Tensor) -> Tensor:
        return (obs[BASE_ACTION] + self.config.scale * residual).clamp(-1.0, 1.0)

    def _moments(self, obs: Obs) -> tuple[Tensor, Tensor]:
        inputs = [self.normalizer(obs["actor"]), obs[BASE_ACTION]]
        if self.trunk is not None:
            inputs.append(self.trunk(obs))
        mean, log_std = self.network(torch.cat(inputs, dim=-1)).float().chunk(2, dim=-1)
        low, high = self.config.log_std_min, self.config.log_std_max
        return mean, nn.functional.hardtanh(log_std + self.config.initial_log_std, low, high)


WIDTHS = 3
"""Actions side by side that the ensemble inside is asked with."""
_FARTHEST = 3.0
"""Of the displacement, in units of the scale. The actor's own are within 1; demonstrations and
people may be anywhere, and the executed action says where."""


class ResidualCritic(nn.Module):
    """Q(obs, action) of E members; reads what the ensemble inside reads, and `base_action`."""

    def __init__(self, ensemble: QEnsemble, scale: float) -> None:
        """Wrap critics of actions three times as wide; the actor goes as far as `scale`."""
        super().__init__()
        self.ensemble = ensemble
        self.group, self.groups = ensemble.group, ensemble.groups
        self._scale = scale

    def forward(self, obs: Obs, action: Tensor) -> Tensor:
        """Outputs of the members, (E, B, W), for executed actions (B, A)."""
        base = obs[BASE_ACTION]
        displacement = ((action - base) / self._scale).clamp(-_FARTHEST, _FARTHEST)
        seen = [action, base, displacement]  # A each
        return self.ensemble(obs, torch.cat(seen, dim=-1))

    def update_statistics(self, obs: Obs) -> None:
        """Take the group that is read, (N, D), into the normaliser."""
        self.ensemble.update_statistics(obs)

    def constrain(self) -> None:
        """As the ensemble."""
        self.ensemble.constrain()
