"""A step packed into rows and read back, part by part."""

from dataclasses import replace

import pytest
import torch

from robot_rl.buffers.returns import RowLayout
from robot_rl.core.env import GroupSpec
from robot_rl.core.errors import ConfigError, ShapeError
from tests.robot_rl.buffers.story import story

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
