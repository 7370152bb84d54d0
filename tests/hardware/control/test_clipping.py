"""Commands that are not for joints: rotors, body rates, poses."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.control.limits import (
    BodyRateLimiter,
    BodyRateLimits,
    JointLimiter,
    PoseLimiter,
    PoseLimits,
    RotorLimiter,
    make_limiter,
)
from robot_rl.core.errors import ConfigError, ShapeError
from robot_rl.core.robot_command import BodyRateCommand, CommandKind, PoseCommand, RotorCommand
from robot_rl.core.robot_state import RobotState
from tests.hardware.control.robots import multirotor, two_joints

NOTHING = RobotState({})
anything = st.floats(allow_nan=True, allow_infinity=True)


def limited(limiter, command, dt=0.01) -> tuple[Any, bool, bool]:
    """Command (of whatever kind), clamped, replaced."""
    return limiter.limit(command, NOTHING, dt)


def rotors(*speed):
    return RotorCommand(speed=np.array([speed], float))


def rates(x, y, z, thrust):
    return BodyRateCommand(rates_b=np.array([[x, y, z]], float), thrust=np.array([[thrust]], float))


def pose(*position, turn=(1, 0, 0, 0)):
    return PoseCommand(
        position_w=np.array([position], float), orientation_w=np.array([turn], float)
    )


def test_rotors_are_clipped_and_no_number_keeps_the_previous():
    limiter = RotorLimiter(4)
    assert limited(limiter, rotors(0.1, 0.2, 0.3, 0.4))[1:] == (False, False)
    sent, *told = limited(limiter, rotors(np.nan, 1.5, -1, 0.5))
    np.testing.assert_array_equal(sent.speed, [[0.1, 1.0, 0.0, 0.5]])
    assert told == [True, True]


def test_body_rates_and_thrust_are_clipped_each_by_its_own_limit():
    limiter = BodyRateLimiter(BodyRateLimits(rates=(1, 2, 3), thrust=0.8))
    sent, *told = limited(limiter, rates(-5, 5, np.nan, 0.9))
    np.testing.assert_array_equal(sent.rates_b, [[-1, 2, 0]])
    np.testing.assert_array_equal(sent.thrust, [[0.8]])
    assert told == [True, True]


@given(st.lists(st.tuples(anything, anything, anything, anything), min_size=1, max_size=10))
def test_no_flight_command_outside_limits_ever_leaves(stream):
    speed, inner = RotorLimiter(4), BodyRateLimiter()
    for values in stream:
        sent = limited(speed, rotors(*values))[0].speed
        assert np.all((sent >= 0) & (sent <= 1))
        command = limited(inner, rates(*values))[0]
        assert np.all(np.abs(command.rates_b) <= [10, 10, 6])
        assert np.all((command.thrust >= 0) & (command.thrust <= 1))


def test_a_pose_target_moves_no_faster_than_allowed_and_stays_in_its_box():
    limiter = PoseLimiter(PoseLimits(lower=(0, -1, 0), upper=(1, 1, 1), speed=0.25))
    limited(limiter, pose(0.9, 0, 0.5))
    sent, clamped, _ = limited(limiter, pose(0.9, 3.0, 0.5, turn=(2, 0, 0, 0)))
    np.testing.assert_allclose(sent.position_w, [[0.9, 0.0025, 0.5]])
    np.testing.assert_allclose(sent.orientation_w, [[1, 0, 0, 0]])
    assert clamped
    for _ in range(1000):
        sent = limited(limiter, pose(9, 9, 9))[0]
    np.testing.assert_allclose(sent.position_w, [[1, 1, 1]])


def test_a_pose_that_is_no_number_keeps_the_previous_or_is_refused_as_the_first():
    limiter = PoseLimiter(PoseLimits())
    with pytest.raises(ShapeError, match="first"):
        limited(limiter, pose(np.nan, 0, 0))
    limited(limiter, pose(1, 2, 3))
    sent, _, replaced = limited(limiter, pose(1, np.nan, 3))
    np.testing.assert_array_equal(sent.position_w, [[1, 2, 3]])
    assert replaced


def test_another_kind_or_shape_is_refused():
    for limiter, bad in [(RotorLimiter(4), rates(0, 0, 0, 0)), (RotorLimiter(4), rotors(0, 0)),
                         (BodyRateLimiter(), rotors(0, 0, 0, 0)),
                         (PoseLimiter(PoseLimits()), rotors(0))]:  # fmt: skip
        with pytest.raises(ShapeError):
            limiter.limit(bad, NOTHING, 0.01)


def test_a_robot_gets_the_limiter_of_its_command():
    assert isinstance(make_limiter(two_joints()), JointLimiter)
    assert isinstance(make_limiter(multirotor(CommandKind.rotors)), RotorLimiter)
    assert isinstance(make_limiter(multirotor()), BodyRateLimiter)
    with pytest.raises(ConfigError, match="twist"):
        make_limiter(multirotor(CommandKind.twist))
