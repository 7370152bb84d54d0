"""Made-up experience in which every number tells where it came from, and the slow, obvious rule."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.env import EnvSpec, EnvStep, GroupSpec, Obs

GAMMA = 0.5
"""A power of two: sums of small integers with it are exact in float32."""


@dataclass
class Story:
    """T steps of N worlds. The observation of step t in world n is 10 t + n, its successor's
    10 t + n + 0.5; the action is minus the observation, the second entry of a group its double."""

    reward: Tensor
    """(T, N), or (T, N, K) for terms."""
    terminated: Tensor
    """(T, N) bool, as are the others."""
    truncated: Tensor
    valid: Tensor
    intervened: Tensor | None = None
    """(T, N) bool; None: in no step."""
    gamma: float = GAMMA
    weights: dict[int, list[float]] = field(default_factory=dict)
    """Step -> weights of the K terms from then on."""

    @property
    def spec(self) -> EnvSpec:
        """Two groups of two entries, one action."""
        groups = {"actor": GroupSpec(shape=(2,)), "critic": GroupSpec(shape=(2,))}
        terms = self.reward.shape[2] if self.reward.ndim == 3 else 0
        return EnvSpec(
            num_envs=self.reward.shape[1],
            device=torch.device("cpu"),
            groups=groups,
            action_size=1,
            control_dt=0.1,
            reward_names=tuple(f"term {k}" for k in range(terms)),
        )

    def at(self, t: int) -> tuple[Obs, EnvStep]:
        """Arguments of `ReplayBuffer.add` for step t; all of an invalid row is NaN."""
        n = self.reward.shape[1]
        place = 10.0 * t + torch.arange(n)
        place = torch.where(self.valid[t], place, torch.nan)
        terms = self.reward[t] if self.reward.ndim == 3 else None
        past = [w for when, w in sorted(self.weights.items()) if when <= t]
        weights = torch.tensor(past[-1]) if past else None
        reward = self.reward[t] if terms is None else terms @ torch.ones(terms.shape[1])
        broken = torch.where(self.valid[t], 0.0, torch.nan)
        step = EnvStep(
            obs=_groups(torch.full((n,), 1e6)),  # of the next episode: never to be stored
            next_obs=_groups(place + 0.5),
            reward=reward + broken,
            terminated=self.terminated[t],
            truncated=self.truncated[t],
            success=torch.zeros(n, dtype=torch.bool),
            valid=self.valid[t],
            action=-place[:, None],
            intervened=torch.zeros(n, dtype=torch.bool)
            if self.intervened is None
            else self.intervened[t],
            reward_terms=None if terms is None else terms + broken[:, None],
            reward_weights=weights,
        )
        return _groups(place), step

    def tell(self, replay: ReplayBuffer, start: int = 0, stop: int | None = None) -> ReplayBuffer:
        """Add steps start to stop; the ring that was told them."""
        for t in range(start, len(self.reward) if stop is None else stop):
            replay.add(*self.at(t))
        return replay

    def replay(self, capacity: int | None = None, n_step: int = 1, **changes: Any) -> ReplayBuffer:
        """An empty ring for this story; holds all of it by default."""
        steps, n = self.reward.shape[:2]
        return ReplayBuffer(
            self.spec,
            ("actor", "critic"),
            capacity=capacity or steps * n,
            gamma=self.gamma,
            n_step=n_step,
            **changes,
        )


def story(
    reward: list[list[Any]], *, terminated: Any = (), truncated: Any = (), invalid: Any = ()
) -> Story:
    """A story whose flags are lists of (step, world)."""
    values = torch.tensor(reward, dtype=torch.float32)
    flags = torch.zeros(3, *values.shape[:2], dtype=torch.bool)
    for flag, places in zip(flags, (terminated, truncated, invalid), strict=True):
        for t, n in places:
            flag[t, n] = True
    return Story(reward=values, terminated=flags[0], truncated=flags[1], valid=~flags[2])


def expected(story: Story, t: int, n: int, n_step: int, newest: int) -> Mapping[str, float]:
    """What a sample that begins with step t of world n must hold, one step at a time."""
    total, discount, last = 0.0, 1.0, t
    weights = [w for when, w in sorted(story.weights.items()) if when <= newest]
    if not story.valid[t, n]:
        return {"weight": 0.0}
    for step in range(t, t + n_step):
        if step > newest or not story.valid[step, n]:
            break  # a seam: the future counts from the successor of the step before
        reward = story.reward[step, n]
        paid = float(reward @ torch.tensor(weights[-1])) if reward.ndim else float(reward)
        total += discount * paid
        discount *= story.gamma
        last = step
        if story.terminated[step, n]:
            discount = 0.0
        if story.terminated[step, n] or story.truncated[step, n]:
            break
    return {
        "obs": 10.0 * t + n,
        "action": -(10.0 * t + n),
        "reward": total,
        "discount": discount,
        "next_obs": 10.0 * last + n + 0.5,
        "weight": 1.0,
    }


def by_place(replay: ReplayBuffer, story: Story, samples: int = 512) -> dict[tuple[int, int], Any]:
    """Samples of a ring by the (step, world) that they begin with, as plain numbers."""
    n = story.reward.shape[1]
    newest = replay.total_steps - 1
    batch = replay.sample(samples)
    found: dict[tuple[int, int], Any] = {}
    for i, index in enumerate(batch.extra["index"].tolist()):
        slot, world = divmod(index, n)
        step = newest - (newest - slot) % replay.num_steps
        row = {
            "obs": batch.obs["actor"][i, 0],
            "action": batch.action[i, 0],
            "reward": batch.reward[i],
            "discount": batch.discount[i],
            "next_obs": batch.next_obs["critic"][i, 0],
            "weight": batch.weight[i],
        }
        found[step, world] = {name: float(value) for name, value in row.items()}
    return found


def _groups(place: Tensor) -> Obs:
    pair = torch.stack([place, 2 * place], dim=-1)
    return {"actor": pair, "critic": pair.clone()}
