"""The chain of an arm from its MuJoCo model, and the arm itself driven by torques."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from importlib import resources

import mujoco
import numpy as np

from hardware.controllers.chain import KinematicChain
from sim.physics.arm_model import arm_model

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
    names = [model.joint(number).name for number in range(joints)]
    return KinematicChain(**arm_model(model, names, tip))
