"""Attitudes of one body are those of batches, digit for digit."""

import math

import numpy as np
import pytest

from hardware.controllers import rotations
from robot_rl.core import quaternion

RNG = np.random.default_rng(0)
ATTITUDES = quaternion.normalize(RNG.standard_normal((40, 4)))
OTHERS = quaternion.normalize(RNG.standard_normal((40, 4)))
VECTORS = RNG.standard_normal((40, 3))


@pytest.fixture(params=range(0, 40, 4))
def row(request):
    i = request.param
    return (
        rotations.quaternion(ATTITUDES[i]),
        rotations.quaternion(OTHERS[i]),
        rotations.vector(VECTORS[i]),
    )


def test_products_turns_and_exponentials_are_those_of_batches(row):
    a, b, v = row
    pairs = {
        rotations.conjugate(a): quaternion.conjugate(np.array(a)),
        rotations.multiply(a, b): quaternion.multiply(np.array(a), np.array(b)),
        rotations.rotate(a, v): quaternion.rotate(np.array(a), np.array(v)),
        rotations.vertical(a): quaternion.rotate(np.array(a), np.array([0.0, 0.0, 1.0])),
        rotations.from_rotation_vector(v): quaternion.from_rotation_vector(np.array(v)),
    }
    for got, expected in pairs.items():
        np.testing.assert_allclose(got, expected, atol=1e-14)


def test_rotation_vector_undoes_the_exponential_up_to_half_a_turn():
    for length in (0.0, 1e-12, 1e-6, 0.5, 3.0, math.pi - 1e-6):
        v = (0.6 * length, 0.0, -0.8 * length)
        np.testing.assert_allclose(
            rotations.rotation_vector(rotations.from_rotation_vector(v)), v, rtol=1e-9, atol=1e-20
        )


def test_both_quaternions_of_an_attitude_have_one_rotation_vector(row):
    a, _, _ = row
    w, x, y, z = a
    assert rotations.rotation_vector(a) == rotations.rotation_vector((-w, -x, -y, -z))


def test_a_matrix_goes_back_to_its_attitude_even_after_half_a_turn(row):
    for a in (row[0], (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0)):
        matrix = quaternion.rotation_matrix(np.array(a)).reshape(3, 3)
        x, y, z = matrix.T.tolist()
        back = rotations.from_axes(x, y, z)
        np.testing.assert_allclose(abs(np.dot(back, a)), 1.0, atol=1e-14)


def test_slerp_takes_the_short_way_at_constant_speed():
    start = rotations.from_rotation_vector((0.0, 0.0, 0.2))
    w, x, y, z = rotations.from_rotation_vector((0.0, 0.0, 1.2))
    for share in (0.0, 0.25, 1.0):
        expected = (0.0, 0.0, 0.2 + share)
        for end in ((w, x, y, z), (-w, -x, -y, -z)):
            got = rotations.rotation_vector(rotations.slerp(start, end, share))
            np.testing.assert_allclose(got, expected, atol=1e-14)
