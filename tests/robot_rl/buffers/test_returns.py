"""n-step returns of random experience against the obvious rule, one reward at a time."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.robot_rl.buffers.story import Story, by_place, expected

pytestmark = pytest.mark.slow

FLAG_RATES = {"terminated": 0.15, "truncated": 0.15, "invalid": 0.1}


@given(
    seed=st.integers(0, 10_000),
    steps=st.integers(1, 14),
    worlds=st.integers(1, 3),
    capacity_steps=st.integers(1, 16),
    n_step=st.integers(1, 5),
    terms=st.integers(0, 2),
    compile=st.booleans(),
)
def test_every_sample_is_what_the_obvious_rule_says(
    seed, steps, worlds, capacity_steps, n_step, terms, compile
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
    capacity = capacity_steps * worlds
    replay = told.tell(told.replay(capacity=capacity, n_step=n_step, compile=compile))
    found = by_place(replay, told, samples=400)
    newest = steps - 1
    oldest = max(0, steps - capacity_steps)
    for (step, world), row in found.items():
        assert oldest <= step <= newest
        for name, value in expected(told, step, world, n_step, newest).items():
            assert row[name] == pytest.approx(value, abs=1e-6), (name, step, world)
