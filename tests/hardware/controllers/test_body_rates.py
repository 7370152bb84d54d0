"""Body rates: gains, an integrator with manners, and rotors that stay in their range."""

import math
from typing import Any

import numpy as np
import pytest

from hardware.controllers.body_rates import BodyRates, BodyRatesConfig
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot_command import BodyRateCommand
from robot_rl.core.robot_state import RobotState
from tests.hardware.controllers import joints
from tests.hardware.controllers.flying import INERTIA, LAYOUT, Body

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


def test_at_the_wanted_rates_all_rotors_are_alike_and_give_the_thrust():
    out = started().update(wish(), gyro(STILL), 0.002)
    np.testing.assert_allclose(out.speed, math.sqrt(0.45), rtol=1e-12)


def test_an_error_accelerates_by_the_gain():
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


def test_errors_of_a_flip_are_not_integrated():
    law = started()
    for _ in range(50):
        law.update(wish([8.0, 0, 0]), gyro(STILL), 0.002)
    out = law.update(wish(), gyro(STILL), 0.002)
    np.testing.assert_allclose(acceleration(out), 0.0, atol=1e-9)


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


def test_the_integrator_has_a_limit_and_forgets_at_start():
    law = started(integral_limit=[3.0, 3.0, 3.0])
    for _ in range(200):
        law.update(wish([1.0, 0, 0]), gyro(STILL), 0.002)
    out = law.update(wish(), gyro(STILL), 0.002)
    np.testing.assert_allclose(acceleration(out)[0], 3.0, rtol=1e-9)
    law.start(gyro(STILL), None)
    out = law.update(wish(), gyro(STILL), 0.002)
    np.testing.assert_allclose(acceleration(out), 0.0, atol=1e-9)


def test_whatever_is_asked_speeds_stay_in_their_range():
    rng = np.random.default_rng(0)
    law = started()
    for _ in range(200):
        setpoint = wish(20 * rng.standard_normal(3), rng.uniform(-0.5, 1.5))
        out = law.update(setpoint, gyro(20 * rng.standard_normal(3)), 0.002)
        assert out.speed.shape == (1, 4)
        assert ((out.speed >= 0) & (out.speed <= 1)).all()


def test_a_body_with_a_lopsided_load_reaches_its_rates():
    """The integrator carries a constant torque: a hundredth of what the rotors can roll."""
    body = Body()
    body.torque = np.array([1e-4, -5e-5, 0.0])
    law = BodyRates(LAYOUT, BodyRatesConfig(inertia=INERTIA, integral=[60.0, 60.0, 1.0]))
    law.start(body.state, None)
    for _ in range(1000):
        body.step(law.update(wish([0.0, 0.0, 1.0]), body.state, 0.002).speed[0], 0.002)
    np.testing.assert_allclose(body.rates[:2], [0.0, 0.0], atol=0.02)
    np.testing.assert_allclose(body.rates[2], 1.0, atol=0.1)


def test_joint_commands_are_refused():
    with pytest.raises(SpecMismatchError, match="BodyRateCommand"):
        started().update(joints.command([0.0]), gyro(STILL), 0.002)


def test_gains_for_two_axes_are_refused():
    with pytest.raises(ConfigError, match="proportional needs three numbers"):
        BodyRatesConfig(inertia=INERTIA, proportional=[1.0, 2.0])
