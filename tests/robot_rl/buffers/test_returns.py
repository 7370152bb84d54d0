"""Rows of steps, packed and read back; n-step returns against the obvious rule."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from robot_rl.buffers.returns import RowLayout
from robot_rl.core.env import GroupSpec
from robot_rl.core.errors import ConfigError, ShapeError
from tests.robot_rl.buffers.story import Story, by_place, expected, story

FLAG_RATES = {"terminated": 0.15, "truncated": 0.15, "invalid": 0.1}


@pytest.mark.slow
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


PLAIN = story([[1.0, 2.0]], terminated=[(0, 1)])
TERMS = story([[[1.0, 10.0], [2.0, 20.0]]], truncated=[(0, 0)], invalid=[(0, 1)])


def test_parts_come_back_as_they_went_in():
    layout = RowLayout(PLAIN.spec, ["critic", "actor"])
    assert layout.width == 2 + 2 + 1 + 1 + 2 + 2 + 4
    rows = torch.full((2, layout.width), torch.nan)
    obs, step = PLAIN.at(0)
    layout.pack(obs, step, rows)
    part = layout.split(rows)
    for name in ("actor", "critic"):
        assert torch.equal(layout.obs(part, "obs/")[name], obs[name])
        assert torch.equal(layout.obs(part, "next_obs/")[name], step.next_obs[name])
    assert torch.equal(part["action"], step.action)
    assert torch.equal(part["reward"][:, 0], step.reward)
    flags = {name: part[name][:, 0].tolist() for name in ("terminated", "valid")}
    assert flags == {"terminated": [0, 1], "valid": [1, 1]}


def test_terms_are_stored_one_by_one_and_an_invalid_row_is_all_zero():
    layout = RowLayout(TERMS.spec, ["actor"])
    rows = torch.full((2, layout.width), torch.nan)
    layout.pack(*TERMS.at(0), rows)
    part = layout.split(rows)
    assert part["reward"].tolist() == [[1.0, 10.0], [0.0, 0.0]]
    assert part["truncated"][:, 0].tolist() == [1, 0]
    assert rows[1].tolist() == [0.0] * layout.width


def test_an_unknown_group_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"'critc' is unknown \(did you mean 'critic'"):
        RowLayout(PLAIN.spec, ["actor", "critc"])


@pytest.mark.parametrize(
    "group", [GroupSpec(shape=(4, 4, 3), dtype=torch.uint8), GroupSpec(shape=(2, 2))]
)
def test_what_is_no_float_vector_is_refused(group):
    spec = replace(PLAIN.spec, groups={"image/front": group})
    with pytest.raises(ConfigError, match="'image/front' has shape"):
        RowLayout(spec, ["image/front"])


def test_a_step_wider_than_its_spec_never_spills_into_the_next_row():
    layout = RowLayout(PLAIN.spec, ["actor"])
    ring = torch.zeros(3, 2, layout.width)
    obs, step = PLAIN.at(0)
    with pytest.raises(ShapeError, match=f"rows of {layout.width} floats"):
        layout.pack({"actor": torch.ones(2, 5)}, step, ring[0])
    with pytest.raises(ShapeError):
        layout.pack(obs, TERMS.at(0)[1], ring[0])
    assert torch.equal(ring, torch.zeros_like(ring))
