"""n-step sums, discounts and seams worked out by hand; gamma is one half throughout."""

import pytest
import torch

from robot_rl.core.errors import ConfigError
from tests.robot_rl.buffers.story import by_place, story

REWARDS = [[1.0], [2.0], [4.0], [8.0], [16.0], [32.0]]


def sums(found: dict, *names: str) -> dict[int, tuple[float, ...]]:
    return {step: tuple(row[name] for name in names) for (step, _), row in sorted(found.items())}


UNTIL_THE_NEWEST = {
    0: (3, 0.125, 20.5, 1),
    1: (6, 0.125, 30.5, 1),
    2: (12, 0.125, 40.5, 1),
    3: (24, 0.125, 50.5, 1),
    4: (32, 0.25, 50.5, 1),  # the newest row is a seam: two steps, and gamma squared
    5: (32, 0.5, 50.5, 1),
}
"""Reward, discount, next observation and weight of three-step returns, by step."""
ENDS = {
    "none": ({}, {}),
    "termination": (
        {"terminated": [(3, 0)]},
        {1: (6, 0.0, 30.5, 1), 2: (8, 0.0, 30.5, 1), 3: (8, 0.0, 30.5, 1)},
    ),
    "truncation": (  # bootstraps from its true successor
        {"truncated": [(3, 0)]},
        {2: (8, 0.25, 30.5, 1), 3: (8, 0.5, 30.5, 1)},
    ),
    "invalid": (  # a seam: the sum stops before it; NaN went in, zeros come out
        {"invalid": [(3, 0)]},
        {1: (4, 0.25, 20.5, 1), 2: (4, 0.5, 20.5, 1), 3: (0, 0.5, 0.0, 0)},
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_three_steps_are_summed_until_a_seam(end):
    where, changed = ENDS[end]
    told = story(REWARDS, **where)
    found = by_place(told.tell(told.replay(n_step=3)), told)
    expected = UNTIL_THE_NEWEST | changed
    assert sums(found, "reward", "discount", "next_obs", "weight") == expected


def test_every_transition_is_drawn_equally_often():
    told = story([[float(3 * t + n) for n in range(3)] for t in range(9)])
    replay = told.tell(told.replay(capacity=15))
    drawn = torch.bincount(replay.sample(30_000).extra["index"], minlength=15)
    # 2,000 expected of each of 15: chi-square with 14 degrees of freedom stays below 36.1 in 99.9 %
    assert float(((drawn - 2000) ** 2 / 2000).sum()) < 36.1


def test_what_is_stored_is_a_copy():
    told = story(REWARDS)
    replay = told.replay()
    obs, step = told.at(0)
    replay.add(obs, step)
    for value in (*obs.values(), *step.next_obs.values(), step.action, step.reward):
        value.fill_(77.0)
    batch = replay.sample(4)
    assert batch.reward.tolist() == [1.0] * 4
    assert batch.obs["actor"].tolist() == [[0.0, 0.0]] * 4


def test_steps_that_were_stored_come_back_one_by_one_or_several_at_once():
    told = story([[float(t), 50.0 + t] for t in range(7)])
    wide = told.replay().layout.width
    steps = torch.arange(7 * 2 * wide, dtype=torch.float32).view(7, 2, wide)
    one, several = told.replay(capacity=10), told.replay(capacity=10)
    one.refill(steps)
    several.refill([steps[:1], steps[1:6], steps[6]])  # five fit: the ring begins anew
    assert one.total_steps == several.total_steps == 7
    assert len(one) == 10
    for _ in range(3):
        left, right = one.sample(50), several.sample(50)
        assert torch.equal(left.action, right.action)
        assert torch.equal(left.next_obs["critic"], right.next_obs["critic"])
    assert one.sample(200).obs["actor"][:, 0].min() == steps[2, 0, 0]


@pytest.mark.parametrize(("capacity", "n_step"), [(1, 1), (5, 3), (8, 0)])
def test_a_ring_too_small_for_its_returns_is_refused(capacity, n_step):
    told = story([[1.0, 2.0]] * 4)
    with pytest.raises(ConfigError, match=f"capacity {capacity} .* n_step {n_step} "):
        told.replay(capacity=capacity, n_step=n_step)


def test_an_empty_ring_refuses_to_be_sampled():
    with pytest.raises(ConfigError, match="nothing can be sampled"):
        story(REWARDS).replay().sample(1)


def test_a_step_that_is_judged_anew_changes_every_sum_over_it():
    told = story(REWARDS)
    replay = told.tell(told.replay(n_step=3))
    judged = {
        "reward": 100.0,
        "terminated": True,
        "truncated": False,
        "valid": True,
        "success": False,
    }
    assert replay.amend(3, **judged)
    found = by_place(replay, told)
    expected = UNTIL_THE_NEWEST | {
        1: (2 + 2 + 25, 0.0, 30.5, 1), 2: (4 + 50, 0.0, 30.5, 1), 3: (100, 0.0, 30.5, 1),
    }  # fmt: skip
    assert sums(found, "reward", "discount", "next_obs", "weight") == expected
    assert replay.amend(3, reward=8.0, terminated=False, truncated=False, valid=True, success=False)
    found = by_place(replay, told)
    assert sums(found, "reward", "discount", "next_obs", "weight") == UNTIL_THE_NEWEST


def test_a_step_that_was_overwritten_is_not_judged_and_several_envs_are_refused():
    told = story(REWARDS)
    replay = told.tell(told.replay(capacity=4))
    judged = {
        "reward": 100.0,
        "terminated": True,
        "truncated": False,
        "valid": False,
        "success": False,
    }
    before = replay.ordered_rows()
    assert not replay.amend(1, **judged)
    assert not replay.amend(6, **judged)
    assert torch.equal(replay.ordered_rows(), before)
    assert replay.amend(2, **judged)
    assert replay.strided_sample(4).weight.tolist() == [0, 1, 1, 1]
    several = story([[1.0, 2.0]])
    with pytest.raises(ConfigError, match="only steps of one env"):
        several.tell(several.replay()).amend(0, **judged)
