"""Small things of the environment contract."""

from dataclasses import FrozenInstanceError

import pytest
import torch

from robot_rl.core.env import BatchEnv, EnvStep, GroupSpec
from tests.fakes import LinearWorld, ToyEnv


def test_an_episode_has_ended_for_either_reason() -> None:
    flags = torch.tensor([[True, False, False], [False, True, False]])
    nothing = torch.zeros(3, dtype=torch.bool)
    step = EnvStep(
        obs={}, next_obs={}, reward=torch.zeros(3), terminated=flags[0], truncated=flags[1],
        success=nothing, valid=~nothing, action=torch.zeros(3, 1), intervened=nothing,
    )  # fmt: skip
    assert step.ended.tolist() == [True, True, False]
    assert step.reward_terms is None
    assert dict(step.metrics) == {}


def test_a_group_is_a_float_vector_of_one_frame_unless_said_otherwise() -> None:
    group = GroupSpec(shape=(3,))
    assert (group.dtype, group.stack) == (torch.float32, 1)
    with pytest.raises(FrozenInstanceError):
        group.stack = 2  # type: ignore[misc]  # what is tested


def test_an_object_without_the_methods_is_no_environment() -> None:
    assert isinstance(ToyEnv(LinearWorld()), BatchEnv)
    assert not isinstance(LinearWorld(), BatchEnv)
