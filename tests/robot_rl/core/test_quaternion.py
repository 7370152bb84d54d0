"""Laws of rotations, for numpy and torch alike."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from robot_rl.core import quaternion

RNG = np.random.default_rng(0)
Q = quaternion.normalize(RNG.standard_normal((50, 4)))
P = quaternion.normalize(RNG.standard_normal((50, 4)))
V = RNG.standard_normal((50, 3))
IDENTITY = np.tile([1.0, 0.0, 0.0, 0.0], (50, 1))

angles = st.floats(-math.pi, math.pi)


def test_quarter_turn_about_the_vertical_by_hand():
    q = quaternion.from_yaw(np.array([math.pi / 2]))
    assert_allclose(q, [[math.sqrt(0.5), 0, 0, math.sqrt(0.5)]])
    assert_allclose(quaternion.rotate(q, np.array([[1.0, 0.0, 0.0]])), [[0, 1, 0]], atol=1e-15)
    assert_allclose(quaternion.rotation_matrix(q), [[0, -1, 0, 1, 0, 0, 0, 0, 1]], atol=1e-15)


def test_product_turns_as_one_turn_after_the_other_and_the_inverse_undoes_it():
    assert_allclose(quaternion.multiply(Q, quaternion.conjugate(Q)), IDENTITY, atol=1e-14)
    assert_allclose(quaternion.rotate_inverse(Q, quaternion.rotate(Q, V)), V, atol=1e-13)
    assert_allclose(
        quaternion.rotate(quaternion.multiply(Q, P), V),
        quaternion.rotate(Q, quaternion.rotate(P, V)),
        atol=1e-13,
    )


def test_rotation_matrix_turns_as_the_quaternion_and_is_orthonormal():
    matrix = quaternion.rotation_matrix(Q).reshape(-1, 3, 3)
    assert_allclose(np.einsum("nij,nj->ni", matrix, V), quaternion.rotate(Q, V), atol=1e-13)
    assert_allclose(matrix @ matrix.transpose(0, 2, 1), np.tile(np.eye(3), (50, 1, 1)), atol=1e-13)
    assert_allclose(np.linalg.det(matrix), 1.0)


@given(angles, angles, angles)
def test_rotation_vector_turns_by_its_length_about_itself(x, y, z):
    v = np.array([[x, y, z]])
    q = quaternion.from_rotation_vector(v)
    assert_allclose(np.linalg.norm(q), 1.0, atol=1e-9)
    assert_allclose(quaternion.rotate(q, v), v, atol=1e-8)
    assert_allclose(q[0, 0], math.cos(0.5 * np.linalg.norm(v)), atol=1e-12)


@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-5, 0.9999e-4, 1.0001e-4, 1e-3])
def test_small_rotation_vectors_keep_their_digits(length):
    q = quaternion.from_rotation_vector(np.array([[length, 0.0, 0.0]]))
    assert_allclose(q[0, 1], math.sin(0.5 * length), rtol=1e-12, atol=0)


@pytest.mark.parametrize("angle", [0.0, 0.3, math.pi / 2, 3.0])
def test_tilt_is_the_angle_between_the_vertical_axes(angle):
    lean = quaternion.from_rotation_vector(np.array([[angle, 0.0, 0.0]]))
    turned = quaternion.multiply(quaternion.from_yaw(np.array([1.0])), lean)
    assert_allclose(quaternion.tilt(turned), [angle], atol=1e-12)


@pytest.mark.parametrize("yaw", [0.0, 0.5, -2.0])
def test_a_heading_is_the_turn_about_the_vertical_whatever_the_lean(yaw):
    nod = quaternion.from_rotation_vector(np.array([[0.0, 0.7, 0.0]]))
    turned = quaternion.multiply(quaternion.from_yaw(np.array([yaw])), nod)
    ahead = quaternion.heading(quaternion.rotation_matrix(turned))
    assert_allclose(ahead, [[math.cos(yaw), math.sin(yaw)]], atol=1e-12)
    assert_allclose(quaternion.yaw(quaternion.rotation_matrix(turned)), [yaw], atol=1e-12)
    upwards = np.array([[0.0, 0, 1, 0, 1, 0, -1, 0, 0]])
    assert_array_equal(quaternion.heading(upwards), [[0, 0]])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("normalize", (3 * Q,)), ("conjugate", (Q,)), ("multiply", (Q, P)),
        ("rotation_matrix", (Q,)), ("rotate", (Q, V)), ("rotate_inverse", (Q, V)),
        ("from_rotation_vector", (V,)), ("from_yaw", (V[:, 0],)), ("tilt", (Q,)),
        ("heading", (quaternion.rotation_matrix(Q),)), ("yaw", (quaternion.rotation_matrix(Q),)),
    ],
)  # fmt: skip
def test_numpy_and_torch_agree_in_single_precision(name, arguments):
    function = getattr(quaternion, name)
    singles = [value.astype(np.float32) for value in arguments]
    by_numpy = function(*singles)
    by_torch = function(*(torch.from_numpy(value) for value in singles))
    assert by_numpy.dtype == np.float32
    assert by_torch.dtype == torch.float32
    assert_allclose(by_numpy, by_torch.numpy(), atol=1e-6)
    assert_allclose(by_numpy, function(*arguments), atol=1e-5)
