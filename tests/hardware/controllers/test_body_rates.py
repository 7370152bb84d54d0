"""Rotors give what is asked of them, and where they cannot, what matters most."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.controllers.body_rates import BodyRates, BodyRatesConfig, Mixer, RotorLayout
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import BodyRateCommand
from tests.hardware.controllers.flying import INERTIA, LAYOUT

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


def test_a_hover_by_hand_and_rolling_right_takes_from_the_right():
    mixed = MIXER.mix(0.25 * FULL, (0.0, 0.0, 0.0))
    np.testing.assert_allclose(mixed.speed, 0.5)  # a quarter of the thrust at half the speed
    assert mixed.thrust == pytest.approx(0.25 * FULL)
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


def test_yaw_gives_way_to_everything_else_and_too_large_a_lean_keeps_its_direction():
    wanted = (0.3 * ROLL, -0.2 * ROLL, 1.0)
    mixed = MIXER.mix(0.5 * FULL, wanted)
    assert mixed.thrust == pytest.approx(0.5 * FULL)
    np.testing.assert_allclose(mixed.torque[:2], wanted[:2])
    assert 0 < mixed.torque[2] < 1.0
    mixed = MIXER.mix(0.5 * FULL, (30 * ROLL, -10 * ROLL, 0.0))
    assert mixed.torque[0] == pytest.approx(-3 * mixed.torque[1])
    assert mixed.torque[0] > 0.7 * ROLL


def test_thrust_moves_where_roll_and_pitch_need_room():
    for lift in (0.02, 1.0):
        mixed = MIXER.mix(lift * FULL, (0.5 * ROLL, 0.0, 0.0))
        assert mixed.torque[0] == pytest.approx(0.5 * ROLL)
        assert mixed.torque[1] == pytest.approx(0.0, abs=1e-12)
    assert MIXER.mix(0.02 * FULL, (0.5 * ROLL, 0.0, 0.0)).thrust == pytest.approx(0.25 * FULL)


def test_without_thrust_all_rotors_stand_still():
    assert MIXER.mix(0.0, (ROLL, ROLL, 1.0)).speed == [0, 0, 0, 0]


@pytest.mark.parametrize("curve", [[0.0, 0.0, 0.15], [0.1, 1.0, 4.0], [0.0, 2.0, 0.0]])
def test_speeds_and_thrusts_are_inverse_of_each_other(curve):
    layout = replace(LAYOUT, thrust_curve=curve)
    for speed in (0.0, 0.01, 0.5, 1.0):
        assert layout.speed(layout.thrust(speed)) == pytest.approx(speed, abs=1e-12)


def test_rotors_that_all_turn_one_way_and_gains_for_two_axes_are_refused():
    with pytest.raises(ConfigError, match="about every axis"):
        replace(LAYOUT, rotor_yaw_sign=[1.0] * 4)
    with pytest.raises(ConfigError, match="proportional needs three numbers"):
        BodyRatesConfig(inertia=INERTIA, proportional=[1.0, 2.0])


STILL = [0.0, 0.0, 0.0]
GAINS: dict[str, Any] = {
    "proportional": [20.0, 20.0, 10.0],
    "integral": [40.0, 40.0, 4.0],
    "derivative": [0.5, 0.5, 0.0],
    "derivative_time": 0.005,
}


def gyro(rates):
    return RobotState({"angular_velocity_b": np.array([rates], dtype=np.float64)})


def wish(rates=STILL, thrust=0.45):
    return BodyRateCommand(rates_b=np.array([rates]), thrust=np.array([[thrust]]))


def started(rates=STILL, **changes: Any):
    law = BodyRates(LAYOUT, BodyRatesConfig(inertia=INERTIA, **GAINS | changes))
    law.start(gyro(rates), None)
    return law


def acceleration(command):
    """Angular acceleration that rotor speeds give a body that does not turn, (3,), [rad/s^2]."""
    thrusts = [LAYOUT.thrust(speed) for speed in command.speed[0]]
    return (LAYOUT.matrix() @ thrusts)[1:] / INERTIA


def test_at_the_wanted_rates_rotors_are_alike_and_an_error_accelerates_by_the_gain():
    out = started().update(wish(), gyro(STILL), 0.002)
    np.testing.assert_allclose(out.speed, math.sqrt(0.45), rtol=1e-12)
    out = started().update(wish([1.0, -0.5, 0.2]), gyro(STILL), 0.002)
    np.testing.assert_allclose(acceleration(out), [20.0, -10.0, 2.0], rtol=1e-9)


def test_a_turning_body_gets_its_gyroscopic_torque():
    """Turning at the wanted rates, it goes on turning: torque is rates x J rates."""
    rates = np.array([3.0, -2.0, 4.0])
    out = started(rates).update(wish(rates), gyro(rates), 0.002)
    torque = acceleration(out) * INERTIA
    np.testing.assert_allclose(torque, np.cross(rates, INERTIA * rates), atol=1e-12)


def test_the_derivative_is_of_the_measured_rates_only():
    law = started(derivative_time=0.0, integral=STILL)
    jump = law.update(wish([1.0, 0, 0]), gyro(STILL), 0.002)
    np.testing.assert_allclose(acceleration(jump), [20.0, 0, 0], atol=1e-9)
    law.update(wish(), gyro(STILL), 0.002)
    speeding = law.update(wish([0.02, 0, 0]), gyro([0.02, 0, 0]), 0.002)  # 10 rad/s^2
    np.testing.assert_allclose(acceleration(speeding), [-5.0, 0, 0], atol=1e-9)


@pytest.mark.parametrize("dt", [0.0005, 0.002, 0.01])
def test_integrator_and_derivative_do_not_know_the_rate_of_ticks(dt):
    """Half a second of a constant error, then a steady angular acceleration."""
    law = started(integral=[4.0, 4.0, 4.0])
    for _ in range(round(0.5 / dt)):
        law.update(wish([0.5, 0, 0]), gyro(STILL), dt)
    out = law.update(wish(), gyro(STILL), dt)
    heard = 1 - (0.5 / math.radians(400)) ** 2
    np.testing.assert_allclose(acceleration(out)[0], 4.0 * 0.5 * 0.5 * heard, rtol=1e-6)

    law = started(integral=STILL)
    for tick in range(1, round(0.2 / dt) + 1):
        rate = 2.0 * tick * dt  # 2 rad/s^2, long after the low-pass has settled
        out = law.update(wish([rate, 0, 0]), gyro([rate, 0, 0]), dt)
    np.testing.assert_allclose(acceleration(out)[0], -0.5 * 2.0, rtol=1e-6)


def test_full_rotors_stop_the_integrator_in_their_direction_only():
    """At full thrust no yaw is left: an error of yaw must not wind up, its opposite may unwind."""
    law = started(integral=[40.0, 40.0, 4.0])
    for _ in range(500):
        law.update(wish([0, 0, 2.0], thrust=1.0), gyro(STILL), 0.002)
    out = law.update(wish(), gyro(STILL), 0.002)
    np.testing.assert_allclose(acceleration(out)[2], 0.0, atol=1e-9)
    free = started(integral=[40.0, 40.0, 4.0])
    for _ in range(500):
        free.update(wish([0, 0, 2.0], thrust=0.5), gyro(STILL), 0.002)
    assert acceleration(free.update(wish(), gyro(STILL), 0.002))[2] > 1.0


def test_the_integrator_has_a_limit():
    law = started(integral_limit=[3.0, 3.0, 3.0])
    for _ in range(200):
        law.update(wish([1.0, 0, 0]), gyro(STILL), 0.002)
    out = law.update(wish(), gyro(STILL), 0.002)
    np.testing.assert_allclose(acceleration(out)[0], 3.0, rtol=1e-9)
