"""Geometry and masses of an arm from its MuJoCo model, as plain arrays for a law that moves it."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Sequence

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import ConfigError

Floats = NDArray[np.float64]


def chain_arrays(model: mujoco.MjModel, tip: str, joints: int) -> dict[str, Floats]:
    """The first joints of a model, up to a site; what hangs on the last link moves with it.

    Args:
        model: A model whose first joints follow one another along the arm.
        tip: Name of the end effector's site.
        joints: J; joints behind are taken as locked at zero.

    Returns:
        Arrays by the names of the fields of `hardware.controllers.chain.KinematicChain`.

    Raises:
        ConfigError: The model has no such site.
    """
    site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, tip)
    if site < 0:
        known = [model.site(number).name for number in range(model.nsite)]
        raise ConfigError(f"the end effector's site '{tip}' was asked for; the model has {known}")
    at_zero = mujoco.MjData(model)
    mujoco.mj_kinematics(model, at_zero)
    mujoco.mj_comPos(model, at_zero)
    bodies = [int(model.jnt_bodyid[j]) for j in range(joints)]
    lumps = [_lump(model, at_zero, body, bodies) for body in bodies]
    last = bodies[-1]
    rotation = at_zero.xmat[last].reshape(3, 3)
    turn = np.zeros(4)
    mujoco.mju_mat2Quat(turn, (rotation.T @ at_zero.site_xmat[site].reshape(3, 3)).ravel())
    return {
        "axis": model.jnt_axis[:joints].copy(),
        "position": model.body_pos[bodies].copy(),
        "orientation": model.body_quat[bodies].copy(),
        "mass": np.array([mass for mass, _, _ in lumps]),
        "center": np.array([center for _, center, _ in lumps]),
        "inertia": np.array([inertia for _, _, inertia in lumps]),
        "armature": model.dof_armature[:joints].copy(),
        "prismatic": model.jnt_type[:joints] == mujoco.mjtJoint.mjJNT_SLIDE,
        "tip_position": rotation.T @ (at_zero.site_xpos[site] - at_zero.xpos[last]),
        "tip_orientation": turn,
        "gravity_b": model.opt.gravity.copy(),
    }


def _lump(
    model: mujoco.MjModel, data: mujoco.MjData, link: int, links: Sequence[int]
) -> tuple[float, Floats, Floats]:
    """Mass, centre and inertia of a link and of the bodies that are fixed to it, link axes."""
    members = [body for body in range(model.nbody) if _carrier(model, body, links) == link]
    mass, centers = model.body_mass[members], data.xipos[members]
    center = mass @ centers / mass.sum()
    inertia = np.zeros((3, 3))
    for body, m, c in zip(members, mass, centers, strict=True):
        axes, arm = data.ximat[body].reshape(3, 3), c - center
        inertia += axes @ np.diag(model.body_inertia[body]) @ axes.T
        inertia += m * (arm @ arm * np.eye(3) - np.outer(arm, arm))
    turn = data.xmat[link].reshape(3, 3)
    return float(mass.sum()), turn.T @ (center - data.xpos[link]), turn.T @ inertia @ turn


def _carrier(model: mujoco.MjModel, body: int, links: Sequence[int]) -> int:
    """The link that carries a body; 0 for none."""
    while body and body not in links:
        body = int(model.body_parentid[body])
    return body
