"""Flags of what was ever not a number: by name, sticky, and early enough."""

import pytest
import torch

from robot_rl.core.transition import Batch
from robot_rl.training.trainer import FiniteWatch, not_finite
from tests.fakes import LinearWorld, ToyEnv, random_batch

BAD = [float("nan"), float("inf"), -float("inf")]


def batch() -> Batch:
    return random_batch(ToyEnv(LinearWorld()).spec, 8)


@pytest.mark.parametrize(
    ("name", "bad"),
    [("reward", BAD[0]), ("action", BAD[1]), ("obs.actor", BAD[2]), ("next_obs.critic", BAD[0])],
)
def test_one_number_in_a_batch_is_found_by_name(name, bad):
    watch, spoilt = FiniteWatch(), batch()
    field, _, group = name.partition(".")
    tensor = getattr(spoilt, field)
    (tensor[group] if group else tensor)[5] = bad
    watch.see_batch(batch())
    watch.see_metrics({"loss": torch.tensor(1e38), "entropy": torch.tensor(-1e38)})
    assert watch.found() == []
    watch.see_batch(spoilt)
    watch.see_batch(batch())  # sticky: what comes after does not excuse it
    assert watch.found() == [[f"sampled {name}"]]


def test_what_was_bad_first_is_named_first():
    watch, spoilt = FiniteWatch(), batch()
    nan, one = torch.tensor(float("nan")), torch.tensor(1.0)
    watch.see_batch(spoilt)
    watch.see_metrics({"critic_loss": one, "actor_loss": nan, "entropy": nan})
    spoilt.action[0] = float("nan")  # a broken policy acts; it was not the actions that broke it
    watch.see_batch(spoilt)
    watch.see_metrics({"critic_loss": nan, "actor_loss": nan, "entropy": nan})
    watch.see_metrics({"critic_loss": nan})
    expected = [["actor_loss", "entropy"], ["sampled action"], ["critic_loss"]]
    assert watch.found() == expected


@pytest.mark.parametrize("bad", BAD)
def test_every_tensor_of_a_state_is_looked_at_and_named_by_its_way(bad):
    spoilt = torch.tensor([0.0, bad])
    state = {"actor": {"weight": torch.ones(2)}, "moments": [torch.ones(1), {"first": spoilt}],
             "updates": 3, "rows": torch.tensor([1, 2]), "empty": torch.zeros(0)}  # fmt: skip
    assert not_finite(state, "the learner") == ["the learner.moments.1.first"]
    assert not_finite({"updates": 3}, "the learner") == []
