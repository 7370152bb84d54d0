"""n-step returns of long random experience against a float64 sum, one reward at a time.

`story.py` tells experience in small integers, whose sums are exact; here rewards are any numbers,
the discount is one that people train with, and the sum is what the tolerance is about.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.env import EnvSpec, EnvStep, GroupSpec
from tests.robot_rl.buffers.story import Story, by_place, expected

pytestmark = pytest.mark.slow

WORLDS, TOLERANCE = 5, 1e-5
GAMMA = 0.97


class Stream:
    """T steps of five worlds, remembered in float64; the observation says (step, world)."""

    def __init__(self, seed: int, steps: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = (steps, WORLDS)
        # Positive, over three magnitudes: a relative error is one of the whole sum.
        self.reward = 10 ** (3 * torch.rand(shape, generator=generator, dtype=torch.float64) - 2)
        chance = torch.rand(3, *shape, generator=generator)
        self.terminated = chance[0] < 0.04
        self.truncated = (chance[1] < 0.06) & ~self.terminated
        self.valid = chance[2] > 0.03

    def told(self, capacity_steps: int, n_step: int) -> ReplayBuffer:
        spec = EnvSpec(
            num_envs=WORLDS, device=torch.device("cpu"), action_size=1, control_dt=0.1,
            groups={"actor": GroupSpec(shape=(2,))},
        )  # fmt: skip
        replay = ReplayBuffer(
            spec, ("actor",), capacity=capacity_steps * WORLDS, gamma=GAMMA, n_step=n_step
        )
        none = torch.zeros(WORLDS, dtype=torch.bool)
        for t in range(len(self.reward)):
            broken = torch.where(self.valid[t], 0.0, torch.nan)
            step = EnvStep(
                obs={"actor": torch.full((WORLDS, 2), -1.0)}, next_obs={"actor": _place(t + 0.5)},
                reward=self.reward[t].float() + broken, terminated=self.terminated[t],
                truncated=self.truncated[t], success=none, valid=self.valid[t],
                action=torch.zeros(WORLDS, 1), intervened=none,
            )  # fmt: skip
            replay.add({"actor": _place(t)}, step)
        return replay

    def expected(self, t: int, n: int, n_step: int) -> tuple[float, float, float]:
        """Return, discount and step of the successor, by walking on while the story goes on."""
        total, k = 0.0, 0
        while True:
            total += GAMMA**k * float(self.reward[t + k, n])
            k += 1
            if self.terminated[t + k - 1, n]:
                return total, 0.0, t + k - 0.5
            last = t + k == len(self.reward)
            if k == n_step or self.truncated[t + k - 1, n] or last or not self.valid[t + k, n]:
                return total, GAMMA**k, t + k - 0.5


def _place(t: float) -> Tensor:
    return torch.stack([torch.full((WORLDS,), float(t)), torch.arange(WORLDS).float()], dim=-1)


@pytest.mark.parametrize(("n_step", "capacity_steps"), [(3, 150), (10, 37)])
def test_returns_and_discounts_are_those_of_a_float64_sum(n_step, capacity_steps):
    for seed in range(2):
        stream = Stream(seed, steps=120)
        batch = stream.told(capacity_steps, n_step).sample(1500)
        kept = batch.weight != 0  # invalid rows: zeros were stored
        places = batch.obs["actor"][kept].long().tolist()
        expected = torch.tensor([stream.expected(t, n, n_step) for t, n in places])
        assert torch.allclose(batch.reward[kept], expected[:, 0], rtol=TOLERANCE, atol=0.0)
        assert torch.allclose(batch.discount[kept], expected[:, 1], rtol=TOLERANCE, atol=0.0)
        assert torch.equal(batch.next_obs["actor"][kept][:, 0], expected[:, 2])
        assert torch.equal(batch.next_obs["actor"][kept][:, 1], batch.obs["actor"][kept][:, 1])
        oldest, seen = max(0, 120 - capacity_steps), {*map(tuple, places)}
        assert seen <= {(t, n) for t in range(oldest, 120) for n in range(WORLDS)}
        assert len(seen) > 0.85 * (120 - oldest) * WORLDS


FLAG_RATES = {"terminated": 0.15, "truncated": 0.15, "invalid": 0.1}


@given(
    seed=st.integers(0, 10_000),
    steps=st.integers(1, 14),
    worlds=st.integers(1, 3),
    capacity_steps=st.integers(1, 16),
    n_step=st.integers(1, 5),
    terms=st.integers(0, 2),
)
def test_every_sample_is_what_the_obvious_rule_says(
    seed, steps, worlds, capacity_steps, n_step, terms
):
    capacity_steps = max(capacity_steps, n_step)
    generator = torch.Generator().manual_seed(seed)
    shape = (steps, worlds, terms) if terms else (steps, worlds)
    chance = torch.rand(3, steps, worlds, generator=generator)
    told = Story(
        # Small integers: exact in float32 in any order of summing.
        reward=torch.randint(-4, 5, shape, generator=generator).float(),
        terminated=chance[0] < FLAG_RATES["terminated"],
        truncated=chance[1] < FLAG_RATES["truncated"],
        valid=chance[2] >= FLAG_RATES["invalid"],
        weights={0: [1.0] * terms, steps // 2: [2.0, -1.0][:terms]} if terms else {},
    )
    told.truncated &= ~told.terminated
    replay = told.tell(told.replay(capacity=capacity_steps * worlds, n_step=n_step))
    found = by_place(replay, told, samples=400)
    newest = steps - 1
    oldest = max(0, steps - capacity_steps)
    for (step, world), row in found.items():
        assert oldest <= step <= newest
        for name, value in expected(told, step, world, n_step, newest).items():
            assert row[name] == pytest.approx(value, abs=1e-6), (name, step, world)
