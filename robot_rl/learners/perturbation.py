"""Task-oriented perturbation (Huang et al. 2024, arXiv:2410.14972): weights drawn near good agents.

From time to time weights are moved a part of the way to weights that are drawn from the normal
distribution of each weight over the best agents so far. The authors keep copies of ten agents; here
every weight has a running mean and variance, which take the memory of two agents. They are those of
the agents that were accepted, exact for as many as the set holds; from then on each accepted agent
counts as one of the set, while older ones fade. An agent is judged by the mean return of the
episodes that ended since the last one was judged, exploration included; there every single episode
brings a copy, so that those of a thousand envs would all be the same.

The authors' code (suninghuang19/mentor f4fa81f) stops at its first perturbation: it looks experts
up on the actor, and counts every plain layer twice. It also draws for the target critic apart from
its critic; here both take the same draw.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env import EnvStep
from robot_rl.core.errors import ConfigError
from robot_rl.learners.optimization import check_ranges

_LEAST_STD = 1e-7
"""Standard deviation of a weight that all agents have alike, as in the authors' code."""


@dataclass(kw_only=True)
class PerturbationConfig:
    """Times, parts and size of perturbations; the defaults are those of the DeepMind suite."""

    interval: int = 10_000
    """Updates between two perturbations; 0 leaves them out. Meta-World, Adroit: 50,000."""
    agents: int = 10
    """Agents in the set of the best."""
    judge_interval: int = 100
    """Updates between two agents that may join it; an agent is judged by the episodes that ended
    meanwhile, and not at all without one."""
    keep_min: float = 0.2
    """Smallest share of the present weights that is kept (rho)."""
    keep_max: float = 0.95
    """Largest; the authors have 0.6 to 1.0, by task."""
    parts: list[str] = field(default_factory=list[str])
    """Parts that are moved: trunk, gate, experts, head (or actor, for an actor without experts),
    critic, value; empty moves all. The target critic goes with the critic."""
    reset_optimizers: bool = True
    """Adam begins anew in all networks that were moved, as in the authors' code."""

    def __post_init__(self) -> None:
        check_ranges(self, {
            "interval": (0, 1e12), "agents": (2, 1e4), "judge_interval": (1, 1e12),
            "keep_min": (0, 1), "keep_max": (self.keep_min, 1),
        }, "learner.perturbation")  # fmt: skip


class EpisodeReturns:
    """Mean return of the episodes that ended since it was last taken; lives on the device."""

    def __init__(self, device: torch.device) -> None:
        """Begin without episodes; N is known with the first step."""
        self._return = torch.zeros(0, device=device)  # (N,), of the episodes of now
        # Sum of returns, episodes, and 1 where reward weights moved.
        self._ended = torch.zeros(3, dtype=torch.float64, device=device)
        self._weights = torch.zeros(0, device=device)

    @torch.no_grad()
    def observe(self, step: EnvStep) -> None:
        """See a step of N envs; an episode that ends in an invalid row counts for nothing."""
        if self._return.shape != step.reward.shape:
            self._return = torch.zeros_like(step.reward)
        total = self._return + torch.where(step.valid, step.reward, 0.0)
        ended = step.ended & step.valid
        self._ended[0] += torch.where(ended, total, 0.0).sum()
        self._ended[1] += ended.sum()
        if step.reward_weights is not None:
            if self._weights.shape == step.reward_weights.shape:
                self._ended[2] += (self._weights != step.reward_weights).any()
            self._weights = step.reward_weights.clone()
        self._return = total * ~step.ended

    def take(self) -> tuple[float, bool]:
        """Mean return, NaN without an episode; True if returns were of other weights before.

        The host waits for the device.
        """
        total, count, moved = self._ended.tolist()
        self._ended.zero_()
        return total / count if count else math.nan, moved > 0

    def state_dict(self) -> dict[str, Any]:
        """Returns so far, and what ended."""
        return {
            "return": self._return.clone(), "ended": self._ended.clone(),
            "weights": self._weights.clone(),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        device = self._ended.device
        self._return = state["return"].to(device, copy=True)
        self._weights = state["weights"].to(device, copy=True)
        self._ended.copy_(state["ended"])


class BestAgents:
    """Running mean and variance of the weights of the agents with the largest returns."""

    def __init__(self, weights: Sequence[Tensor], limit: int) -> None:
        """Watch the weights of an agent that learns.

        Args:
            weights: Of the agent; they are read wherever one is offered.
            limit: Agents in the set.
        """
        self._weights, self._limit = list(weights), limit
        self._mean = [torch.zeros_like(weight, requires_grad=False) for weight in weights]
        self._variance = [torch.zeros_like(weight, requires_grad=False) for weight in weights]
        self._returns: list[float] = []

    @property
    def count(self) -> int:
        """Agents in the set."""
        return len(self._returns)

    def forget_returns(self) -> None:
        """Begin the set anew: returns from now on do not compare with those before."""
        self._returns = []

    @torch.no_grad()
    def offer(self, value: float) -> bool:
        """Take the agent as it is now into the set, where its return is among the largest.

        Args:
            value: Its mean return.

        Returns:
            True if it was taken; never where its return or a weight is not finite.
        """
        full = len(self._returns) >= self._limit
        if not math.isfinite(value) or (full and value <= min(self._returns)):
            return False
        if not bool(torch.stack([weight.isfinite().all() for weight in self._weights]).all()):
            return False
        if full:
            self._returns.remove(min(self._returns))
        self._returns.append(value)
        rate = 1 / len(self._returns)
        for weight, mean, variance in zip(self._weights, self._mean, self._variance, strict=True):
            # Welford's recursion, exact while the set fills; then older agents fade.
            difference = weight - mean
            mean.add_(difference, alpha=rate)
            variance.addcmul_(difference, difference, value=rate).mul_(1 - rate)
        return True

    def draw(self, generator: torch.Generator) -> list[Tensor]:
        """Weights from the normal distribution of the set, which must have two agents or more."""
        correction = len(self._returns) / (len(self._returns) - 1)
        drawn: list[Tensor] = []
        for mean, variance in zip(self._mean, self._variance, strict=True):
            std = (variance * correction).sqrt().clamp_min(_LEAST_STD)
            noise = torch.randn(mean.shape, generator=generator, device=mean.device)
            drawn.append(torch.addcmul(mean, noise, std))
        return drawn

    def state_dict(self) -> dict[str, Any]:
        """Moments and returns."""
        return {
            "mean": [mean.clone() for mean in self._mean],
            "variance": [variance.clone() for variance in self._variance],
            "returns": list(self._returns),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        for name, own in (("mean", self._mean), ("variance", self._variance)):
            for tensor, saved in zip(own, state[name], strict=True):
                tensor.copy_(saved)
        self._returns = [float(value) for value in state["returns"]]


class Perturbation:
    """Moves the weights of an agent, and of copies that go with them."""

    def __init__(
        self, config: PerturbationConfig, parts: Mapping[str, Sequence[Tensor]],
        followers: Mapping[str, Sequence[Tensor]], device: torch.device,
    ) -> None:  # fmt: skip
        """Choose what is moved.

        Args:
            config: Times, parts and size.
            parts: Weights of an agent by part.
            followers: Weights of a part's copies, which take the same draw.
            device: Of all of them.

        Raises:
            ConfigError: A part is not known.
        """
        names = config.parts or list(parts)
        for name in names:
            if name not in parts:
                raise ConfigError(
                    f"learner.perturbation.parts names '{name}'; this learner has: "
                    + ", ".join(parts)
                )
        self.names = tuple(names)
        """Parts that are moved."""
        self.count = 0
        """Perturbations done."""
        self.returns = EpisodeReturns(device)
        """Judge of the agents."""
        self._config = config
        self._weights = [weight for name in names for weight in parts[name]]
        self._followers: list[Tensor | None] = []
        for name in names:
            self._followers += followers.get(name) or [None] * len(parts[name])
        self.agents = BestAgents(self._weights, config.agents)
        """The best so far."""

    def judge(self, updates: int) -> None:
        """Offer the present agent to the set, where it is time and an episode has ended."""
        if self._config.interval == 0 or updates % self._config.judge_interval:
            return
        value, moved = self.returns.take()
        if moved:
            self.agents.forget_returns()
        self.agents.offer(value)

    def due(self, updates: int) -> bool:
        """True if it is time, and the set knows how agents differ: it has two or more."""
        interval = self._config.interval
        return interval > 0 and updates % interval == 0 and self.agents.count > 1

    @torch.no_grad()
    def move(self, keep: Tensor, generator: torch.Generator) -> None:
        """Weights become keep * weights + (1 - keep) * drawn ones, in place.

        Args:
            keep: Share that is kept, 0-dim.
            generator: Of the draw.
        """
        drawn = self.agents.draw(generator)
        for weight, follower, other in zip(self._weights, self._followers, drawn, strict=True):
            weight.lerp_(other, 1 - keep)
            if follower is not None:
                follower.lerp_(other, 1 - keep)
        self.count += 1

    def state_dict(self) -> dict[str, Any]:
        """Set of the best, returns so far, and the count."""
        return {
            "agents": self.agents.state_dict(), "returns": self.returns.state_dict(),
            "count": self.count,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.agents.load_state_dict(state["agents"])
        self.returns.load_state_dict(state["returns"])
        self.count = int(state["count"])
