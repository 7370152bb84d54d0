"""Threshold, precision, recall and calibration against numbers worked out by hand."""

import math

import numpy as np
import pytest

from robot_rl.rewards.quality import (
    calibration_bins,
    choose_threshold,
    episode_confusion,
    frame_confusion,
    precision_curve,
)

SCORE = np.array([0.9, 0.8, 0.8, 0.6, 0.55, 0.2])
LABEL = np.array([True, True, False, True, False, True])


def test_no_frame_at_all_leaves_the_lowest_threshold():
    curve = precision_curve(np.zeros(0), np.zeros(0, bool))
    assert choose_threshold(curve, 0.9) == (0.5, False)


def test_curve_counts_equal_probabilities_together():
    curve = precision_curve(SCORE, LABEL)
    assert curve.threshold.tolist() == [0.9, 0.8, 0.6, 0.55, 0.2]
    assert curve.precision.tolist() == pytest.approx([1, 2 / 3, 3 / 4, 3 / 5, 4 / 6])
    assert curve.recall.tolist() == pytest.approx([1 / 4, 2 / 4, 3 / 4, 3 / 4, 1])


def test_threshold_is_the_lowest_that_is_precise_enough():
    curve = precision_curve(SCORE, LABEL)
    assert choose_threshold(curve, 0.75) == (pytest.approx((0.6 + 0.55) / 2), True)
    assert choose_threshold(curve, 0.9) == (pytest.approx((0.9 + 0.8) / 2), True)
    assert choose_threshold(curve, 0.1) == (pytest.approx(0.5), True), "never below one half"


def test_without_a_precise_threshold_the_best_is_taken_and_this_is_said():
    label = np.array([False, True, True])
    threshold, reached = choose_threshold(precision_curve(np.array([0.9, 0.8, 0.7]), label), 0.95)
    assert not reached
    assert threshold == pytest.approx(0.5), "two of three, the highest precision there is"


def test_classifier_that_never_says_success_has_the_lowest_threshold():
    curve = precision_curve(np.array([0.1, 0.2]), np.array([True, False]))
    assert choose_threshold(curve, 0.9) == (0.5, False)


def test_calibration_error_is_the_weighted_distance_of_the_bins():
    bins = calibration_bins(np.array([0.1, 0.1, 0.9, 0.9]), np.array([0, 1, 1, 1], bool), bins=10)
    assert bins.count.tolist() == [2, 2]
    assert bins.error == pytest.approx((abs(0.1 - 0.5) + abs(0.9 - 1.0)) / 2)


def test_frames_have_wider_intervals_than_their_number_promises():
    """Fifty frames of an episode are wrong together: the interval knows it."""
    episode = np.repeat(np.arange(20), 50)
    label = np.ones(1000, bool)
    called = episode > 1  # two whole episodes are missed
    found = frame_confusion(called, label, episode)
    assert (found.true_positive, found.false_negative) == (900, 100)
    assert found.recall.value == pytest.approx(0.9)
    assert found.recall.high - found.recall.low > 0.15, "of 1,000 lone frames it would be 0.04"
    assert found.precision.value == 1.0


def test_episodes_have_the_interval_of_wilson():
    called = np.array([True] * 9 + [False])
    found = episode_confusion(called, np.ones(10, bool))
    assert found.recall.value == pytest.approx(0.9)
    assert (found.recall.low, found.recall.high) == pytest.approx((0.5958, 0.9821), abs=1e-4)


def test_nothing_to_count_is_said():
    found = episode_confusion(np.zeros(3, bool), np.zeros(3, bool))
    assert math.isnan(found.precision.value)
    assert found.precision.to_list() == [None, None, None]
    assert str(found.recall) == "none to count"
