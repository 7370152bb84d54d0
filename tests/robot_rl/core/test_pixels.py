"""Pixels by numbers worked out by hand."""

import numpy as np
import pytest

from robot_rl.core.pixels import area_means, brightness, depth_bytes, middles


def test_brightness_weighs_red_green_and_blue():
    pure = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]], np.uint8)
    assert brightness(pure)[0, :, 0].tolist() == [76, 150, 29, 255]


def test_depth_runs_from_near_to_far_and_what_was_not_measured_is_far():
    metres = np.array([0.5, 1.5, 2.5, 9.0, np.nan, 0.0, np.inf, -1.0, 0.1], np.float32)
    expected = [0, 128, 255, 255, 255, 255, 255, 255, 0]
    assert depth_bytes(metres, 0.5, 2.5).tolist() == expected


@pytest.mark.parametrize(("near", "far"), [(0.0, 2.0), (0.1, 0.5), (0.3, 10.0)])
def test_every_depth_comes_back_from_metres(near, far):
    every = np.arange(256, dtype=np.float32)
    sent = np.maximum(np.float32(near) + every / 255 * np.float32(far - near), np.float32(1e-6))
    assert depth_bytes(sent, near, far).tolist() == list(range(256))


def test_an_area_has_the_mean_of_its_pixels_also_where_edges_cut_them():
    whole = np.arange(24, dtype=np.uint8).reshape(4, 6, 1)
    halved = area_means(whole, 2, 3)
    assert halved[..., 0].tolist() == [[4, 6, 8], [16, 18, 20]]  # 3.5, 5.5, ...: to even
    row = np.array([[[30], [60], [90]]], np.uint8)
    assert area_means(row, 1, 2)[0, :, 0].tolist() == [40, 80]
    assert np.array_equal(area_means(whole, 4, 6), whole)


def test_middles_are_pixels_that_were_there():
    whole = np.arange(36, dtype=np.uint8).reshape(6, 6, 1)
    assert middles(whole, 2, 2)[..., 0].tolist() == [[7, 10], [25, 28]]
