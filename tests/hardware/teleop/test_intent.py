"""From the state of a device to shares of the largest speed."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.teleop.intent import AXES, Intent, StickConfig, shaped
from robot_rl.core.errors import ConfigError

LINEAR = StickConfig(deadband=[0.1] * 6, exponent=1.0)


def moved(axes, config=LINEAR, **entries):
    return shaped(Intent.from_dict({"axes": axes, "clutch": True, **entries}), config)


def test_a_deflection_counts_from_the_edge_of_the_deadband_on():
    # (0.55 - 0.1) / 0.9 = 0.5
    np.testing.assert_allclose(moved([0.55, -0.55, 0.1, 0.05, 1, -1]), [0.5, -0.5, 0, 0, 1, -1])
    curved = moved([0.55, -0.55, 0, 0, 0, 0], StickConfig(deadband=[0.1] * 6, exponent=2.0))
    np.testing.assert_allclose(curved[:2], [0.25, -0.25])


def test_every_axis_has_a_deadband_of_its_own():
    config = StickConfig(deadband=[0.5, 0, 0, 0, 0, 0.9], exponent=1.0)
    np.testing.assert_allclose(moved([0.4, 0.4, 0, 0, 0, 0.95], config), [0, 0.4, 0, 0, 0, 0.5])


def test_without_the_clutch_nothing_moves_whatever_the_stick_says():
    np.testing.assert_array_equal(shaped(Intent.from_dict({"axes": [1] * 6}), LINEAR), np.zeros(6))


def test_locked_axes_stand_and_the_scale_holds_for_the_others():
    found = moved([1] * 6, lock=["x", "yaw"], speed=0.25)
    np.testing.assert_allclose(found, [0, 0.25, 0.25, 0.25, 0.25, 0])


def test_axes_that_actions_do_not_move_are_locked_for_people_too():
    config = StickConfig(deadband=[0.0] * 6, exponent=1.0, lock=["roll", "pitch"])
    np.testing.assert_allclose(moved([1] * 6, config), [1, 1, 1, 0, 0, 1])


@given(st.lists(st.floats(-1, 1), min_size=6, max_size=6), st.floats(0, 1), st.sets(
    st.sampled_from(AXES)))  # fmt: skip
def test_shares_keep_their_sign_and_never_exceed_the_speed_scale(axes, speed, lock):
    found = moved(axes, StickConfig(), speed=speed, lock=list(lock))
    assert np.all(np.abs(found) <= speed + 1e-12)
    assert np.all(found * np.array(axes) >= 0)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"axes": [0] * 5}, "axes must be 6"),
        ({"axes": [math.nan] + [0] * 5}, "axes must be 6"),
        ({"axes": "123456"}, "axes must be 6"),
        ({"axes": [True] * 6}, "axes must be 6"),
        ({"clutch": 1}, "clutch must be true or false"),
        ({"speed": math.inf}, "speed must be 1"),
        ({"frame": "world"}, "frame 'world' is unknown; known: base, tool"),
        ({"lock": ["w"]}, "axis 'w' is unknown"),
        ({"lock": "xyz"}, "lock must be a list"),
        ({"stick": [0] * 6}, "'stick' is unknown; known: axes"),
    ],
)
def test_what_is_no_intent_is_refused_by_name(values, said):
    with pytest.raises(ConfigError, match=said):
        Intent.from_dict(values)


@pytest.mark.parametrize("config", [{"deadband": [0.1] * 5}, {"deadband": [1.0] * 6},
                                    {"exponent": 0.0}, {"lock": ["w"]}])  # fmt: skip
def test_a_stick_needs_a_deadband_per_axis_and_a_curve(config):
    with pytest.raises(ConfigError):
        StickConfig(**config)
