"""Worlds of `ToyEnv`: linear systems, a point mass, a chain of states, a seen dot."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from robot_rl.core.env import GroupSpec, Obs


class Dynamics(Protocol):
    """One kind of world; states are (N, S)."""

    action_size: int
    groups: Mapping[str, GroupSpec]
    reward_names: tuple[str, ...]

    def start(self, count: int, generator: torch.Generator) -> Tensor: ...

    def step(self, state: Tensor, action: Tensor) -> Tensor: ...

    def observe(self, state: Tensor) -> Obs: ...

    def reward_terms(self, state: Tensor, action: Tensor) -> Tensor:
        """(N, K), or (N, 1) without names, of the state that was reached."""
        ...

    def terminated(self, state: Tensor) -> Tensor: ...

    def success(self, state: Tensor) -> Tensor: ...


@dataclass
class LinearWorld:
    """A stable linear system that any action drives; observed through fixed random matrices."""

    groups: Mapping[str, GroupSpec] = field(
        default_factory=lambda: {"actor": GroupSpec(shape=(4,)), "critic": GroupSpec(shape=(6,))}
    )
    action_size: int = 2
    reward_names: tuple[str, ...] = ()
    bound: float = 1.8  # |x_0| beyond which a world terminates; 2 is never reached

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(7)
        self._drive = torch.randn(self.action_size, 5, generator=generator)
        self._eyes = {
            name: torch.randn(5, math.prod(group.shape), generator=generator)
            for name, group in self.groups.items()
        }

    def start(self, count: int, generator: torch.Generator) -> Tensor:
        return torch.rand(count, 5, generator=generator, device=generator.device) * 2 - 1

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        drive = self._drive.to(state.device)
        # A sum over a small axis, not a matrix product: rows do not depend on their position.
        return 0.9 * state + 0.2 * torch.tanh((action[:, :, None] * drive).sum(1))

    def observe(self, state: Tensor) -> Obs:
        obs = {}
        for name, group in self.groups.items():
            flat = (state[:, :, None] * self._eyes[name].to(state.device)).sum(1).tanh()
            seen = flat.reshape(-1, *group.shape)
            is_image = group.dtype is torch.uint8
            obs[name] = (127 * (seen + 1)).to(torch.uint8) if is_image else seen
        return obs

    def reward_terms(self, state: Tensor, action: Tensor) -> Tensor:
        width = max(1, len(self.reward_names))
        return torch.stack([state[:, 0] - k * action[:, 0] for k in range(width)], dim=-1)

    def terminated(self, state: Tensor) -> Tensor:
        return state[:, 0].abs() > self.bound

    def success(self, state: Tensor) -> Tensor:
        return state[:, 1] > 0


@dataclass
class PointMass:
    """A mass on a line or a plane, pushed to rest in the origin: a double integrator."""

    axes: int = 1
    reward_names: tuple[str, ...] = ("position", "speed", "effort")

    def __post_init__(self) -> None:
        self.action_size = self.axes
        self.groups: Mapping[str, GroupSpec] = {"actor": GroupSpec(shape=(2 * self.axes,))}

    def start(self, count: int, generator: torch.Generator) -> Tensor:
        shape = (count, 2 * self.axes)
        return torch.rand(shape, generator=generator, device=generator.device) * 2 - 1

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        position, velocity = state.chunk(2, dim=-1)
        velocity = velocity + 0.2 * action
        return torch.cat([position + 0.1 * velocity, velocity], dim=-1)

    def observe(self, state: Tensor) -> Obs:
        return {"actor": state.clone()}

    def reward_terms(self, state: Tensor, action: Tensor) -> Tensor:
        position, velocity = state.chunk(2, dim=-1)
        return -torch.stack([(x * x).sum(-1) for x in (position, velocity, action)], dim=-1)

    def terminated(self, state: Tensor) -> Tensor:
        return state[:, : self.axes].abs().amax(-1) > 2.0

    def success(self, state: Tensor) -> Tensor:
        return state[:, : self.axes].abs().amax(-1) < 0.2


@dataclass
class Chain:
    """States 0 to L - 1, walked through one by one; the last is never left. Actions do nothing.

    Arriving in state s pays s / (L - 1), so the values are known (`values`), if and only if the
    random time limits of the episodes are not mistaken for ends of the world.
    """

    length: int = 4
    action_size: int = 1
    reward_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.groups: Mapping[str, GroupSpec] = {"actor": GroupSpec(shape=(self.length,))}

    def values(self, gamma: float) -> Tensor:
        """(L,): discounted sum of all that follows each state."""
        value = torch.full((self.length,), 1 / (1 - gamma))
        for s in reversed(range(self.length - 1)):
            value[s] = (s + 1) / (self.length - 1) + gamma * value[s + 1]
        return value

    def start(self, count: int, generator: torch.Generator) -> Tensor:
        shape, device = (count, 1), generator.device
        return torch.randint(self.length, shape, generator=generator, device=device).float()

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        return (state + 1).clamp(max=self.length - 1)

    def observe(self, state: Tensor) -> Obs:
        return {"actor": torch.eye(self.length, device=state.device)[state[:, 0].long()]}

    def reward_terms(self, state: Tensor, action: Tensor) -> Tensor:
        return state / (self.length - 1)

    def terminated(self, state: Tensor) -> Tensor:
        return torch.zeros_like(state[:, 0], dtype=torch.bool)

    def success(self, state: Tensor) -> Tensor:
        return self.terminated(state)


@dataclass
class MovingDot:
    """A dot that moves along a line, to be brought to its middle; only a camera sees where it is.

    The state is the dot's last place and its present one: a stack of two frames.
    """

    pixels: int = 12
    action_size: int = 1
    reward_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        camera = GroupSpec(shape=(2, self.pixels, self.pixels, 1), dtype=torch.uint8, stack=2)
        self.groups: Mapping[str, GroupSpec] = {
            "actor": GroupSpec(shape=(1,)), "image/eye": camera
        }  # fmt: skip

    def start(self, count: int, generator: torch.Generator) -> Tensor:
        place = torch.rand(count, 1, generator=generator, device=generator.device) * 2 - 1
        return place.expand(-1, 2)

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        return torch.cat([state[:, 1:], (state[:, 1:] + 0.3 * action).clamp(-1, 1)], dim=-1)

    def observe(self, state: Tensor) -> Obs:
        columns = torch.linspace(-1, 1, self.pixels, device=state.device)
        bright = torch.exp(-(((columns - state[..., None]) / 0.2) ** 2))  # (N, 2, pixels)
        frames = (255 * bright).to(torch.uint8)[:, :, None, :, None]
        return {
            "actor": torch.zeros_like(state[:, :1]),
            "image/eye": frames.expand(-1, -1, self.pixels, -1, -1).contiguous(),
        }

    def reward_terms(self, state: Tensor, action: Tensor) -> Tensor:
        return -state[:, 1:].abs()

    def terminated(self, state: Tensor) -> Tensor:
        return torch.zeros_like(state[:, 0], dtype=torch.bool)

    def success(self, state: Tensor) -> Tensor:
        return state[:, 1].abs() < 0.15
