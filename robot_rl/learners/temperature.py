"""The price of entropy, learned so that the policy keeps a wanted entropy (Haarnoja et al. 2018b).

Peers differ in what the gradient goes through; the fixed point is the same, the speed is not.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from robot_rl.learners.off_policy import OffPolicyConfig
from robot_rl.learners.optimization import Optimizer, Reduce, check_ranges


class TemperatureLoss(Enum):
    """Loss by which the temperature follows the surplus of entropy."""

    alpha = "alpha"
    """alpha * surplus with alpha = exp(x): the paper, RLPD, FastSAC."""
    log_alpha = "log_alpha"
    """log(alpha) * surplus: Stable-Baselines3, DSAC-T, H2O."""
    softplus = "softplus"
    """alpha * surplus with alpha = softplus(x): SERL, WSRL."""
    fixed = "fixed"
    """The temperature stays at its start."""


@dataclass(kw_only=True)
class MaximumEntropyConfig(OffPolicyConfig):
    """Hyperparameters of learners that are paid for entropy."""

    init_temperature: float = 1.0
    """Temperature at the start."""
    temperature_lr: float = 3e-4
    """Step size of the temperature's parameter."""
    temperature_loss: TemperatureLoss = TemperatureLoss.alpha
    """Quantity that the gradient goes through, or `fixed`."""
    target_entropy_per_action: float = -1.0
    """Target entropy divided by the number of action entries [nat]."""

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        super().__post_init__()
        check_ranges(self, {"temperature_lr": (0, 1), "init_temperature": (1e-9, 1e6)})


def normal_entropy(std: float) -> float:
    """Entropy of a normal distribution of this standard deviation [nat]."""
    return 0.5 * math.log(2 * math.pi * math.e * std**2)


class Temperature:
    """A positive number alpha with one trained parameter x."""

    def __init__(
        self, config: MaximumEntropyConfig, *, action_size: int, device: torch.device,
        reduce: Reduce | None = None, interval: int = 1,
    ) -> None:  # fmt: skip
        """Start at `init_temperature`.

        Args:
            config: Start, step size, loss and target.
            action_size: A, which scales the target entropy.
            device: Where it lives.
            reduce: Joins gradients of several processes.
            interval: Updates of the learner per step of the temperature.
        """
        self.target_entropy = config.target_entropy_per_action * action_size
        """Wanted entropy [nat]."""
        self.loss = config.temperature_loss
        start = torch.tensor(config.init_temperature, dtype=torch.float64)
        x = self._parameter_at(start).to(device, torch.float32)
        self.parameter = x.requires_grad_()
        """x, 0-dim."""
        # No decay of weights: it would pull alpha towards 1. No clipping: peers have none here.
        self._optimizer = Optimizer(
            [self.parameter], config.temperature_lr, config, reduce=reduce, weight_decay=0.0,
            max_grad_norm=0.0, warm_up=False, interval=interval,
        )  # fmt: skip

    def value(self) -> Tensor:
        """Alpha, 0-dim, without a graph."""
        return self._alpha(self.parameter.detach())

    def step(self, log_prob: Tensor, weight: Tensor) -> None:
        """Raise alpha where entropy falls short of its target, lower it where there is more.

        Args:
            log_prob: Of actions drawn from the policy, (B,).
            weight: Importance of the rows, (B,).
        """
        if self.loss is TemperatureLoss.fixed:
            return
        surplus = (weight * (-log_prob.detach() - self.target_entropy)).mean()  # [nat]
        self.parameter.grad = self._slope() * surplus
        self._optimizer.descend()

    def follow(self, interval: int) -> None:
        """Step once in so many updates of the learner from here on."""
        self._optimizer.interval = interval

    def state_dict(self) -> dict[str, Any]:
        """Parameter, what alpha is of it, and optimiser."""
        return {
            "parameter": self.parameter.detach().clone(),
            "soft": self._soft,
            "optimizer": self._optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`, of another loss too; a fixed temperature stays where it is."""
        if self.loss is TemperatureLoss.fixed:
            return
        x, optimizer = state["parameter"], state["optimizer"]
        soft = state.get("soft", self._soft)  # states of before it was kept are of the same loss
        if soft != self._soft:
            x = self._parameter_at(torch.nn.functional.softplus(x) if soft else x.exp())
            # Adam's means are of another slope; the count of updates goes on.
            optimizer = self._optimizer.state_dict() | {"updates": optimizer["updates"]}
        with torch.no_grad():
            self.parameter.copy_(x)
        self._optimizer.load_state_dict(optimizer)

    @property
    def _soft(self) -> bool:
        return self.loss is TemperatureLoss.softplus

    def _parameter_at(self, alpha: Tensor) -> Tensor:
        # softplus(log(exp(a) - 1)) = a; written so that large a does not overflow.
        return alpha + torch.log(-torch.expm1(-alpha)) if self._soft else alpha.log()

    def _slope(self) -> Tensor:
        """Derivative of the price of entropy: of x itself, exp(x) or softplus(x)."""
        x = self.parameter.detach()
        if self.loss is TemperatureLoss.log_alpha:
            return torch.ones_like(x)
        return torch.sigmoid(x) if self._soft else x.exp()

    def _alpha(self, x: Tensor) -> Tensor:
        return torch.nn.functional.softplus(x) if self._soft else x.exp()
