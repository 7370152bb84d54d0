"""The chain of an arm from its MuJoCo model, and the arm itself driven by torques."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from importlib import resources

import mujoco
import numpy as np

from hardware.controllers.chain import KinematicChain

READY = np.array([0.0, -0.785398, 0.0, -2.356194, 0.0, 1.570796, 0.785398])
"""The Panda's default pose [rad]."""
EFFORT = [87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0]
"""Its largest torques [N m]."""


class ArmOfMujoco:
    """The Panda with true gravity and without friction, its fingers locked by a stiff spring."""

    def __init__(self, q: np.ndarray = READY, dt: float = 0.001) -> None:
        self.model = panda()
        self.model.body_gravcomp[:] = 0.0
        self.model.dof_damping[:7] = 0.0
        self.model.jnt_limited[:] = False
        self.model.jnt_stiffness[7:] = 1e4
        self.model.opt.timestep = dt
        self.data = mujoco.MjData(self.model)
        self.data.qpos[:7] = q
        mujoco.mj_forward(self.model, self.data)

    @property
    def q(self) -> np.ndarray:
        return self.data.qpos[:7].copy()

    @property
    def dq(self) -> np.ndarray:
        return self.data.qvel[:7].copy()

    def step(self, torque: np.ndarray) -> None:
        self.data.qfrc_applied[:7] = torque
        mujoco.mj_step(self.model, self.data)


def panda_chain() -> KinematicChain:
    return chain_of(panda(), "end_effector", 7)


def panda() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(str(resources.files("sim.robots") / "panda.xml"))


def chain_of(model: mujoco.MjModel, tip: str, joints: int) -> KinematicChain:
    """The first joints of a model, up to a site; what hangs on the last link moves with it.

    Args:
        model: A model whose first joints follow one another along the chain.
        tip: Name of the end effector's site.
        joints: J; joints behind are taken as locked at zero.
    """
    at_zero = mujoco.MjData(model)
    mujoco.mj_kinematics(model, at_zero)
    bodies = [int(model.jnt_bodyid[j]) for j in range(joints)]
    lumps = [_lump(model, at_zero, body, bodies) for body in bodies]
    last, site = bodies[-1], model.site(tip).id
    rotation = at_zero.xmat[last].reshape(3, 3)
    turn = np.zeros(4)
    mujoco.mju_mat2Quat(turn, (rotation.T @ at_zero.site_xmat[site].reshape(3, 3)).ravel())
    return KinematicChain(
        axis=model.jnt_axis[:joints].copy(),
        position=model.body_pos[bodies],
        orientation=model.body_quat[bodies],
        mass=np.array([lump[0] for lump in lumps]),
        center=np.array([lump[1] for lump in lumps]),
        inertia=np.array([lump[2] for lump in lumps]),
        armature=model.dof_armature[:joints].copy(),
        prismatic=model.jnt_type[:joints] == mujoco.mjtJoint.mjJNT_SLIDE,
        tip_position=rotation.T @ (at_zero.site_xpos[site] - at_zero.xpos[last]),
        tip_orientation=turn,
        gravity_b=model.opt.gravity.copy(),
    )


def _lump(
    model: mujoco.MjModel, data: mujoco.MjData, link: int, links: list[int]
) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, centre and inertia of a link and of the bodies that are fixed to it, link axes."""
    mujoco.mj_comPos(model, data)
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
    return mass.sum(), turn.T @ (center - data.xpos[link]), turn.T @ inertia @ turn


def _carrier(model: mujoco.MjModel, body: int, links: list[int]) -> int:
    """The link that carries a body; 0 for none."""
    while body and body not in links:
        body = int(model.body_parentid[body])
    return body
