"""Rotors give what is asked of them, and where they cannot, what matters most."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.controllers.body_rates import Mixer, RotorLayout
from robot_rl.core.errors import ConfigError
from tests.hardware.controllers.flying import LAYOUT

MIXER = Mixer(LAYOUT)
FULL = LAYOUT.max_thrust
ROLL = 2 * 0.028 * sum(LAYOUT.thrust_curve)
"""Largest torque about body x [N m]: two rotors full, two still."""

HEXAROTOR = RotorLayout(
    rotor_position=[
        [0.2 * math.cos(a), 0.2 * math.sin(a)] for a in np.arange(6) * math.pi / 3 + 0.5
    ],
    rotor_yaw_sign=[1.0, -1.0] * 3,
    thrust_curve=[0.1, 1.0, 4.0],
    torque_per_thrust=0.02,
)


def test_a_hover_by_hand():
    mixed = MIXER.mix(0.25 * FULL, (0.0, 0.0, 0.0))
    np.testing.assert_allclose(mixed.speed, 0.5)  # a quarter of the thrust at half the speed
    assert mixed.thrust == pytest.approx(0.25 * FULL)


def test_rolling_right_takes_from_the_right():
    """Positive about body x lifts the left side, y > 0: rotors 3 and 4."""
    mixed = MIXER.mix(0.5 * FULL, (0.1 * ROLL, 0.0, 0.0))
    right_front, right_back, left_back, left_front = mixed.speed
    assert (right_front, left_front) == pytest.approx((right_back, left_back))
    assert right_front < left_front


@pytest.mark.parametrize("layout", [LAYOUT, HEXAROTOR])
@given(st.floats(0.3, 0.7), *(st.floats(-0.02, 0.02) for _ in range(3)))
def test_what_fits_is_given_exactly(layout, lift, x, y, z):
    full = layout.max_thrust
    torque = (x * full * 0.02, y * full * 0.02, z * full * layout.torque_per_thrust)
    mixed = Mixer(layout).mix(lift * full, torque)
    assert mixed.thrust == pytest.approx(lift * full)
    np.testing.assert_allclose(mixed.torque, torque, atol=1e-12 * full)


@pytest.mark.parametrize("layout", [LAYOUT, HEXAROTOR])
@given(st.floats(-0.5, 2.0), *(st.floats(-2, 2) for _ in range(3)))
def test_speeds_stay_in_their_range_and_tell_what_they_give(layout, lift, x, y, z):
    full = layout.max_thrust
    mixed = Mixer(layout).mix(lift * full, (x * full, y * full, z * full))
    assert all(0.0 <= speed <= 1.0 for speed in mixed.speed)
    thrusts = [layout.thrust(speed) for speed in mixed.speed]
    given_by = layout.matrix() @ thrusts
    np.testing.assert_allclose([mixed.thrust, *mixed.torque], given_by, atol=1e-9 * full)


def test_yaw_gives_way_to_everything_else():
    wanted = (0.3 * ROLL, -0.2 * ROLL, 1.0)
    mixed = MIXER.mix(0.5 * FULL, wanted)
    assert mixed.thrust == pytest.approx(0.5 * FULL)
    np.testing.assert_allclose(mixed.torque[:2], wanted[:2])
    assert 0 < mixed.torque[2] < 1.0


def test_thrust_moves_where_roll_and_pitch_need_room():
    for lift in (0.02, 1.0):
        mixed = MIXER.mix(lift * FULL, (0.5 * ROLL, 0.0, 0.0))
        assert mixed.torque[0] == pytest.approx(0.5 * ROLL)
        assert mixed.torque[1] == pytest.approx(0.0, abs=1e-12)
    assert MIXER.mix(0.02 * FULL, (0.5 * ROLL, 0.0, 0.0)).thrust == pytest.approx(0.25 * FULL)


def test_too_large_a_lean_keeps_its_direction():
    mixed = MIXER.mix(0.5 * FULL, (30 * ROLL, -10 * ROLL, 0.0))
    assert mixed.torque[0] == pytest.approx(-3 * mixed.torque[1])
    assert mixed.torque[0] > 0.7 * ROLL


def test_without_thrust_all_rotors_stand_still():
    assert MIXER.mix(0.0, (ROLL, ROLL, 1.0)).speed == [0, 0, 0, 0]


@pytest.mark.parametrize("curve", [[0.0, 0.0, 0.15], [0.1, 1.0, 4.0], [0.0, 2.0, 0.0]])
def test_speeds_and_thrusts_are_inverse_of_each_other(curve):
    layout = replace(LAYOUT, thrust_curve=curve)
    for speed in (0.0, 0.01, 0.5, 1.0):
        assert layout.speed(layout.thrust(speed)) == pytest.approx(speed, abs=1e-12)


def test_rotors_that_all_turn_one_way_are_refused():
    with pytest.raises(ConfigError, match="about every axis"):
        replace(LAYOUT, rotor_yaw_sign=[1.0] * 4)
