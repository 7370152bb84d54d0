"""Small things of the environment contract."""

from dataclasses import FrozenInstanceError

import pytest
import torch

from robot_rl.core.env import BatchEnv, EnvStep, GroupSpec
from robot_rl.core.errors import ShapeError
from tests.fakes import LinearWorld, ToyEnv


def test_an_episode_has_ended_for_either_reason():
    flags = torch.tensor([[True, False, False], [False, True, False]])
    nothing = torch.zeros(3, dtype=torch.bool)
    step = EnvStep(
        obs={}, next_obs={}, reward=torch.zeros(3), terminated=flags[0], truncated=flags[1],
        success=nothing, valid=~nothing, action=torch.zeros(3, 1), intervened=nothing,
    )  # fmt: skip
    assert step.ended.tolist() == [True, True, False]
    assert step.reward_terms is None
    assert dict(step.metrics) == {}


def test_a_group_is_a_float_vector_of_one_frame_unless_said_otherwise():
    group = GroupSpec(shape=(3,))
    assert (group.dtype, group.stack) == (torch.float32, 1)
    with pytest.raises(FrozenInstanceError):
        group.stack = 2  # type: ignore[misc]  # what is tested


@pytest.mark.parametrize(
    ("mask", "state", "told"),
    [
        (torch.ones(3, dtype=torch.bool), {}, "takes a mask or a state, got both"),
        (torch.ones(2, dtype=torch.bool), None, r"expected \(3,\) of bool, got \(2,\)"),
        (torch.ones(3), None, r"expected \(3,\) of bool, got \(3,\) of torch\.float32"),
    ],
)
def test_a_spec_says_what_does_not_fit_a_reset(mask, state, told):
    spec = ToyEnv(LinearWorld(), num_envs=3).spec
    spec.check_reset(torch.tensor([True, False, True]), None)
    spec.check_reset(None, {})
    with pytest.raises(ShapeError, match=told):
        spec.check_reset(mask, state)


def test_a_spec_says_which_actions_fit_a_step():
    spec = ToyEnv(LinearWorld(), num_envs=3).spec
    size = spec.action_size
    spec.check_action(torch.zeros(3, size))
    with pytest.raises(ShapeError, match=rf"action: expected shape \(3, {size}\), got \(2, "):
        spec.check_action(torch.zeros(2, size))


def test_an_object_without_the_methods_is_no_environment():
    assert isinstance(ToyEnv(LinearWorld()), BatchEnv)
    assert not isinstance(LinearWorld(), BatchEnv)
