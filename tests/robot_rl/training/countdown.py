"""Worlds that live a known number of steps, and a learner that only remembers what it was told."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from robot_rl.core.env import EnvStep, GroupSpec, Obs
from tests.fakes import copied


@dataclass
class Countdown:
    """World n terminates after `lifetimes[n]` steps; every step pays one."""

    lifetimes: tuple[float, ...]
    action_size: int = 1
    reward_names: tuple[str, ...] = ()
    groups: Mapping[str, GroupSpec] = field(
        default_factory=lambda: {"actor": GroupSpec(shape=(1,))}
    )

    def start(self, count: int, generator: torch.Generator) -> Tensor:
        return torch.tensor(self.lifetimes)[:, None]

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        return state - 1

    def observe(self, state: Tensor) -> Obs:
        return {"actor": state.clone()}

    def reward_terms(self, state: Tensor, action: Tensor) -> Tensor:
        return torch.ones_like(state)

    def terminated(self, state: Tensor) -> Tensor:
        return state[:, 0] <= 0

    def success(self, state: Tensor) -> Tensor:
        return torch.ones_like(state[:, 0], dtype=torch.bool)


class Listener:
    """A learner that acts by halves and keeps copies of everything it hears."""

    actor_groups = ("actor",)
    critic_groups: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.acted: list[Obs] = []
        self.begun: list[list[bool]] = []
        self.observed: list[EnvStep] = []

    def act(self, obs: Obs, explore: bool) -> Tensor:
        assert explore
        self.acted.append(copied(obs))
        return torch.full_like(obs["actor"], 0.5)

    def begin(self, mask: Tensor) -> None:
        self.begun.append(mask.tolist())

    def observe(self, step: EnvStep) -> None:
        self.observed.append(copied(step))
