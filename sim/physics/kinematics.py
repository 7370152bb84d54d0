"""Robots without motors: motion in given states, inverse kinematics, and falls."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import math
from collections.abc import Mapping, Sequence
from copy import copy

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import RobotSpec
from sim.physics.joint_layout import JointLayout, sensor_columns

Floats = NDArray[np.float64]

_GROUNDED = 0.005
"""A foot this much above the lowest one stands too [m]."""
_FOLDING_STEPS = 30
"""Steps of inverse kinematics for one height of a base."""
_LEVEL_JOINTS = 5
"""Joints of a leg from which on a foot can be kept level."""
_DAMPING = 0.02
"""Damping of the least squares, against the leaps near singular poses."""


def corners(model: mujoco.MjModel, geom: int) -> Floats:
    """Corners of a shape's bounding box in its body's axes, (8, 3), [m]."""
    centre, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
    signs = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, 8).T
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, model.geom_quat[geom])
    return model.geom_pos[geom] + (centre + signs * half) @ turn.reshape(3, 3).T


def lowest(model: mujoco.MjModel, data: mujoco.MjData, geom: int) -> float:
    """Height of a shape's lowest point [m]; of its bounding box where it is no ball or capsule."""
    kind, size = model.geom_type[geom], model.geom_size[geom]
    height, axis = data.geom_xpos[geom, 2], data.geom_xmat[geom, 8]
    if kind == mujoco.mjtGeom.mjGEOM_SPHERE:
        return float(height - size[0])
    if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        return float(height - size[0] - abs(axis) * size[1])
    if kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        return float(height - abs(axis) * size[1] - math.sqrt(max(0.0, 1 - axis**2)) * size[0])
    body = model.geom_bodyid[geom]
    turn = data.xmat[body].reshape(3, 3)
    return float((data.xpos[body] + corners(model, geom) @ turn.T)[:, 2].min())


class Mechanism:
    """A compiled robot with room for one state."""

    def __init__(self, model: mujoco.MjModel, robot: RobotSpec) -> None:
        """Find the robot's parts.

        Args:
            model: Shared with those who simulate it; not changed.
        """
        self._model, self._robot = model, robot
        self._data = mujoco.MjData(model)
        self._layout = JointLayout.of(model, robot.num_joints)
        self.floating = self._layout.floating
        """True if its base moves freely."""

    def base_path(self, joints: Floats) -> Floats:
        """Path of a level base over feet that do not slip.

        Args:
            joints: A motion of the joints, (T, J), [rad].

        Returns:
            (T, 3), [m]: it begins over the origin, with what touches first on height 0.
        """
        model, data = self._model, self._data
        data.qpos[:7] = [0, 0, 0, 1, 0, 0, 0]
        sites = [model.site(foot).id for foot in self._robot.feet]
        touching = self._touching()
        base, before = np.zeros((len(joints), 3)), np.zeros((len(sites), 3))
        for frame, position in enumerate(joints):
            data.qpos[self._layout.position] = position
            mujoco.mj_kinematics(model, data)
            base[frame, 2] = -self._lowest(touching)
            feet = data.site_xpos[sites].copy()
            if frame:
                stands = feet[:, 2] < feet[:, 2].min() + _GROUNDED
                base[frame, 0] = base[frame - 1, 0] - (feet - before)[stands, 0].mean()
            before = feet
        return base

    def folded(self, joints: Floats, heights: Sequence[float]) -> tuple[Floats, Floats]:
        """Poses of a level robot whose feet stay where they stand, while its base sinks.

        Feet whose legs have joints enough keep their attitude too.

        Args:
            joints: Pose to begin with, (J,), [rad].
            heights: That the base shall have, falling, (K,), [m].

        Returns:
            Poses, (K, J), [rad], and the heights of the base where what is lowest touches the
            ground, (K,), [m]: higher than asked where not the feet are lowest, or where the legs
            fold no further.
        """
        model, data, columns = self._model, self._data, self._layout.velocity
        sites = [model.site(foot).id for foot in self._robot.feet]
        touching, low, high = self._touching(), *model.jnt_range[1 : 1 + len(joints)].T
        data.qpos[:7] = [0, 0, 0, 1, 0, 0, 0]
        data.qpos[self._layout.position] = q = joints.copy()
        mujoco.mj_kinematics(model, data)
        places, first = data.site_xpos[sites].copy(), -self._lowest(touching)
        attitudes = data.site_xmat[sites].copy()
        turned, moved = np.zeros((3, model.nv)), np.zeros((3, model.nv))
        poses, found = np.zeros((len(heights), len(joints))), np.zeros(len(heights))
        for k, height in enumerate(heights):
            raised = places + np.array([0.0, 0.0, first - height])
            for _ in range(_FOLDING_STEPS):
                data.qpos[self._layout.position] = q
                mujoco.mj_kinematics(model, data)
                mujoco.mj_comPos(model, data)
                rows, off = [], []
                for site, place, attitude in zip(sites, raised, attitudes, strict=True):
                    mujoco.mj_jacSite(model, data, moved, turned, site)
                    rows.append(moved[:, columns].copy())
                    off.append(place - data.site_xpos[site])
                    if np.count_nonzero(np.abs(turned[:, columns]).max(0)) >= _LEVEL_JOINTS:
                        axes = data.site_xmat[site].reshape(3, 3), attitude.reshape(3, 3)
                        rows.append(turned[:, columns].copy())
                        off.append(0.5 * np.cross(axes[0].T, axes[1].T).sum(0))
                jacobian, error = np.concatenate(rows), np.concatenate(off)
                square = jacobian @ jacobian.T + _DAMPING**2 * np.eye(len(error))
                step = jacobian.T @ np.linalg.solve(square, error)
                q = np.clip(q + step.clip(-0.2, 0.2), low, high)
            data.qpos[self._layout.position] = q
            mujoco.mj_kinematics(model, data)
            poses[k], found[k] = q, -self._lowest(touching)
        return poses, found

    def sensed(self, states: Mapping[str, Floats], names: Sequence[str]) -> dict[str, Floats]:
        """Readings of sensors of positions and velocities in given states.

        Args:
            states: Base and joints as fields of `RobotState`, (T, width) each.
            names: Sensors; those that the model lacks are left out.

        Returns:
            By name, (T, width).
        """
        model, data, layout = self._model, self._data, self._layout
        columns = sensor_columns(model)
        rows: list[Floats] = []
        for i in range(len(states["position_w"])):
            data.qpos[:3], data.qpos[3:7] = states["position_w"][i], states["orientation_w"][i]
            data.qvel[:3] = states["linear_velocity_w"][i]
            data.qvel[3:6] = states["angular_velocity_b"][i]
            data.qpos[layout.position] = states["joint_position"][i]
            data.qvel[layout.velocity] = states["joint_velocity"][i]
            mujoco.mj_fwdPosition(model, data)
            mujoco.mj_sensorPos(model, data)
            mujoco.mj_fwdVelocity(model, data)
            mujoco.mj_sensorVel(model, data)
            rows.append(data.sensordata.copy())
        table = np.stack(rows)
        return {name: table[:, columns[name]] for name in names if name in columns}

    def _touching(self) -> list[int]:
        """The robot's geoms that touch the ground."""
        model = self._model
        return [
            i
            for i in range(model.ngeom)
            if model.body_rootid[model.geom_bodyid[i]] == model.jnt_bodyid[0]
            and model.geom_contype[i]
        ]

    def _lowest(self, geoms: Sequence[int]) -> float:
        """Height of the lowest point of some geoms [m]."""
        return min(lowest(self._model, self._data, geom) for geom in geoms)


_HOMING = 0.05
"""Part of the way to the resting pose that joints go in an iteration where the pose allows it."""


class ArmKinematics:
    """Damped least squares with the spare degrees of freedom drawn to a resting pose."""

    def __init__(
        self, model: mujoco.MjModel, layout: JointLayout, site: str, rest: np.ndarray
    ) -> None:
        """Look at an arm.

        Args:
            site: What is brought to a pose.
            rest: Joint positions that are taken where several fit, (J,), [rad].
        """
        self._model, self._data = model, mujoco.MjData(model)
        self._layout, self._rest = layout, rest
        self._site = model.site(site).id
        self._low, self._high = model.jnt_range[: len(rest)].T
        self._jacobian = np.zeros((6, model.nv))

    def solve(
        self,
        start: np.ndarray,
        position: np.ndarray,
        orientation: np.ndarray | None,
        iterations: int,
    ) -> np.ndarray:
        """Joint positions of a pose, (J,), within the limits, [rad].

        Args:
            position: Of the site, (3,), [m], world.
            orientation: Of the site, (4,), wxyz, world; None where any will do.
            iterations: How often to improve; two follow a slowly moving pose.
        """
        q = start.copy()
        for _ in range(iterations):
            error, jacobian = self._look(q, position, orientation)
            square = jacobian @ jacobian.T + _DAMPING**2 * np.eye(len(error))
            pull = _HOMING * (self._rest - q)
            q += pull + jacobian.T @ np.linalg.solve(square, error - jacobian @ pull)
            q = np.clip(q, self._low, self._high)
        return q

    def _look(
        self, q: np.ndarray, position: np.ndarray, orientation: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Way to the pose, (6,), and the Jacobian, (6, J), both position first, world axes.

        Without an orientation they have the first three rows only.
        """
        data = self._data
        data.qpos[self._layout.position] = q
        mujoco.mj_kinematics(self._model, data)
        mujoco.mj_comPos(self._model, data)
        mujoco.mj_jacSite(self._model, data, self._jacobian[:3], self._jacobian[3:], self._site)
        moved = self._jacobian[:, self._layout.velocity]
        away = position - data.site_xpos[self._site]
        if orientation is None:
            return away, moved[:3]
        here, back, way, turn = np.zeros(4), np.zeros(4), np.zeros(4), np.zeros(3)
        mujoco.mju_mat2Quat(here, data.site_xmat[self._site])
        mujoco.mju_negQuat(back, here)
        mujoco.mju_mulQuat(way, orientation, back)
        mujoco.mju_quat2Vel(turn, way, 1.0)
        return np.concatenate([away, turn]), moved


def settle(
    model: mujoco.MjModel, layout: JointLayout, poses: Tensor, *, seconds: float, damping: float
) -> Tensor:
    """Poses in which robots come to lie that fall without motors (milliseconds for each).

    Args:
        model: Their model; left as it is.
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
