"""The thrust axis goes the shortest way, the heading waits, and signs mean nothing."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hardware.controllers import rotations
from hardware.controllers.body_rates import BodyRates, BodyRatesConfig
from hardware.controllers.controller import Cascade
from hardware.controllers.position_se3 import (
    PositionSe3,
    PositionSe3Config,
    QuaternionAttitude,
    QuaternionAttitudeConfig,
    attitude_of,
    heading_of,
)
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot_command import RotorCommand
from tests.hardware.controllers.flying import INERTIA, LAYOUT, MASS, Body, pose

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


def test_upside_down_it_turns_over_with_the_full_rate_and_rotors_keep_turning():
    rates = LAW.rates(UPRIGHT, (0.0, 1.0, 0.0, 0.0))
    assert math.hypot(*rates) == pytest.approx(2 * 6.5)
    assert math.hypot(*LAW.rates(UPRIGHT, (0.0, 0.6, 0.8, 0.0))) == pytest.approx(2 * 6.5)
    out = PositionSe3(CONFIG).update(pose(), Body((0.0, 1.0, 0.0, 0.0)).state, 0.002)
    assert out.thrust[0, 0] == CONFIG.min_thrust


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


def test_weights_above_one_heavy_bodies_and_controllers_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="yaw_weight must be <= 1"):
        QuaternionAttitudeConfig(yaw_weight=1.5)
    with pytest.raises(ConfigError, match=r"do not lift 1\.0 kg"):
        PositionSe3Config(mass=1.0, max_thrust=9.0)
    with pytest.raises(SpecMismatchError, match="makes 'rotors' commands"):
        Cascade(BodyRates(LAYOUT, BodyRatesConfig(inertia=INERTIA)), PositionSe3(CONFIG))


CONFIG = PositionSe3Config(
    mass=MASS, max_thrust=LAYOUT.max_thrust, position_gain=4.0, velocity_gain=3.5
)
WEIGHT = MASS * 9.81


def flyer():
    return Cascade(
        PositionSe3(PositionSe3Config(mass=MASS, max_thrust=LAYOUT.max_thrust)),
        BodyRates(LAYOUT, BodyRatesConfig(inertia=INERTIA)),
    )


def fly(body, seconds, setpoint, dt=0.002):
    law = flyer()
    law.start(body.state, None)
    lowest = 0.0
    for _ in range(round(seconds / dt)):
        command = law.update(setpoint, body.state, dt)
        assert isinstance(command, RotorCommand)
        body.step(command.speed[0], dt)
        lowest = min(lowest, body.position[2])
    return lowest


def test_at_the_target_the_thrust_is_the_weight_and_the_force_is_that_by_hand():
    out = PositionSe3(CONFIG).update(pose(), Body().state, 0.002)
    np.testing.assert_allclose(out.rates_b, 0.0, atol=1e-12)
    np.testing.assert_allclose(out.thrust, WEIGHT / LAYOUT.max_thrust)
    body = Body()
    body.position, body.velocity = np.array([0.0, 0.0, -0.1]), np.array([0.2, 0.0, 0.0])
    force = PositionSe3(CONFIG).force(pose([0.1, 0.0, 0.0]), body.state)
    np.testing.assert_allclose(force, [MASS * (0.4 - 0.7), 0.0, MASS * 0.4 + WEIGHT])


def test_the_force_stays_in_its_cone_and_height_comes_first():
    law = PositionSe3(CONFIG)
    x, y, z = law.force(pose([0.6, 0.8, 0.0]), Body().state)
    assert math.hypot(x, y) <= math.tan(CONFIG.max_lean) * z * (1 + 1e-12)
    assert y / x == pytest.approx(0.8 / 0.6)
    falling = Body()
    falling.velocity = np.array([0.0, 0.0, -50.0])
    x, y, z = law.force(pose([1.0, 0.0, 0.0]), falling.state)
    assert (x, y, z) == pytest.approx((0.0, 0.0, LAYOUT.max_thrust))
    assert law.force(pose([0.0, 0.0, -100.0]), Body().state)[2] == pytest.approx(
        0.592 * WEIGHT, rel=1e-3
    )


@pytest.mark.parametrize("heading", [0.0, 1.0, -3.0])
def test_the_attitude_of_a_force_lifts_along_it_and_looks_to_the_heading(heading):
    force = (0.3, -0.2, 1.0)
    q = attitude_of(force, heading)
    np.testing.assert_allclose(
        rotations.vertical(q), np.array(force) / math.hypot(*force), atol=1e-12
    )
    ahead = rotations.rotate(q, (1.0, 0.0, 0.0))
    # x lies in the plane of the force and the heading: it has no part along their normal.
    normal = rotations.cross(force, (math.cos(heading), math.sin(heading), 0.0))
    assert np.dot(ahead, normal) == pytest.approx(0.0, abs=1e-12)
    assert ahead[0] * math.cos(heading) + ahead[1] * math.sin(heading) > 0
    assert heading_of(attitude_of((0.0, 0.0, 1.0), heading)) == pytest.approx(heading)


@pytest.mark.slow
def test_together_they_recover_from_a_large_tilt():
    angle = math.radians(120)
    body = Body(rotations.from_rotation_vector((0.8 * angle, 0.6 * angle, 0.0)), (0.0, 2.0, -1.0))
    assert body.tilt == pytest.approx(angle)
    lowest = fly(body, 6.0, pose())
    assert lowest > -2.5
    assert body.tilt < math.radians(0.5)
    np.testing.assert_allclose(body.position, 0.0, atol=0.01)
