"""A model of ours beside the published one: the same links, joints and frames."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
import pytest

MODELS = Path(__file__).parents[4] / "shared" / "reference" / "models"
"""Published models, where somebody put them beside the repository."""


@dataclass(frozen=True)
class Link:
    """What a source says of a link."""

    mass: float
    """[kg]."""
    centre: tuple[float, float, float]
    """Centre of mass [m]."""
    inertia: tuple[float, float, float, float, float, float]
    """xx, yy, zz, xy, xz, yz about the centre of mass [kg m^2]."""


def principal(
    mass: float, centre: Sequence[float], axes: Sequence[float], moments: Sequence[float]
) -> Link:
    """A link whose source gives principal moments and the attitude wxyz of their axes."""
    turn = _matrix(np.array(axes) / np.linalg.norm(axes))
    tensor = turn @ np.diag(moments) @ turn.T
    xx, yy, zz = np.diag(tensor)
    x, y, z = centre
    return Link(mass, (x, y, z), (xx, yy, zz, tensor[0, 1], tensor[0, 2], tensor[1, 2]))


def mirrored(link: Link, *, x: bool = False, y: bool = False) -> Link:
    """The link on the other side: mirrored along x, along y, or both."""
    sx, sy = -1 if x else 1, -1 if y else 1
    a, b, c = link.centre
    xx, yy, zz, xy, xz, yz = link.inertia
    return Link(link.mass, (sx * a, sy * b, c), (xx, yy, zz, sx * sy * xy, sx * xz, sy * yz))


def assert_link(model: mujoco.MjModel, body: str, link: Link, *, atol: float) -> None:
    """The body has the link's mass, centre and inertia (within `atol` [kg m^2])."""
    assert model.body(body).mass[0] == pytest.approx(link.mass)
    np.testing.assert_allclose(model.body(body).ipos, link.centre, atol=1e-9)
    xx, yy, zz, xy, xz, yz = link.inertia
    expected = [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]
    np.testing.assert_allclose(_inertia(model, body), expected, atol=atol, err_msg=body)


def assert_same_mechanism(
    ours: mujoco.MjModel,
    theirs: mujoco.MjModel,
    *,
    bodies: Mapping[str, str],
    inertia_atol: float,
    place_atol: float = 1e-9,
) -> None:
    """Links, joints and frames agree: limits, masses, inertias, and places at random positions.

    Args:
        ours: A model whose joints, apart from a free one, all turn.
        theirs: May have more joints; they stay at zero.
        bodies: Our name of every body that is compared -> their name.
        inertia_atol: [kg m^2].
        place_atol: [m], and for entries of rotation matrices.
    """
    joints = [ours.joint(i).name for i in range(ours.njnt) if ours.joint(i).type[0] != 0]
    assert [name for i in range(theirs.njnt) if (name := theirs.joint(i).name) in joints] == joints
    for name in joints:
        np.testing.assert_allclose(ours.joint(name).range, theirs.joint(name).range)
        np.testing.assert_allclose(ours.joint(name).axis, theirs.joint(name).axis)
    for our, their in bodies.items():
        np.testing.assert_allclose(ours.body(our).mass, theirs.body(their).mass, rtol=1e-5)
        np.testing.assert_allclose(ours.body(our).ipos, theirs.body(their).ipos, atol=1e-9)
        mine, yours = _inertia(ours, our), _inertia(theirs, their)
        np.testing.assert_allclose(mine, yours, atol=inertia_atol, err_msg=our)
    rng = np.random.default_rng(0)
    one, other = mujoco.MjData(ours), mujoco.MjData(theirs)
    first = next(iter(bodies))
    for _ in range(20):
        for name in joints:
            value = rng.uniform(*ours.joint(name).range)
            one.joint(name).qpos[0] = other.joint(name).qpos[0] = value
        mujoco.mj_kinematics(ours, one)
        mujoco.mj_kinematics(theirs, other)
        for our, their in bodies.items():
            for mine, yours in zip(
                _place(one, first, our), _place(other, bodies[first], their), strict=True
            ):
                np.testing.assert_allclose(mine, yours, atol=place_atol, err_msg=our)


def _place(data: mujoco.MjData, base: str, body: str) -> tuple[np.ndarray, np.ndarray]:
    """Position and attitude of a body in the axes of another."""
    frame = data.body(base).xmat.reshape(3, 3)
    offset = data.body(body).xpos - data.body(base).xpos
    return frame.T @ offset, frame.T @ data.body(body).xmat.reshape(3, 3)


def _inertia(model: mujoco.MjModel, body: str) -> np.ndarray:
    turn = _matrix(model.body(body).iquat)
    return turn @ np.diag(model.body(body).inertia) @ turn.T


def _matrix(quaternion: np.ndarray) -> np.ndarray:
    flat = np.zeros(9)
    mujoco.mju_quat2Mat(flat, quaternion)
    return flat.reshape(3, 3)
