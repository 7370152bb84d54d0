"""How many contacts a model makes: its robot falls and flails, and Warp counts."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import hashlib
from collections.abc import Iterator
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from sim.physics.mujoco_model.compiled_model import compiled
from sim.physics.mujoco_model.quiet import warnings_unsaid
from sim.physics.warp_engine.start import mjw
from sim.physics.warp_start import wp

_FALLS = 8
"""The first from the model's reference pose, the others from drawn ones."""
_SECONDS, _FREED, _HELD = 1.0, 0.25, 0.1
"""Of a fall; until bodies that began inside each other are apart; of one control [s]."""
_COUNTABLE = 4096
"""Contacts that can be told apart; the counters go on where that ends."""
_counted: dict[tuple[bytes, str], int] = {}


def most_contacts(model: mujoco.MjModel) -> int:
    """The most contacts of one world that were found, or pairs of shapes whose contact was sought.

    MuJoCo in C simulates a few falls (about 0.1 s of computing), and in the fullest moments of each
    MuJoCo Warp counts, on the present device: between the same shapes it may find other contacts.
    A model is counted once on each device in a process, and always has the same number.

    Args:
        model: Of one world; left as it is.

    Raises:
        NotImplementedError: MuJoCo Warp cannot simulate the model.
    """
    key = hashlib.sha256(compiled(model).tobytes()).digest(), wp.get_device().alias
    if key not in _counted:
        _counted[key] = _most_in_warp(model, list(_fullest_moments(model)))
    return _counted[key]


def _fullest_moments(model: mujoco.MjModel) -> Iterator[NDArray[np.float64]]:
    """Of each fall the positions with the most contacts, and where it ended, (nq,) each."""
    rng, data = np.random.default_rng(0), mujoco.MjData(model)
    low, high = _control_range(model)
    steps, freed, held = (
        max(1, round(seconds / model.opt.timestep)) for seconds in (_SECONDS, _FREED, _HELD)
    )
    with warnings_unsaid():
        for fall in range(_FALLS):
            mujoco.mj_resetData(model, data)
            if fall > 0:
                _draw_pose(model, data.qpos, rng)
            fullest, most = data.qpos.copy(), -1
            for step in range(steps):
                if step % held == 0:
                    data.ctrl[:] = rng.uniform(low, high)
                mujoco.mj_step(model, data)
                if step >= freed and data.ncon > most:
                    fullest, most = data.qpos.copy(), data.ncon
            yield from (fullest, data.qpos.copy())


def _control_range(model: mujoco.MjModel) -> NDArray[np.float64]:
    """Controls that pull each joint to one end of its range or the other, (2, nu).

    A motor of a `RobotSpec` is told its stiffness times the place; one of another kind has limits,
    or gets -1 to 1.
    """
    bounds = np.tile([[-1.0], [1.0]], model.nu)
    for motor in range(model.nu):
        joint = model.actuator_trnid[motor, 0]
        affine, direct = model.actuator_biasprm[motor, 1], model.actuator_gainprm[motor, 4]
        on_joint = model.actuator_trntype[motor] == mujoco.mjtTrn.mjTRN_JOINT.value
        if model.actuator_ctrllimited[motor]:
            bounds[:, motor] = model.actuator_ctrlrange[motor]
        elif on_joint and model.jnt_limited[joint] and (affine or direct):
            bounds[:, motor] = abs(affine or direct) * model.jnt_range[joint]
    return bounds


def _draw_pose(model: mujoco.MjModel, qpos: NDArray[np.float64], rng: np.random.Generator) -> None:
    """Turn what floats, over some place of a height field, and draw joints within limits."""
    free, ball = mujoco.mjtJoint.mjJNT_FREE.value, mujoco.mjtJoint.mjJNT_BALL.value
    for joint, kind in enumerate(model.jnt_type):
        first = model.jnt_qposadr[joint]
        if kind in (free, ball):
            turned = first + 3 if kind == free else first
            quaternion = rng.normal(size=4)
            qpos[turned : turned + 4] = quaternion / np.linalg.norm(quaternion)
            if kind == free and model.nhfield:
                extent, height = model.hfield_size[0, :2], model.hfield_size[0, 2]
                qpos[first : first + 3] += [*rng.uniform(-0.8, 0.8, 2) * extent, height]
        elif model.jnt_limited[joint]:
            qpos[first] = rng.uniform(*model.jnt_range[joint])


def _most_in_warp(model: mujoco.MjModel, moments: list[NDArray[np.float64]]) -> int:
    on_device: Any = mjw.put_model(model)
    on_device.opt.warn_overflow = 0
    world: Any = mjw.make_data(model, nworld=1, nconmax=_COUNTABLE, njmax=1)
    most = 0
    for qpos in moments:
        wp.copy(world.qpos, wp.array(qpos[None], dtype=float))
        mjw.kinematics(on_device, world)
        mjw.com_pos(on_device, world)
        mjw.collision(on_device, world)
        most = max(most, int(world.nacon.numpy()[0]), int(world.ncollision.numpy()[0]))
    return most
