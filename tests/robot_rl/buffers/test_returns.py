"""n-step returns of long random experience against a float64 sum, one reward at a time.

`story.py` tells experience in small integers, whose sums are exact; here rewards are any numbers,
the discount is one that people train with, and the sum is what the tolerance is about.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.robot_rl.buffers.story import Story, by_place, expected

pytestmark = pytest.mark.slow

WORLDS, TOLERANCE = 5, 1e-5
GAMMA = 0.97


@pytest.mark.parametrize(("n_step", "capacity_steps"), [(3, 150), (10, 37)])
@pytest.mark.parametrize("seed", [0, 1])
def test_returns_and_discounts_are_those_of_a_float64_sum(n_step, capacity_steps, seed):
    generator = torch.Generator().manual_seed(seed)
    # Positive, over three magnitudes: a relative error is one of the whole sum.
    reward = 10 ** (3 * torch.rand(120, WORLDS, generator=generator) - 2)
    chance = torch.rand(3, 120, WORLDS, generator=generator)
    terminated = chance[0] < 0.04
    told = Story(
        reward=reward, terminated=terminated, truncated=(chance[1] < 0.06) & ~terminated,
        valid=chance[2] > 0.03, gamma=GAMMA,
    )  # fmt: skip
    replay = told.tell(told.replay(capacity=capacity_steps * WORLDS, n_step=n_step))
    found = by_place(replay, told, samples=1500)
    oldest = max(0, 120 - capacity_steps)
    assert set(found) <= {(t, n) for t in range(oldest, 120) for n in range(WORLDS)}
    assert len(found) > 0.85 * (120 - oldest) * WORLDS
    for (step, world), row in found.items():
        for name, value in expected(told, step, world, n_step, 119).items():
            assert row[name] == pytest.approx(value, rel=TOLERANCE), (name, step, world)


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
