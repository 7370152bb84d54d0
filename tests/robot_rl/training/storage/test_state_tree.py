"""A training state comes back exactly, whatever it is made of."""

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor

from robot_rl.core.errors import CheckpointError
from robot_rl.training.storage.state_tree import flatten, restore

pytestmark = pytest.mark.slow

DTYPES = (torch.float32, torch.float64, torch.uint8, torch.int64, torch.bool, torch.bfloat16)


def through_bytes(state: Any) -> Any:
    """The state after JSON and safetensors."""
    tree, tensors = flatten(state)
    return restore(json.loads(json.dumps(tree, allow_nan=False)), load(save(tensors)))


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        bits = torch.equal(a.contiguous().view(-1).view(torch.uint8), b.view(-1).view(torch.uint8))
        return a.dtype == b.dtype and a.shape == b.shape and bits
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and str(a) == str(b))  # -0.0 too
    return a == b


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    values = torch.randint(0, 2, shape, generator=generator)
    return values.to(draw(st.sampled_from(DTYPES)))


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | tensors()
states = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=30, deadline=None)
@given(states)
def test_any_state_comes_back_exactly(state):
    assert same(state, through_bytes(state))


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.sampled_from(["$tensor", "$float", "a", "a/b", ""]), scalars))
def test_keys_that_look_like_tags_or_paths_come_back(state):
    assert same(state, through_bytes(state))


def test_names_that_collide_do_not_share_a_tensor():
    values = [torch.full((2,), i) for i in range(5)]
    state = {"a": {"b": values[0]}, "a/b": values[1], "a/b#": values[2], 1: values[3],
             "1": values[4]}  # fmt: skip
    assert same(state, through_bytes(state))


def test_views_of_one_storage_are_stored_apart():
    rows = torch.arange(6.0).view(2, 3)
    state = {"whole": rows, "column": rows[:, 1], "again": rows, "first": rows[0]}
    found = through_bytes(state | {"parameter": torch.nn.Parameter(rows)})
    assert type(found.pop("parameter")) is Tensor
    assert same(state, found)
    found["whole"].zero_()
    assert found["again"].sum() == 15


def test_what_cannot_be_saved_is_named_with_its_place():
    with pytest.raises(TypeError, match=r"'/agents/1' is a builtins\.set"):
        flatten({"agents": [1, {2}]})
    with pytest.raises(CheckpointError, match="not there"):
        restore({"a": {"$tensor": "/gone"}}, {})
