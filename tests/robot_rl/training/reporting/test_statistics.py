"""Statistics against numbers worked out by hand or published."""

import numpy as np
import pytest

from robot_rl.training.reporting.statistics import bootstrap_interval, iqm, wilson_interval


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
    with pytest.raises(ValueError, match="11 successes in 10"):
        wilson_interval(11, 10)
    with pytest.raises(ValueError, match="impossible"):
        wilson_interval(0, 0)


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


def test_one_seed_has_no_spread():
    low, high = bootstrap_interval([[0.5, 0.7]])
    np.testing.assert_array_equal(low, [0.5, 0.7])
    np.testing.assert_array_equal(high, [0.5, 0.7])
