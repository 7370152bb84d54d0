"""Checks of the environment contract."""

import pytest
import torch

from robot_rl.core.errors import ShapeError
from tests.fakes import LinearWorld, ToyEnv


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
