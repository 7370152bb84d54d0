"""Lets robots fall until they lie: MuJoCo worlds without motors, one after another."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from copy import copy

import mujoco
import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError
from sim.physics.joint_layout import JointLayout


def settle(
    model: mujoco.MjModel, layout: JointLayout, poses: Tensor, *, seconds: float, damping: float
) -> Tensor:
    """Where robots come to lie that are dropped without motors (milliseconds for each).

    Args:
        model: Their model; left as it is.
        layout: Where the robot stands in the model's state.
        poses: Base and joints of each robot, (count, 7 + J), as in `qpos`; all else where the model
            has it.
        seconds: Simulated time [s].
        damping: Viscous friction of the robot's joints meanwhile [N m s/rad].

    Returns:
        Base and joints after that time, (count, 7 + J).

    Raises:
        ConfigError: The base does not float, or a fall is no motion any more.
    """
    if not layout.floating:
        raise ConfigError("only a robot with a floating base can fall, this one's base is fixed")
    limp = copy(model)
    limp.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ACTUATION
    limp.dof_damping[layout.velocity] += damping
    data = mujoco.MjData(limp)
    size = poses.shape[1]
    steps = round(seconds / limp.opt.timestep)
    settled = torch.empty(poses.shape, dtype=torch.float64)
    for i, pose in enumerate(poses.double().numpy()):
        mujoco.mj_resetData(limp, data)
        data.qpos[:size] = pose
        mujoco.mj_step(limp, data, nstep=steps)
        settled[i] = torch.from_numpy(data.qpos[:size].copy())
    if not bool(settled.isfinite().all()):
        raise ConfigError("robots that fall do not stay finite; lower physics_dt")
    return settled.to(poses.dtype)
