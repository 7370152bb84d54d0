"""Rigid-body model of an arm as plain numbers, read from a MuJoCo model.

The real robot's control laws take such numbers (`hardware/controllers/chain.py`), and nothing of
MuJoCo: whoever joins both hands them over.
"""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np

from robot_rl.core.errors import ConfigError


def arm_model(model: Any, joints: Sequence[str], tip: str) -> dict[str, np.ndarray]:
    """Links from the base to a site; what hangs on the last link moves with it.

    Args:
        model: A MuJoCo model.
        joints: Names of the arm's joints, from the base; each moves the link of the one before.
            Other joints are taken as locked at zero.
        tip: Name of the end effector's site.

    Returns:
        Fields of `KinematicChain`, link axes: axis (J, 3), position (J, 3) [m], orientation (J, 4),
        mass (J,) [kg], center (J, 3) [m], inertia (J, 3, 3) [kg m^2], prismatic (J,),
        tip_position (3,) [m], tip_orientation (4,), gravity_b (3,) [m/s^2].

    Raises:
        ConfigError: The joints are no chain, or one of them has its axis elsewhere than in its
            link's origin, or its zero elsewhere than the model has it.
    """
    ids = [int(model.joint(name).id) for name in joints]
    bodies = [int(model.jnt_bodyid[one]) for one in ids]
    for body, parent in zip(bodies[1:], bodies[:-1], strict=True):
        if int(model.body_parentid[body]) != parent:
            raise ConfigError(f"joints {list(joints)} are no chain: expected each on the next link")
    for name, joint in zip(joints, ids, strict=True):
        turns = model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_HINGE
        if turns and np.any(model.jnt_pos[joint]):
            raise ConfigError(
                f"joint '{name}' turns about the point {model.jnt_pos[joint].tolist()} of its "
                "link; expected the link's origin: give its body that origin, and leave pos out"
            )
        if zero := model.qpos0[model.jnt_qposadr[joint]]:
            raise ConfigError(
                f"joint '{name}' reads {zero:g} in the pose that the model describes; expected 0: "
                "leave ref out, and turn or move its body instead"
            )
    at_zero = mujoco.MjData(model)
    at_zero.qpos[:] = 0.0
    mujoco.mj_kinematics(model, at_zero)
    mujoco.mj_comPos(model, at_zero)
    lumps = [_lump(model, at_zero, body, bodies) for body in bodies]
    last, site = bodies[-1], int(model.site(tip).id)
    rotation = at_zero.xmat[last].reshape(3, 3)
    base = at_zero.xmat[model.body_parentid[bodies[0]]].reshape(3, 3)
    turn = np.zeros(4)
    mujoco.mju_mat2Quat(turn, (rotation.T @ at_zero.site_xmat[site].reshape(3, 3)).ravel())
    return {
        "axis": model.jnt_axis[ids].copy(),
        "position": model.body_pos[bodies].copy(),
        "orientation": model.body_quat[bodies].copy(),
        "mass": np.array([lump[0] for lump in lumps]),
        "center": np.array([lump[1] for lump in lumps]),
        "inertia": np.array([lump[2] for lump in lumps]),
        "prismatic": model.jnt_type[ids] == mujoco.mjtJoint.mjJNT_SLIDE,
        "tip_position": rotation.T @ (at_zero.site_xpos[site] - at_zero.xpos[last]),
        "tip_orientation": turn,
        "gravity_b": base.T @ model.opt.gravity,
    }


def _lump(
    model: Any, data: Any, link: int, links: Sequence[int]
) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, centre and inertia of a link and of the bodies that are fixed to it, link axes."""
    members = [b for b in range(model.nbody) if _carrier(model, b, links) == link]
    mass = model.body_mass[members]
    centers = data.xipos[members]
    center = mass @ centers / mass.sum()
    inertia = np.zeros((3, 3))
    for body, m, c in zip(members, mass, centers, strict=True):
        axes = data.ximat[body].reshape(3, 3)
        arm = c - center
        inertia += axes @ np.diag(model.body_inertia[body]) @ axes.T
        inertia += m * (arm @ arm * np.eye(3) - np.outer(arm, arm))
    turn = data.xmat[link].reshape(3, 3)
    return float(mass.sum()), turn.T @ (center - data.xpos[link]), turn.T @ inertia @ turn


def _carrier(model: Any, body: int, links: Sequence[int]) -> int:
    """The link that carries a body; 0 for none."""
    while body and body not in links:
        body = int(model.body_parentid[body])
    return body
