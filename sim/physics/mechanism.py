"""One robot without forces: where its parts are and how they move in states that are given."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping, Sequence

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.core.robot import RobotSpec
from sim.physics.joint_layout import JointLayout
from sim.physics.mujoco_engine.sensors import sensor_columns

Floats = NDArray[np.float64]

_CAPSULE = int(mujoco.mjtGeom.mjGEOM_CAPSULE)
_ROUND = (int(mujoco.mjtGeom.mjGEOM_SPHERE), _CAPSULE)
_GROUNDED = 0.005
"""A foot this much above the lowest one stands too [m]."""


class Mechanism:
    """A compiled robot with room for one state."""

    def __init__(self, model: mujoco.MjModel, robot: RobotSpec) -> None:
        """Find the robot's parts.

        Args:
            model: Shared with those who simulate it; not changed.
            robot: Its description.
        """
        self._model, self._robot = model, robot
        self._data = mujoco.MjData(model)
        self._layout = JointLayout.of(model, robot.num_joints)
        self.floating = self._layout.floating
        """Whether its base moves freely."""

    def base_path(self, joints: Floats) -> Floats:
        """Where a level base is while the feet on the ground stay where they are.

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

    def sensed(self, states: Mapping[str, Floats], names: Sequence[str]) -> dict[str, Floats]:
        """What sensors of positions and velocities say in given states.

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
        """The robot's round geoms that touch the ground."""
        model = self._model
        return [
            i
            for i in range(model.ngeom)
            if model.body_rootid[model.geom_bodyid[i]] == model.jnt_bodyid[0]
            and model.geom_contype[i]
            and int(model.geom_type[i]) in _ROUND
        ]

    def _lowest(self, geoms: Sequence[int]) -> float:
        """Height of the lowest point of round geoms [m]."""
        model, data = self._model, self._data
        upright = np.abs(data.geom_xmat[geoms, 8])  # of a capsule's axis
        half = np.where(model.geom_type[geoms] == _CAPSULE, model.geom_size[geoms, 1], 0.0)
        return float((data.geom_xpos[geoms, 2] - model.geom_size[geoms, 0] - half * upright).min())
