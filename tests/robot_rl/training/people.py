"""Worlds that a person helps in, a grasp, and steps stored before: for learning proofs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.env import EnvStep, GroupSpec, Obs, TermSpec
from robot_rl.training.prior import write_dataset
from tests.fakes import PointMass, ToyEnv

Person = Callable[[Tensor], Tensor]
"""Group `actor` -> actions, both (N, ...)."""


class HelpedEnv(ToyEnv):
    """Worlds in which a person takes over whole episodes, drawn as they begin."""

    def __init__(self, *arguments: Any, person: Person, share: float, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._person, self._share = person, share
        self._takes = torch.Generator().manual_seed(self.spec.num_envs)
        self._helped = torch.rand(self.spec.num_envs, generator=self._takes) < share

    def step(self, action: Tensor) -> EnvStep:
        seen = self.dynamics.observe(self._state)["actor"]
        helped = self._helped
        step = super().step(torch.where(helped[:, None], self._person(seen), action))
        drawn = torch.rand(len(helped), generator=self._takes) < self._share
        self._helped = torch.where(step.ended, drawn, helped)
        return replace(step, intervened=helped)


class SparsePointMass(PointMass):
    """A point mass that is paid for being at rest in the origin, and for nothing else."""

    reward_names: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__(reward_names=())

    def reward_terms(self, state: Tensor, action: Tensor) -> Tensor:
        return (state.abs() < 0.2).all(-1, keepdim=True).float()

    def success(self, state: Tensor) -> Tensor:
        return (state.abs() < 0.2).all(-1)


class Grasp:
    """A hand on a line that must close above the origin, and keep closed: paid for every step that
    it holds. Actions: displacement, and close, stay or open."""

    action_size = 2
    reward_names: tuple[str, ...] = ()

    def __init__(self) -> None:
        terms = [("position", 1), ("gripper_opening", 1), ("held", 1)]
        specs = tuple(TermSpec(name=name, width=width) for name, width in terms)
        self.groups: Mapping[str, GroupSpec] = {"actor": GroupSpec(shape=(3,), terms=specs)}

    def start(self, count: int, generator: torch.Generator) -> Tensor:
        position = torch.rand(count, 1, generator=generator) * 2 - 1
        return torch.cat([position, torch.ones(count, 1), torch.zeros(count, 1)], dim=-1)

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        position, opening, held = state.unbind(-1)
        closes, opens = action[:, 1] < -0.5, action[:, 1] > 0.5
        grasps = closes & (opening > 0.5) & (position.abs() < 0.15)
        held = torch.where(opens, 0.0, torch.where(grasps, 1.0, held))
        opening = torch.where(opens, 1.0, torch.where(closes, 0.0, opening))
        position = (position + 0.2 * action[:, 0]).clamp(-1.5, 1.5)
        return torch.stack([torch.where(held > 0, 0.0, position), opening, held], dim=-1)

    def observe(self, state: Tensor) -> Obs:
        return {"actor": state.clone()}

    def reward_terms(self, state: Tensor, action: Tensor) -> Tensor:
        return state[:, 2:]

    def terminated(self, state: Tensor) -> Tensor:
        return torch.zeros(len(state), dtype=torch.bool)

    def success(self, state: Tensor) -> Tensor:
        return state[:, 2] > 0.5


def store_steps(folder: Path, env: ToyEnv, policy: Callable[[Obs], Tensor], steps: int) -> Path:
    """Steps of a policy as stored experience."""
    replay = ReplayBuffer(env.spec, ("actor",), capacity=steps * env.spec.num_envs, gamma=0.9)
    obs = env.reset(seed=3)
    for _ in range(steps):
        seen = {name: group.clone() for name, group in obs.items()}
        step = env.step(policy(seen))
        replay.add(seen, step)
        obs = step.obs
    return write_dataset(folder, replay)
