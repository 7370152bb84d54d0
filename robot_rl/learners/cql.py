"""Conservative and calibrated Q-learning: SAC with critics kept low where nobody has been.

CQL (Kumar et al. 2020, arXiv:2006.04779, eq. 4, the variant CQL(H)) adds to the critics' loss the
gap between the soft maximum of Q over all actions and Q of the stored one. Cal-QL (Nakamoto et al.
2023, arXiv:2303.05479, eq. 5.1) pushes a policy action down no further than to the return that was
really reached from there, so that values keep their scale when the run goes online.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from policies.networks.trunks import NetworkKind
from robot_rl.core.env import EnvSpec
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import MonteCarloReturns
from robot_rl.core.transition import Batch
from robot_rl.learners.networks import repeat_obs
from robot_rl.learners.off_policy import OffPolicyConfig
from robot_rl.learners.optimization import Optimizer, Reduce, check_ranges
from robot_rl.learners.sac import SAC, CriticPenalty, CriticView, SACConfig
from robot_rl.learners.values import RewardScaling

MONTE_CARLO = "monte_carlo_return"
"""Entry of `Batch.extra` that Cal-QL reads, (B,): -inf where it is not known."""


@dataclass(kw_only=True)
class CQLPenaltyConfig:
    """Penalty on values of actions that nobody has tried."""

    weight: float = 0.0
    """Weight of the gap in the critics' loss, or where it begins with `wanted_gap`; 0 is plain
    SAC. WSRL: 5 for locomotion and kitchen, 1 for Adroit."""
    wanted_gap: float = 0.0
    """Gap that the weight is tuned to, as a Lagrange multiplier; 0 keeps the weight. WSRL's
    AntMaze: 0.8."""
    weight_lr: float = 3e-4
    """Step size of the tuned weight's parameter."""
    actions: int = 10
    """Actions per row of each of three kinds: uniform, of the policy, of the policy one step on."""
    next_actions: int = 10
    """Actions at every next observation, of which the largest value counts in the target, as long
    as the penalty does; 1 is SAC's own target."""
    temperature: float = 1.0
    """Of the soft maximum."""
    importance: bool = True
    """Divide by the density that actions were drawn with; false takes them as they come, with the
    stored one among them (WSRL's kitchen)."""
    calibrated: bool = False
    """Cal-QL: values of policy actions count at least as the stored return of their row."""
    failure_reward: float = 0.0
    """Reward of every step of a failure that is never ended: the return of all steps of an episode
    without success is then failure_reward / (1 - gamma). 0 takes returns as they were recorded."""
    online: bool = True
    """Go on when the run goes online (CQL, Cal-QL); false is WSRL's plain SAC from there on."""
    fade_updates: int = 0
    """With `online=false`: updates online over which the penalty falls to nothing, linearly; 0 ends
    it at once. What it held down does not come up before the run's own experience says better.
    Targets take `next_actions` until it has ended; a tuned weight is not tuned meanwhile."""

    def __post_init__(self) -> None:
        check_ranges(self, {
            "weight": (0, 1e6), "wanted_gap": (0, 1e6), "weight_lr": (0, 1), "actions": (1, 1e4),
            "next_actions": (1, 1e4), "temperature": (1e-6, 1e6), "failure_reward": (-1e9, 1e9),
            "fade_updates": (0, 1e12),
        }, owner="learner.conservatism")  # fmt: skip
        if self.calibrated and self.weight == 0:
            raise ConfigError(
                "learner.conservatism.calibrated=true needs a weight above 0, got "
                "learner.conservatism.weight=0: choose learner=cal_ql, or a weight such as 5"
            )
        if self.fade_updates and self.weight == 0:
            raise ConfigError(
                f"learner.conservatism.fade_updates={self.fade_updates} lets a penalty end that is "
                "not there: learner.conservatism.weight=0; leave it out, or choose a weight such "
                "as 5"
            )
        if self.fade_updates and self.online:
            raise ConfigError(
                f"learner.conservatism.fade_updates={self.fade_updates} lets the penalty end, and "
                "learner.conservatism.online=true lets it go on; choose online=false or no fade"
            )


@dataclass(kw_only=True)
class CQLConfig(SACConfig):
    """SAC with a conservative penalty."""

    conservatism: CQLPenaltyConfig = field(default_factory=CQLPenaltyConfig)
    """Penalty on values of actions that nobody has tried: CQL, Cal-QL."""

    def __post_init__(self) -> None:
        super().__post_init__()
        low = self.conservatism
        if low.failure_reward and not low.calibrated:
            raise ConfigError(
                f"learner.conservatism.failure_reward {low.failure_reward} says what "
                "returns of failures count as, which calibrated values alone ask for: set "
                "learner.conservatism.calibrated=true (learner=cal_ql), or failure_reward=0"
            )
        if low.weight == 0:
            return
        if self.values.atoms or self.reward_scale is not RewardScaling.none:
            raise ConfigError(
                "learner.conservatism.weight above 0 is for values in the rewards' own size: set "
                "learner.values.atoms=0 and learner.reward_scale=none, got "
                f"{self.values.atoms} and {self.reward_scale.value}"
            )
        if low.next_actions > 1 and self.target.entropy:
            raise ConfigError(
                f"learner.conservatism.next_actions {low.next_actions} takes the "
                "largest of several values, which leaves no entropy to pay for: set "
                "learner.target.entropy=false, or next_actions to 1"
            )
        if self.critic.kind is NetworkKind.flash:
            raise ConfigError(
                "learner.conservatism.weight above 0 compares stored actions with others, which "
                "the batch norm of learner.critic.kind=flash would see apart; take mlp, simba or "
                "bro, or set learner.conservatism.weight=0"
            )


class CQL(SAC):
    """SAC whose critics are kept low where nobody has been; a weight of 0 is plain SAC."""

    def __init__(
        self, config: CQLConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
        reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Make SAC with the penalty; arguments as of `SAC`."""
        low = config.conservatism

        def penalty(generator: torch.Generator) -> CriticPenalty:
            return CQLPenalty(low, config, device=spec.device, generator=generator, reduce=reduce)

        super().__init__(
            config, spec, seed=seed, stream_seed=stream_seed, reduce=reduce,
            penalty=penalty if low.weight > 0 else None,
        )  # fmt: skip
        if low.calibrated:
            goes_on = low.online or low.fade_updates > 0
            self.monte_carlo_returns = MonteCarloReturns(
                failure_reward=low.failure_reward, online=goes_on
            )


class CQLPenalty:
    """The penalty of CQL and Cal-QL."""

    offline = True
    """It is what lets a learner begin with stored experience alone."""

    capturable = True
    """Nothing in it waits for the device."""

    def __init__(
        self, config: CQLPenaltyConfig, optimizer: OffPolicyConfig, *, device: torch.device,
        generator: torch.Generator, reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Begin at the weight of the config.

        Args:
            config: Settings; its weight is above 0.
            optimizer: Constants of Adam, for the tuned weight.
            device: Where the critics live.
            generator: Of the uniform actions; saved by its owner.
            reduce: Joins gradients of several processes.
        """
        self.config = config
        self.next_actions = config.next_actions
        self._generator = generator
        start = config.weight + math.log(-math.expm1(-config.weight))  # softplus(x) = weight
        self.parameter = torch.tensor(start, device=device, requires_grad=True)
        """x of the tuned weight softplus(x), 0-dim."""
        self._optimizer = Optimizer(
            [self.parameter], config.weight_lr, optimizer, reduce=reduce, weight_decay=0.0,
            max_grad_norm=0.0, warm_up=False,
        )  # fmt: skip

    def coef(self, online_updates: int) -> float:
        """All of it, none, or what a fade has left."""
        if self.config.online:
            return 1.0
        fade = self.config.fade_updates
        return max(0.0, 1 - online_updates / fade) if fade else 0.0

    def weight(self, batch: Batch) -> Tensor:
        """Rows count as they were drawn."""
        return batch.weight

    def loss(self, batch: Batch, view: CriticView, coef: float) -> tuple[Tensor, dict[str, Tensor]]:
        """Weight times the gap, summed over members as the temporal difference is."""
        gap, metrics = self._gap(batch, view)  # (M,)
        alpha = coef * self._weight()
        # A subset stands for all members: each of them, on average, pays its own gap once.
        loss = alpha * gap.mean() * view.members
        gap = gap.detach().mean()
        if self.config.wanted_gap > 0 and coef == 1:  # or it would be tuned against its fade
            # Rises while the gap is above the wanted one: gradient of -softplus(x) (gap - wanted).
            x = self.parameter.detach()
            self.parameter.grad = -torch.sigmoid(x) * (gap - self.config.wanted_gap)
            self._optimizer.descend()
        return loss, {**metrics, "conservative_gap": gap, "conservative_weight": alpha}

    def state_dict(self) -> dict[str, Any]:
        """The tuned weight and its optimiser."""
        return {
            "parameter": self.parameter.detach().clone(),
            "optimizer": self._optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        with torch.no_grad():
            self.parameter.copy_(state["parameter"])
        self._optimizer.load_state_dict(state["optimizer"])

    def _weight(self) -> Tensor:
        tuned = self.config.wanted_gap > 0
        return functional.softplus(self.parameter.detach()) if tuned else torch.full_like(
            self.parameter.detach(), self.config.weight
        )  # fmt: skip

    def _gap(self, batch: Batch, view: CriticView) -> tuple[Tensor, dict[str, Tensor]]:
        """Soft maximum of Q over actions less Q of the stored one, mean over rows, (M,)."""
        config, (rows, size) = self.config, batch.action.shape
        count, temperature = config.actions, config.temperature
        uniform = torch.empty(count * rows, size, device=batch.action.device)
        uniform.uniform_(-1, 1, generator=self._generator)
        # All three kinds are judged at the row's own observation.
        here, log_here = view.sample(repeat_obs(batch.obs, count))
        there, log_there = view.sample(repeat_obs(batch.next_obs, count))
        actions = torch.cat([uniform, here, there])  # (3 n B, A)
        q = view.value(repeat_obs(batch.obs, 3 * count), actions).view(-1, 3 * count, rows)
        metrics: dict[str, Tensor] = {}
        if config.calibrated:
            floor = batch.extra[MONTE_CARLO]  # (B,)
            metrics["calibrated_fraction"] = (q.detach()[:, count:] < floor).float().mean()
            # Policy actions only: what a uniform action would bring, the return does not say.
            q = torch.cat([q[:, :count], q[:, count:].maximum(floor)], dim=1)
        if config.importance:
            uniform_density = torch.full_like(log_here, -size * math.log(2))
            log_density = torch.cat([uniform_density, log_here, log_there])
            soft = torch.logsumexp((q - log_density.view(3 * count, rows)) / temperature, dim=1)
        else:
            q = torch.cat([q, view.at_data[:, None]], dim=1)  # (M, 3 n + 1, B)
            soft = torch.logsumexp(q / temperature, dim=1) - math.log(3 * count + 1)
        gap = temperature * soft - view.at_data  # (M, B)
        return (batch.weight * gap).mean(-1), metrics
