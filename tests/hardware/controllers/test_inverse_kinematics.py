"""Inverse kinematics of the Panda: laws that hold for every pose."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.controllers import rotations
from hardware.controllers.inverse_kinematics import InverseKinematics
from robot_rl.core.errors import ShapeError
from tests.hardware.controllers.arms import READY, panda_chain

LOWER = [-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973]
UPPER = [2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973]
CHAIN = panda_chain()
ARM = InverseKinematics(CHAIN, lower=LOWER, upper=UPPER)


def off(q, position, orientation):
    """Distance [m] and turn [rad] of the tip from a pose."""
    place, attitude = ARM.pose(q)
    way = rotations.multiply(rotations.conjugate(attitude), orientation)
    return np.linalg.norm(place - position), math.hypot(*rotations.rotation_vector(way))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-0.25, 0.25), min_size=7, max_size=7))
def test_a_pose_of_near_joints_is_reached_within_the_limits(change):
    position, orientation = ARM.pose(READY + np.array(change))
    q = ARM.solve(READY, position, orientation, iterations=40)
    assert np.all((q >= LOWER) & (q <= UPPER))
    distance, turn = off(q, position, orientation)
    assert distance < 1e-3
    assert turn < 5e-3


def test_joints_that_are_there_stay():
    position, orientation = ARM.pose(READY)
    np.testing.assert_allclose(ARM.solve(READY, position, orientation), READY, atol=1e-9)


def test_a_joint_at_its_limit_is_locked_and_the_others_go_on():
    upper = list(UPPER)
    upper[3] = READY[3] + 0.02  # the elbow can hardly open
    arm = InverseKinematics(CHAIN, lower=LOWER, upper=upper)
    position, orientation = arm.pose(READY)
    lifted = position + np.array([0.0, 0.03, 0.0])
    q = arm.solve(READY, lifted, orientation, iterations=60)
    assert q[3] <= upper[3]
    assert off(q, lifted, orientation)[0] < 2e-3


def test_out_of_reach_the_steps_stay_finite_and_the_tip_comes_nearer():
    position, orientation = ARM.pose(READY)
    far = position + np.array([2.0, 0.0, 0.0])
    q = ARM.solve(READY, far, orientation, iterations=100)
    assert np.all(np.isfinite(q))
    assert off(q, far, orientation)[0] < off(READY, far, orientation)[0] - 0.2


def test_limits_must_be_one_per_joint():
    with pytest.raises(ShapeError, match="7 joints got 6 lower and 7 upper"):
        InverseKinematics(CHAIN, lower=LOWER[1:], upper=UPPER)
