"""The thrust axis goes the shortest way, the heading waits, and signs mean nothing."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hardware.controllers import rotations
from hardware.controllers.position_se3 import QuaternionAttitude, QuaternionAttitudeConfig
from robot_rl.core.errors import ConfigError

UPRIGHT = (1.0, 0.0, 0.0, 0.0)
FREE = QuaternionAttitudeConfig(
    lean_gain=6.5, yaw_gain=2.8, lean_rate_limit=1e6, yaw_rate_limit=1e6
)
LAW = QuaternionAttitude(FREE)


def entries():
    return st.tuples(*(st.floats(-1, 1) for _ in range(4)))


@st.composite
def attitudes(draw):
    q = draw(entries())
    assume(math.hypot(*q) > 0.1)
    return rotations.unit(q)


def negative(q):
    w, x, y, z = q
    return -w, -x, -y, -z


@settings(max_examples=40)
@given(attitudes())
def test_at_the_wanted_attitude_nothing_turns(q):
    np.testing.assert_allclose(LAW.rates(q, q), 0.0, atol=1e-9)
    np.testing.assert_allclose(LAW.rates(negative(q), q), 0.0, atol=1e-9)


@pytest.mark.parametrize("axis", range(3))
def test_small_errors_turn_with_the_gain(axis):
    angle = 1e-3
    error = [0.0, 0.0, 0.0]
    error[axis] = angle
    rates = LAW.rates(rotations.from_rotation_vector((error[0], error[1], error[2])), UPRIGHT)
    gain = (6.5, 6.5, 2.8)[axis]
    np.testing.assert_allclose(rates[axis], gain * angle, rtol=1e-6)
    np.testing.assert_allclose(np.delete(rates, axis), 0.0, atol=1e-9)


@settings(max_examples=40)
@given(attitudes(), attitudes())
def test_both_quaternions_of_an_attitude_give_the_same_rates(wanted, measured):
    error = rotations.multiply(rotations.conjugate(measured), wanted)
    assume(1 + rotations.vertical(error)[2] > 1e-6)  # upside down, both ways are as long
    twist = rotations.multiply(rotations.conjugate(_lean(error)), error)
    assume(abs(twist[0]) > 1e-6)  # half a turn of heading: likewise
    rates = LAW.rates(wanted, measured)
    for signs in ((negative(wanted), measured), (wanted, negative(measured))):
        np.testing.assert_allclose(LAW.rates(*signs), rates, atol=1e-6)


def _lean(error):
    x, y, z = rotations.vertical(error)
    return rotations.unit((1 + z, -y, x, 0.0))


@settings(max_examples=40)
@given(attitudes(), attitudes(), attitudes())
def test_a_turned_world_gives_the_same_rates(wanted, measured, turn):
    error = rotations.multiply(rotations.conjugate(measured), wanted)
    assume(1 + rotations.vertical(error)[2] > 1e-3)
    assume(abs(rotations.multiply(rotations.conjugate(_lean(error)), error)[0]) > 1e-3)
    rates = LAW.rates(wanted, measured)
    turned = LAW.rates(rotations.multiply(turn, wanted), rotations.multiply(turn, measured))
    np.testing.assert_allclose(turned, rates, atol=1e-8)


@given(attitudes(), st.floats(-3.0, 3.0))
def test_the_heading_does_not_bend_the_way_of_the_thrust_axis(measured, heading):
    """Roll and pitch rates point along the reduced attitude's axis, whatever the heading asks."""
    lean = rotations.from_rotation_vector((0.7, -0.4, 0.0))
    wanted = rotations.multiply(lean, rotations.from_rotation_vector((0.0, 0.0, heading)))
    x, y, z = LAW.rates(rotations.multiply(measured, lean), measured)
    assert z == pytest.approx(0.0, abs=1e-9)
    assert math.atan2(y, x) == pytest.approx(math.atan2(-0.4, 0.7))
    x, y, _ = LAW.rates(rotations.multiply(measured, wanted), measured)
    bent = math.remainder(math.atan2(y, x) - math.atan2(-0.4, 0.7), 2 * math.pi)
    # Half of the weighted heading is all that may show; the full one would show half of itself.
    assert abs(bent) <= 0.5 * 0.4 * abs(heading) + 1e-9


def test_upside_down_it_turns_over_with_the_full_rate():
    rates = LAW.rates(UPRIGHT, (0.0, 1.0, 0.0, 0.0))
    assert math.hypot(*rates) == pytest.approx(2 * 6.5)
    assert math.hypot(*LAW.rates(UPRIGHT, (0.0, 0.6, 0.8, 0.0))) == pytest.approx(2 * 6.5)


@settings(max_examples=40)
@given(attitudes(), attitudes())
def test_rates_stay_within_their_limits(wanted, measured):
    x, y, z = QuaternionAttitude().rates(wanted, measured, yaw_rate=10.0)
    assert math.hypot(x, y) <= math.radians(220) + 1e-9
    assert abs(z) <= math.radians(200) + 1e-9


def test_yaw_rates_are_about_the_worlds_vertical():
    on_its_side = rotations.from_rotation_vector((math.pi / 2, 0.0, 0.0))
    rates = LAW.rates(on_its_side, on_its_side, yaw_rate=1.0)
    np.testing.assert_allclose(rates, [0.0, 1.0, 0.0], atol=1e-12)


def test_attitudes_converge_from_anywhere():
    """The kinematics alone: a body that has the rates at once ends at the wanted attitude."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        wanted, now = (rotations.quaternion(rng.standard_normal(4)) for _ in range(2))
        for _ in range(500):
            x, y, z = LAW.rates(wanted, now)
            step = rotations.from_rotation_vector((0.01 * x, 0.01 * y, 0.01 * z))
            now = rotations.unit(rotations.multiply(now, step))
        left = rotations.rotation_vector(rotations.multiply(rotations.conjugate(now), wanted))
        assert math.hypot(*left) < 1e-3


def test_a_weight_above_one_is_refused():
    with pytest.raises(ConfigError, match="yaw_weight must be <= 1"):
        QuaternionAttitudeConfig(yaw_weight=1.5)
