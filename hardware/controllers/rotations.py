"""Attitudes of one body in plain Python floats, for laws that run a thousand times a second.

The same formulas as `robot_rl/core/quaternion.py`, which works on batches and spends more than
fifty times as long on the product of two attitudes. Quaternions are wxyz of unit length; vectors
and quaternions are tuples of floats, made from arrays by `vector` and `quaternion`.
"""

import math
from typing import TypeAlias

import numpy as np

Vector: TypeAlias = tuple[float, float, float]
Quaternion: TypeAlias = tuple[float, float, float, float]

_TINY = 1e-9
"""Lengths of a quaternion's vector part below which an angle is its sine to the last digit."""


def vector(row: np.ndarray) -> Vector:
    """The only row of an array, (1, 3), or an array (3,), as floats."""
    x, y, z = np.ravel(row).tolist()
    return x, y, z


def quaternion(row: np.ndarray) -> Quaternion:
    """The only row of an array, (1, 4), or an array (4,), as floats, scaled to unit length."""
    w, x, y, z = np.ravel(row).tolist()
    return unit((w, x, y, z))


def unit(q: Quaternion) -> Quaternion:
    """Scale to unit length."""
    w, x, y, z = q
    scale = 1 / math.sqrt(w * w + x * x + y * y + z * z)
    return w * scale, x * scale, y * scale, z * scale


def conjugate(q: Quaternion) -> Quaternion:
    """The turn back."""
    return q[0], -q[1], -q[2], -q[3]


def multiply(a: Quaternion, b: Quaternion) -> Quaternion:
    """First turn by b, then by a."""
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return (
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    )


def cross(a: Vector, b: Vector) -> Vector:
    """Vector product."""
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def rotate(q: Quaternion, v: Vector) -> Vector:
    """Turn a vector from the body into the world: q v q*."""
    axis = q[1:]
    x, y, z = cross(axis, v)
    turn = (2 * x, 2 * y, 2 * z)
    twist = cross(axis, turn)
    return (
        v[0] + q[0] * turn[0] + twist[0],
        v[1] + q[0] * turn[1] + twist[1],
        v[2] + q[0] * turn[2] + twist[2],
    )


def vertical(q: Quaternion) -> Vector:
    """The body's z axis in the world: third column of the rotation matrix."""
    w, x, y, z = q
    return 2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)


def from_rotation_vector(v: Vector) -> Quaternion:
    """Turn by the length of v [rad] about v."""
    angle = math.sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2])
    scale = math.sin(0.5 * angle) / angle if angle > _TINY else 0.5
    return math.cos(0.5 * angle), v[0] * scale, v[1] * scale, v[2] * scale


def rotation_vector(q: Quaternion) -> Vector:
    """The shortest turn [rad], length in [0, pi]; the same for q and -q below pi."""
    w, x, y, z = q if q[0] >= 0 else (-q[0], -q[1], -q[2], -q[3])
    sine = math.sqrt(x * x + y * y + z * z)
    scale = 2 * math.atan2(sine, w) / sine if sine > _TINY else 2.0
    return x * scale, y * scale, z * scale


def slerp(a: Quaternion, b: Quaternion, share: float) -> Quaternion:
    """A share of the shortest way from a (0) to b (1), at constant angular velocity."""
    x, y, z = rotation_vector(multiply(conjugate(a), b))
    return unit(multiply(a, from_rotation_vector((share * x, share * y, share * z))))


def from_axes(x: Vector, y: Vector, z: Vector) -> Quaternion:
    """Attitude of a body whose axes point along orthonormal vectors of the world.

    Source: "Quaternion from rotation matrix", Journal of Guidance and Control 1978: the largest
    entry of the quaternion comes from the diagonal, the others are divided by it.
    """
    trace = x[0] + y[1] + z[2]
    squares = [trace, 2 * x[0] - trace, 2 * y[1] - trace, 2 * z[2] - trace]
    rows = [
        (1 + trace, y[2] - z[1], z[0] - x[2], x[1] - y[0]),
        (y[2] - z[1], 1 + squares[1], x[1] + y[0], z[0] + x[2]),
        (z[0] - x[2], x[1] + y[0], 1 + squares[2], y[2] + z[1]),
        (x[1] - y[0], z[0] + x[2], y[2] + z[1], 1 + squares[3]),
    ]
    return unit(rows[squares.index(max(squares))])
