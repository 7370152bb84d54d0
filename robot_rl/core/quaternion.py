"""Unit quaternions `wxyz` and rotation vectors, for numpy and torch arrays alike.

A quaternion `q` of frame b in frame w turns vectors given in b into vectors given in w. All
functions are batch-first, work on the last axis and return the array type they were given.
"""

from functools import lru_cache
from typing import Any

from array_api_compat import array_namespace, is_torch_array

from robot_rl.core.env_selection import Array


def normalize(q: Array) -> Array:
    """Scale to unit length, (..., 4)."""
    xp = array_namespace(q)
    return q / xp.sqrt(xp.sum(q * q, axis=-1, keepdims=True))


def conjugate(q: Array) -> Array:
    """Inverse rotation of a unit quaternion, (..., 4)."""
    xp = array_namespace(q)
    return xp.concat([q[..., :1], -q[..., 1:]], axis=-1)


def multiply(a: Array, b: Array) -> Array:
    """Hamilton product a * b: first turn by b, then by a, (..., 4)."""
    return _sums(a[..., :, None] * b[..., None, :], "product")  # (..., wxyz of a, wxyz of b)


def rotation_matrix(q: Array) -> Array:
    """Rotation matrix of a unit quaternion, row-major, (..., 9)."""
    matrix = _sums(q[..., 1:, None] * q[..., None, :], "rotation")  # (..., xyz, wxyz)
    diagonal = matrix[..., ::4]
    diagonal += 1
    return matrix


def rotate(q: Array, v: Array) -> Array:
    """Turn vectors from the body into the world: q v q*, (..., 3)."""
    axis = q[..., 1:]
    turn = 2 * _cross(axis, v)
    return v + q[..., :1] * turn + _cross(axis, turn)


def rotate_inverse(q: Array, v: Array) -> Array:
    """Turn vectors from the world into the body: q* v q, (..., 3)."""
    return rotate(conjugate(q), v)


def from_rotation_vector(v: Array) -> Array:
    """Unit quaternion of a rotation vector [rad], (..., 3) -> (..., 4)."""
    xp = array_namespace(v)
    angle = xp.sqrt(xp.sum(v * v, axis=-1, keepdims=True))
    half = 0.5 * angle
    scale = xp.sin(half) / angle.clip(2e-38)  # 0 / 0 is avoided by the smallest normal float32
    return xp.concat([xp.cos(half), v * scale], axis=-1)


def from_yaw(yaw: Array) -> Array:
    """Unit quaternion of a turn about the vertical [rad], (...,) -> (..., 4)."""
    xp = array_namespace(yaw)
    zero = xp.zeros_like(yaw)
    return xp.stack([xp.cos(0.5 * yaw), zero, zero, xp.sin(0.5 * yaw)], axis=-1)


def tilt(q: Array) -> Array:
    """Angle between the body's z axis and the world's [rad], in [0, pi], (..., 4) -> (...)."""
    xp = array_namespace(q)
    lean = q[..., 1] * q[..., 1] + q[..., 2] * q[..., 2]
    return 2 * xp.asin(xp.clip(xp.sqrt(lean), 0.0, 1.0))


def heading(rotation: Array) -> Array:
    """Direction of the body's x axis on the ground: unit vectors (x, y) in the world.

    Args:
        rotation: Rotation matrices, row-major, (..., 9).

    Returns:
        (..., 2); shorter than 1 where the axis is vertical within a millionth.
    """
    xp = array_namespace(rotation)
    ahead = rotation[..., 0:4:3]
    return ahead / xp.clip(xp.linalg.vector_norm(ahead, axis=-1, keepdims=True), min=1e-6)


def yaw(rotation: Array) -> Array:
    """Angle of the `heading` about the vertical [rad], of rotation matrices (..., 9) -> (...)."""
    xp = array_namespace(rotation)
    ahead = heading(rotation)
    return xp.atan2(ahead[..., 1], ahead[..., 0])


def _cross(a: Array, b: Array) -> Array:
    xp = array_namespace(a, b)
    ax, ay, az = a[..., 0], a[..., 1], a[..., 2]
    bx, by, bz = b[..., 0], b[..., 1], b[..., 2]
    return xp.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], axis=-1)


_HAMILTON = (
    ((0, 1), (1, 1), (2, 1), (3, 1)),
    ((1, 1), (0, -1), (3, 1), (2, -1)),
    ((2, 1), (3, -1), (0, -1), (1, 1)),
    ((3, 1), (2, 1), (1, -1), (0, -1)),
)
"""Products of the units 1, i, j, k: which unit, and its sign; row times column."""
_PRODUCTS = ("wx", "xx", "xy", "xz", "wy", "yx", "yy", "yz", "wz", "zx", "zy", "zz")
_ROTATION = (
    "-yy -zz", "+xy -wz", "+xz +wy",
    "+xy +wz", "-xx -zz", "+yz -wx",
    "+xz -wy", "+yz +wx", "-xx -yy",
)  # fmt: skip
"""Sums of products that are half a rotation matrix less one on its diagonal."""
_TABLES = {
    "product": [
        [float(sign) * (unit == k) for k in range(4)] for row in _HAMILTON for unit, sign in row
    ],
    "rotation": [
        [
            2.0 * (f"+{name}" in sums.split()) - 2.0 * (f"-{name}" in sums.split())
            for sums in _ROTATION
        ]
        for name in _PRODUCTS
    ],
}


def _sums(products: Array, name: str) -> Array:
    """Sums of the entries of (..., R, C), as a table of factors says.

    One product with a table: adding up single columns takes ten times as many operations.
    """
    rows, columns = products.shape[-2:]
    inference = is_torch_array(products) and products.is_inference()
    table = _table(name, array_namespace(products), products.dtype, products.device, inference)
    return products.reshape(*products.shape[:-2], rows * columns) @ table


@lru_cache(maxsize=64)
def _table(name: str, xp: Any, dtype: Any, device: Any, inference: bool) -> Array:
    """Made anew for torch's inference mode: its tensors cannot be differentiated outside of it."""
    del inference
    return xp.asarray(_TABLES[name], dtype=dtype, device=device)
