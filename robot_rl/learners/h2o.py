"""H2O: real transitions and those of a simulator whose dynamics are others, learned from together.

(Niu et al. 2022, arXiv:2206.13464.) Two discriminators tell real from simulated transitions. From
them follow a weight for every simulated transition, by how likely reality is to do the same, and a
penalty on values of simulated actions, the larger the farther simulation is from reality there.
Rows of `training.prior` are the real ones, the run's own are simulated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from policies.networks.images import ImageEncoderKind
from policies.networks.q_ensemble import QEnsemble
from robot_rl.core.env import EnvSpec
from robot_rl.core.errors import ConfigError
from robot_rl.core.transition import Batch
from robot_rl.learners.networks import Critic, make_critic
from robot_rl.learners.off_policy import OffPolicyConfig
from robot_rl.learners.optimization import Optimizer, Reduce, check_ranges
from robot_rl.learners.sac import SAC, CriticPenalty, CriticView, SACConfig

_REAL, _SIMULATED = 0, 1
"""Classes of the discriminators."""
_SMALLEST_WEIGHT = 1e-5
_SMALLEST_GAP, _LARGEST_GAP = 1e-30, 10.0
"""The authors' lower end, 1e-45, is no normal float32; either takes the row out."""
_LARGEST_PENALTY = 1000.0


@dataclass(kw_only=True)
class H2OPenaltyConfig:
    """Weights of simulated transitions."""

    weight: float = 0.0
    """beta: weight of the penalty on simulated actions; 0 is plain SAC. The paper: 0.01."""
    temperature: float = 1.0
    """Of the soft maximum over simulated actions."""
    noise: float = 0.1
    """Standard deviation of the noise on all that the discriminators learn from, in the units of
    the observations."""
    successors: int = 10
    """Successors around the simulated one by which the gap is judged."""
    discriminator_lr: float = 3e-4
    """Step size of the discriminators."""

    def __post_init__(self) -> None:
        check_ranges(self, {
            "weight": (0, 1e6), "temperature": (1e-6, 1e6), "noise": (0, 1e6),
            "successors": (1, 1e4), "discriminator_lr": (0, 1),
        }, owner="learner.dynamics_gap")  # fmt: skip


@dataclass(kw_only=True)
class H2OConfig(SACConfig):
    """SAC on real and simulated transitions."""

    dynamics_gap: H2OPenaltyConfig = field(default_factory=H2OPenaltyConfig)
    """Weights of simulated rows beside real ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dynamics_gap.weight > 0 and (self.n_step > 1 or self.values.atoms):
            raise ConfigError(
                "learner.dynamics_gap.weight above 0 judges single steps and mean values: set "
                "learner.n_step=1 and learner.values.atoms=0, got "
                f"{self.n_step} and {self.values.atoms}"
            )
        if self.dynamics_gap.weight > 0 and self.images.encoder is not ImageEncoderKind.none:
            raise ConfigError(
                "learner.dynamics_gap compares observations that are vectors: set "
                "learner.images.encoder=none, or learner.dynamics_gap.weight=0"
            )


class H2O(SAC):
    """SAC with the weights and the penalty of H2O; a weight of 0 is plain SAC."""

    def __init__(
        self, config: H2OConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
        reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Make SAC with the penalty; arguments as of `SAC`."""

        def penalty(generator: torch.Generator) -> CriticPenalty:
            return H2OPenalty(
                config.dynamics_gap, config, *_discriminators(config, spec), device=spec.device,
                generator=generator, reduce=reduce,
            )  # fmt: skip

        super().__init__(
            config, spec, seed=seed, stream_seed=stream_seed, reduce=reduce,
            penalty=penalty if config.dynamics_gap.weight > 0 else None,
        )  # fmt: skip


def _discriminators(config: H2OConfig, spec: EnvSpec) -> tuple[QEnsemble, QEnsemble]:
    """Shaped as the critics: of observation and action, and of these and the successor."""
    shape = replace(config.critic, members=1, normalize=False)
    of_action = make_critic(shape, spec, 2)
    size = spec.groups[of_action.group].shape[0]
    wider = replace(spec, action_size=spec.action_size + size)
    return of_action, make_critic(shape, wider, 2)


class H2OPenalty:
    """The penalty of H2O, and the weights of its rows."""

    offline = False
    next_actions = 1
    capturable = False
    """Rows are picked by whether they are real: how many there are, the host must know."""

    def __init__(
        self, config: H2OPenaltyConfig, optimizer: OffPolicyConfig, of_action: Critic,
        of_successor: Critic, *, device: torch.device, generator: torch.Generator,
        reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Take over the discriminators.

        Args:
            config: Settings; its weight is above 0.
            optimizer: Constants of Adam.
            of_action: One member, two outputs; asked with actions, (B, A).
            of_successor: The same; asked with actions and successors side by side, (B, A + D).
            device: Where the critics live.
            generator: Of all noise; saved by its owner.
            reduce: Joins gradients of several processes.
        """
        self.config = config
        self.of_action, self.of_successor = of_action.to(device), of_successor.to(device)
        self._generator = generator
        self._metrics: dict[str, Tensor] = {}
        self._optimizer = Optimizer(
            [*self.of_action.parameters(), *self.of_successor.parameters()],
            config.discriminator_lr, optimizer, after_step=self._constrain, reduce=reduce,
        )  # fmt: skip

    def coef(self, online_updates: int) -> float:
        """All of it, always: it needs simulated steps beside the stored ones."""
        return 1.0

    def weight(self, batch: Batch) -> Tensor:
        """1 for real rows, P_real / P_simulated up to 1 for simulated ones; learns from the batch.

        Each kind counts as a mean of its own, as in the authors' sum of two losses.
        """
        real = _is_real(batch)
        loss = self._discrimination(batch, real)
        self._optimizer.step(loss)
        with torch.no_grad():
            ratio = torch.exp(-self._surplus(batch, batch.next_obs[self.of_action.group]))
            ratio = ratio.clamp(_SMALLEST_WEIGHT, 1.0)
        self._metrics = {
            "discriminator_loss": loss.detach(),
            "simulated_weight": ratio[~real & (batch.weight > 0)].mean(),
        }  # fmt: skip
        share = torch.where(real, real.sum(), (~real).sum()) / len(real)  # (B,)
        return batch.weight * torch.where(real, 1.0, ratio) / share

    def loss(self, batch: Batch, view: CriticView, coef: float) -> tuple[Tensor, dict[str, Tensor]]:
        """Soft maximum of simulated values, weighed by the gap, less the mean of real ones."""
        real, valid = _is_real(batch), batch.weight > 0
        simulated = ~real & valid
        gap = self._gap(batch, real & valid)[simulated]  # (S,)
        log_share = torch.log(gap / gap.sum())
        temperature = self.config.temperature
        soft = torch.logsumexp((view.at_data[:, simulated] + log_share) / temperature, dim=1)
        known = batch.weight[real]
        mean = (known * view.at_data[:, real]).sum(1) / known.sum().clamp(min=1e-9)
        each = (temperature * soft - mean).clamp(-_LARGEST_PENALTY, _LARGEST_PENALTY)  # (M,)
        # A subset stands for all members: each of them, on average, pays its own once.
        added = coef * self.config.weight * each.mean() * view.members
        metrics = {"dynamics_gap": gap.mean(), "gap_penalty": each.detach().mean()}
        return added, {**self._metrics, **metrics}

    def state_dict(self) -> dict[str, Any]:
        """Discriminators and their optimiser."""
        return {
            "of_action": self.of_action.state_dict(),
            "of_successor": self.of_successor.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.of_action.load_state_dict(state["of_action"])
        self.of_successor.load_state_dict(state["of_successor"])
        self._optimizer.load_state_dict(state["optimizer"])

    def _discrimination(self, batch: Batch, real: Tensor) -> Tensor:
        """Cross-entropy of both discriminators on noisy rows, half of it by real ones."""
        group = self.of_action.group
        obs, action = self._noisy(batch.obs[group]), self._noisy(batch.action)
        next_obs = self._noisy(batch.next_obs[group])
        of_action = self._logits(self.of_action, obs, action)
        joined = torch.cat([action, next_obs], dim=-1)
        of_both = self._logits(self.of_successor, obs, joined) + of_action
        label = torch.where(real, _REAL, _SIMULATED)
        entropy = functional.cross_entropy(of_action, label, reduction="none")
        # The second reaches the first discriminator too, as in the authors' code.
        entropy = entropy + functional.cross_entropy(of_both, label, reduction="none")
        kinds = [(batch.weight * kind * entropy).sum() / kind.sum() for kind in (real, ~real)]
        return 0.5 * (kinds[0] + kinds[1])

    @torch.no_grad()
    def _gap(self, batch: Batch, real: Tensor) -> Tensor:
        """Log ratio, simulated to real, of a row's successor and those around it, (B,), above 0."""
        successor = batch.next_obs[self.of_action.group]
        # Spread of real states; the authors' code takes it over empty rows of its buffer as well.
        spread = batch.obs[self.of_action.group][real].std(0, correction=0)  # (D,)
        total = torch.zeros(len(real), device=successor.device)
        for _ in range(self.config.successors):
            total += self._surplus(batch, successor + self._normals(successor) * spread)
        return (total / self.config.successors).clamp(_SMALLEST_GAP, _LARGEST_GAP)

    def _surplus(self, batch: Batch, successor: Tensor) -> Tensor:
        """Log ratio of successors, log P_simulated / P_real, (B,).

        What the discriminator of actions adds to both logits cancels: it shapes training alone.
        """
        joined = torch.cat([batch.action, successor], dim=-1)
        logits = self._logits(self.of_successor, batch.obs[self.of_action.group], joined)
        return logits[:, _SIMULATED] - logits[:, _REAL]

    def _logits(self, discriminator: Critic, obs: Tensor, rest: Tensor) -> Tensor:
        """Two logits within [-2, 2], (B, 2)."""
        return 2 * torch.tanh(discriminator({discriminator.group: obs}, rest)[0])

    def _constrain(self) -> None:
        for discriminator in (self.of_action, self.of_successor):
            discriminator.constrain()

    def _noisy(self, tensor: Tensor) -> Tensor:
        return tensor + self.config.noise * self._normals(tensor)

    def _normals(self, tensor: Tensor) -> Tensor:
        return torch.randn(tensor.shape, generator=self._generator, device=tensor.device)


def _is_real(batch: Batch) -> Tensor:
    """(B,) bool."""
    source = batch.extra.get("source")
    if source is None:
        raise ConfigError(
            "learner.dynamics_gap needs real transitions beside the run's own in every batch, and "
            "there are none: name them with training.prior.run=... and a training.prior.share "
            "above 0, such as 0.5"
        )
    return source > 0
