"""Inverse kinematics of arms: joint positions that bring a site of the model to a pose."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import mujoco
import numpy as np

from sim.physics.joint_layout import JointLayout

_DAMPING = 0.02
"""Of the least squares, against the leaps near singular poses."""
_HOMING = 0.05
"""Part of the way to the resting pose that joints go in an iteration where the pose allows it."""


class ArmKinematics:
    """Damped least squares with the spare degrees of freedom drawn to a resting pose."""

    def __init__(
        self, model: mujoco.MjModel, layout: JointLayout, site: str, rest: np.ndarray
    ) -> None:
        """Look at an arm.

        Args:
            model: Its model.
            layout: Where its joints stand.
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
            start: Where to begin, (J,), [rad].
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
