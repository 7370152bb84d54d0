"""Statistics against numbers worked out by hand or published."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.env import EnvSpec, EnvStep, GroupSpec
from robot_rl.core.transition import Batch
from robot_rl.training.reporting.statistics import (
    bootstrap_interval,
    calibrate,
    detectable_difference,
    iqm,
    mean_interval,
    permutation_test,
    wilson_interval,
)


def test_iqm_is_the_mean_of_the_middle_half():
    assert iqm([8.0, 1, 2, 3, 4, 100, 6, -50]) == pytest.approx((2 + 3 + 4 + 6) / 4)
    assert iqm([1.0, 2, 6]) == pytest.approx(3)  # too few to trim
    np.testing.assert_allclose(iqm([[0.0, 1], [2, 3], [4, 5], [60, 70]]), [3, 4])


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_agrees_with_the_literature(successes, trials, low, high):
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=5e-5)


def test_wilson_is_symmetric_and_stays_inside():
    low, high = wilson_interval(3, 10)
    assert wilson_interval(7, 10) == pytest.approx((1 - high, 1 - low))
    assert wilson_interval(10, 10)[1] == 1.0
    assert wilson_interval(10, 10, deviations=1.0)[0] == pytest.approx(10 / 11)
    with pytest.raises(ValueError, match="11 successes in 10"):
        wilson_interval(11, 10)


def test_bootstrap_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(100):
        low, high = bootstrap_interval(rng.normal(size=20), resamples=200)
        hits += bool(low <= 0 <= high)
    assert 85 <= hits <= 100  # 95 % nominal; the percentile bootstrap is a little short


def test_bootstrap_draws_whole_rows_and_repeats_itself():
    rows = np.array([[0.0, 10], [1, 11], [2, 12], [3, 13], [4, 14]])
    low, high = bootstrap_interval(rows)
    np.testing.assert_allclose(low + 10, [low[1], low[1] + 10])
    assert low[0] < 2
    assert high[0] > 2
    np.testing.assert_array_equal(bootstrap_interval(rows)[0], low)
    np.testing.assert_array_equal(bootstrap_interval([[0.5, 0.7]]), [[0.5, 0.7]] * 2)  # one seed


@pytest.mark.parametrize(
    ("first", "second", "p_value"),
    [
        ([5.0, 6, 7, 8, 9], [0.0, 1, 2, 3, 4], 2 / 252),  # only the same split, either way round
        ([4.0, 6, 7, 8, 9], [0.0, 1, 2, 3, 5], 4 / 252),
        ([1.0, 1, 1], [1.0, 1, 1], 1.0),
        ([0.1, 0.2, 0.3], [0.3, 0.2, 0.1], 1.0),
        ([3.0], [1.0, 2.0], 2 / 3),  # means 1.5, 0 and 1.5 apart
        ([math.nan, 1.0], [1.0, 2.0], 0.0),
    ],
)
def test_permutation_test_counts_the_splits_that_lie_as_far_apart(first, second, p_value):
    assert permutation_test(first, second) == pytest.approx(p_value)
    assert permutation_test(second, first) == pytest.approx(p_value)


def test_permutation_test_agrees_with_scipy():
    first, second = np.random.default_rng(0).normal([[0.0], [0.8]], size=(2, 5))
    reference = scipy.stats.permutation_test(
        (first, second), lambda a, b: abs(np.mean(a) - np.mean(b)), alternative="greater"
    )
    assert len(reference.null_distribution) == 252
    assert permutation_test(first, second) == pytest.approx(reference.pvalue)


def test_detectable_difference_is_the_smallest_that_would_be_found():
    # Of 70 splits only one and its mirror may be as far apart: the two groups may not overlap.
    size, least = detectable_difference([-1.0, 0, 0, 1], [4.0, 5, 5, 6])
    assert size == pytest.approx(2 / math.sqrt(2 / 3), abs=0.01)
    assert least == pytest.approx(2.0, abs=0.01)
    assert np.isnan(detectable_difference([0.0, 1, 2], [0.0, 1, 2])).all()  # 2 of 20 splits: 0.1


GAMMA = 0.5


def stored(rewards: list[float], ends: list[int], gamma: float = GAMMA) -> ReplayBuffer:
    """One world whose observation is its step's number; the episodes end by time."""
    spec = EnvSpec(
        num_envs=1, device=torch.device("cpu"), action_size=1, control_dt=0.1,
        groups={"actor": GroupSpec(shape=(1,))},
    )  # fmt: skip
    replay = ReplayBuffer(spec, ("actor",), capacity=len(rewards), gamma=gamma)
    off = torch.zeros(1, dtype=torch.bool)
    for number, reward in enumerate(rewards):
        obs = {"actor": torch.full((1, 1), float(number))}
        replay.add(obs, EnvStep(
            obs=obs, next_obs=obs, reward=torch.tensor([reward]), terminated=off,
            truncated=off | (number in ends), success=off, valid=~off, intervened=off,
            action=torch.zeros(1, 1), metrics={},
        ))  # fmt: skip
    return replay


def test_values_stand_beside_the_returns_of_the_same_part_of_every_episode():
    # Returns: 1 + 0.5 * 2 = 2 and 2; of the second episode 0.5 * 4 + 0 = 2 and 4.
    replay = stored([1.0, 2.0, 0.0, 4.0], ends=[1, 3])

    def value(batch: Batch) -> tuple[Tensor, Tensor]:
        number = batch.obs["actor"][:, 0]
        return torch.stack([number, number + 2]), -number

    early, late = calibrate(replay, value, parts=2)
    assert (early.rows, late.rows) == (2, 2)
    assert (early.begin, early.end, late.begin, late.end) == (0.0, 0.5, 0.5, 1.0)
    assert (early.returned, late.returned) == (2.0, 3.0)  # 2 and 2; 2 and 4
    assert (early.stored, late.stored) == (2.0, 3.0)  # steps 0 and 2, 1 and 3; 1 more on average
    assert (early.policy, late.policy) == (-1.0, -2.0)
    assert early.disagreement == late.disagreement == pytest.approx(1.0)
    assert math.isnan(early.correlation)  # its returns are all 2
    assert late.correlation == pytest.approx(1.0)


def test_steps_whose_return_is_not_known_are_left_out():
    replay = stored([1.0, 2.0, 5.0], ends=[1])  # the last one's episode goes on

    def value(batch: Batch) -> tuple[Tensor, Tensor]:
        return batch.obs["actor"].T, batch.obs["actor"][:, 0]

    (one,) = calibrate(replay, value, parts=1)
    assert one.rows == 2
    assert one.disagreement == 0.0


@pytest.mark.parametrize(
    ("count", "quantile"), [(2, 12.706), (6, 2.571), (20, 2.093), (400, 1.966)]
)
def test_the_interval_of_a_mean_is_students(count, quantile):
    values = np.random.default_rng(count).normal(3.0, 2.0, count)
    low, high = mean_interval(values)
    half = quantile * values.std(ddof=1) / np.sqrt(count)
    assert (high - low) / 2 == pytest.approx(half, rel=2e-3)
    assert (low + high) / 2 == pytest.approx(values.mean())
    assert mean_interval([5.0]) == (-np.inf, np.inf)
