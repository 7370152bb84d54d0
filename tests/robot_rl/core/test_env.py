"""Checks of the environment contract, parts of batches, and rows that a mask picks anywhere."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ShapeError
from tests.equality import assert_same
from tests.fakes import LinearWorld, ToyEnv, random_batch


@pytest.mark.parametrize(
    ("mask", "state", "told"),
    [
        (torch.ones(3, dtype=torch.bool), {}, "takes a mask or a state, got both"),
        (torch.ones(2, dtype=torch.bool), None, r"expected \(3,\) of bool, got \(2,\)"),
        (torch.ones(3), None, r"expected \(3,\) of bool, got \(3,\) of torch\.float32"),
    ],
)
def test_a_spec_says_what_does_not_fit_a_reset_or_a_step(mask, state, told):
    spec = ToyEnv(LinearWorld(), num_envs=3).spec
    spec.check_reset(torch.tensor([True, False, True]), None)
    spec.check_reset(None, {})
    with pytest.raises(ShapeError, match=told):
        spec.check_reset(mask, state)
    with pytest.raises(ShapeError, match=rf"action: expected shape \(3, {spec.action_size}\), got"):
        spec.check_action(torch.zeros(2, spec.action_size))


MASK = [True, False, True, False]


def masked_rows(kind: str) -> EnvSelection:
    """`accelerator` computes every row and keeps some, as where counting would stall it."""
    rows = EnvSelection(np.array(MASK) if kind == "numpy" else torch.tensor(MASK))
    if kind == "accelerator":
        rows._ids = None
    return rows


def values(kind: str, *shape: int) -> Any:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return array if kind == "numpy" else torch.from_numpy(array)


@pytest.mark.parametrize("kind", ["numpy", "torch", "accelerator"])
@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 2, 3)])
def test_put_of_what_was_taken_changes_the_picked_rows_only(kind, shape):
    rows, source = masked_rows(kind), values(kind, *shape)
    target = 0 * source - 1
    picked = rows.take(source)
    assert picked.shape[0] == rows.count == (4 if kind == "accelerator" else 2)
    rows.put(target, picked)
    np.testing.assert_array_equal(np.asarray(target)[[0, 2]], np.asarray(source)[[0, 2]])
    assert (np.asarray(target)[[1, 3]] == -1).all()


@pytest.mark.parametrize("kind", ["numpy", "torch", "accelerator"])
def test_put_of_a_number_fills_the_picked_rows(kind):
    target = values(kind, 4, 2)
    masked_rows(kind).put(target, 9.0)
    np.testing.assert_array_equal(np.asarray(target), [[9, 9], [2, 3], [9, 9], [6, 7]])


@pytest.mark.gpu
def test_accelerator_keeps_the_same_rows():
    rows = EnvSelection(torch.tensor(MASK, device="cuda"))
    target = torch.zeros(4, 3, device="cuda")
    source = torch.arange(12.0, device="cuda").reshape(4, 3)
    rows.put(target, rows.take(source))
    assert target.sum(1).tolist() == [3.0, 0.0, 21.0, 0.0]


def test_parts_of_a_batch_put_together_are_the_batch():
    index = torch.arange(12)
    batch = replace(random_batch(ToyEnv(LinearWorld()).spec, 12), extra={"index": index})
    parts = [batch.take(0, 5), batch.take(5, 12)]
    for name in ("action", "reward", "discount", "weight"):
        assert torch.equal(torch.cat([getattr(p, name) for p in parts]), getattr(batch, name))
    for name in ("obs", "next_obs", "extra"):
        whole = getattr(batch, name)
        assert_same({k: torch.cat([getattr(p, name)[k] for p in parts]) for k in whole}, whole)
