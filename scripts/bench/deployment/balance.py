"""A humanoid that stands: linear-quadratic regulation around the pose in which it is at rest.

The model is linearised by central differences of what MuJoCo simulates in one control period, with
the motors' own stiffness and damping. What no sensor of such a robot measures (where its base is
and how fast it moves) follows from feet that stand still, and its heading is left alone.
"""

# The bindings of MuJoCo 4 carry no types.
# pyright: reportAttributeAccessIssue=false

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.core.robot import RobotSpec

Floats = NDArray[np.float64]

_STEP = 1e-6
"""Of the differences [m], [rad]; less than the depth to which feet press into the ground."""
_OVER_FEET, _OVER_FEET_SPEED = 3000.0, 30.0
"""Cost of the centre of mass beside the feet [1/m^2] and of its speed [s^2/m^2]."""
_BASE = (0.1, 0.1, 0.1, 10.0, 10.0, 10.0)
_JOINT, _JOINT_SPEED, _BASE_SPEED, _TARGET = 1.0, 0.02, 0.1, 60.0
_ITERATIONS, _SETTLED = 5000, 1e-7


class Balance:
    """Gains of a robot on two feet."""

    def __init__(self, model: mujoco.MjModel, robot: RobotSpec, *, steps: int) -> None:
        """Linearise and solve; takes a few seconds.

        Args:
            model: The robot on flat ground, its first joint free, one motor without a line of
                torque and speed per joint in the order of the spec.
            robot: Stiffness, damping and default pose.
            steps: Steps of the physics in a control period.
        """
        self._model, self._data = model, mujoco.MjData(model)
        self._robot, self._steps = robot, steps
        joints = robot.joints
        self._default = np.array([joint.default_position for joint in joints])
        self._stiffness = np.array([joint.stiffness for joint in joints])
        self._size = model.nv
        height, tilt, torque = self._rest()
        self._rest_pose = _pose(height, tilt, self._default)
        self.offset: Floats = self._default + torque / self._stiffness
        """Targets at rest [rad], (J,)."""
        state, control = self._linearised()
        gain = self._regulator(state, control) @ self._observed()
        count = len(joints)
        rotation, joint = slice(0, 3), slice(3, 3 + count)
        rates, speed = slice(3 + count, 6 + count), slice(6 + count, None)
        # Lean forward (pitch) is x of gravity in the base, to the left (-roll) its y.
        lean = np.stack([-gain[:, rotation][:, 1], gain[:, rotation][:, 0], 0 * gain[:, 0]])
        self.gains: dict[str, Floats] = {
            "projected_gravity_b": lean, "angular_velocity_b": -gain[:, rates].T,
            "joint_position": -gain[:, joint].T, "joint_velocity": -gain[:, speed].T,
        }  # fmt: skip
        """By field: change of each target per unit of each entry, (width, J)."""
        self.offset = self.offset + gain[:, joint] @ self._default + gain[:, rotation][:, 1] * tilt

    def _rest(self) -> tuple[float, float, Floats]:
        """Height and tilt at which the ground bears the default pose, and the joints' torques."""

        def residual(height: float, tilt: float) -> Floats:
            data = self._data
            mujoco.mj_resetData(self._model, data)
            data.qpos[: 7 + len(self._default)] = _pose(height, tilt, self._default)
            mujoco.mj_forward(self._model, data)
            data.qacc[:] = 0
            mujoco.mj_inverse(self._model, data)
            return data.qfrc_inverse.copy()

        low, high = 0.0, 2.0 * self._model.stat.extent
        for _ in range(60):  # the ground pushes the harder the lower it stands
            middle = (low + high) / 2
            low, high = (middle, high) if residual(middle, 0.0)[2] < 0 else (low, middle)
        height, tilt = high, 0.0
        for _ in range(20):  # Newton's method
            force = residual(height, tilt)[[2, 4]]
            change = np.stack([
                (residual(height + _STEP, tilt) - residual(height - _STEP, tilt))[[2, 4]],
                (residual(height, tilt + _STEP) - residual(height, tilt - _STEP))[[2, 4]],
            ], 1) / (2 * _STEP)  # fmt: skip
            height, tilt = np.array([height, tilt]) - np.linalg.solve(change, force)
        return height, tilt, residual(height, tilt)[6 : 6 + len(self._default)]

    def _simulated(self, change: Floats, target: Floats) -> Floats:
        """Result of one control period from a state beside that of rest, as such a difference."""
        model, data, size = self._model, self._data, self._size
        mujoco.mj_resetData(model, data)
        position = self._rest_pose.copy()
        mujoco.mj_integratePos(model, position, change[:size], 1.0)
        data.qpos[:], data.qvel[:] = position, change[size:]
        data.ctrl[:] = self._stiffness * target
        for _ in range(self._steps):
            mujoco.mj_step(model, data)
        after = np.zeros(2 * size)
        mujoco.mj_differentiatePos(model, after[:size], 1.0, self._rest_pose, data.qpos)
        after[size:] = data.qvel
        return after

    def _linearised(self) -> tuple[Floats, Floats]:
        still, columns = np.zeros(2 * self._size), []
        for entry, step in enumerate([_STEP] * self._size + [10 * _STEP] * self._size):
            change = still.copy()
            change[entry] = step
            forward, back = (self._simulated(s * change, self.offset) for s in (1, -1))
            columns.append((forward - back) / (2 * step))
        state, columns = np.stack(columns, 1), []
        for entry in range(len(self._default)):
            change = np.zeros(len(self._default))
            change[entry] = 10 * _STEP
            forward, back = (self._simulated(still, self.offset + s * change) for s in (1, -1))
            columns.append((forward - back) / (20 * _STEP))
        return state, np.stack(columns, 1)

    def _jacobians(self) -> tuple[Floats, Floats]:
        """Ways of the centre of mass and of the mean foot per change of the state, (3, V)."""
        model, data = self._model, self._data
        mujoco.mj_resetData(model, data)
        data.qpos[:] = self._rest_pose
        mujoco.mj_forward(model, data)
        centre, foot = np.zeros((3, self._size)), np.zeros((3, self._size))
        mujoco.mj_jacSubtreeCom(model, data, centre, int(model.body_rootid[1]))
        for name in self._robot.feet:
            one = np.zeros((3, self._size))
            mujoco.mj_jacSite(model, data, one, None, model.site(name).id)
            foot += one / len(self._robot.feet)
        return centre, foot

    def _regulator(self, state: Floats, control: Floats) -> Floats:
        """Gain (J, 2 V) by iterating the Riccati equation of discrete time."""
        centre, foot = self._jacobians()
        beside, size = (centre - foot)[:2], self._size
        count = len(self._default)
        cost = np.zeros((2 * size, 2 * size))
        cost[:size, :size] = _OVER_FEET * beside.T @ beside + np.diag([*_BASE, *[_JOINT] * count])
        cost[size:, size:] = _OVER_FEET_SPEED * beside.T @ beside
        cost[size:, size:] += np.diag([*[_BASE_SPEED] * 6, *[_JOINT_SPEED] * count])
        effort, value = _TARGET * np.eye(count), cost
        gain: Floats = np.zeros((count, 2 * size))
        for _ in range(_ITERATIONS):
            seen = control.T @ value
            gain = np.asarray(np.linalg.solve(effort + seen @ control, seen @ state), np.float64)
            newer = cost + state.T @ value @ (state - control @ gain)
            settled = abs(newer - value).max() < _SETTLED * abs(value).max()
            value = (newer + newer.T) / 2
            if settled:
                break
        return gain

    def _observed(self) -> Floats:
        """The state from rotation, joints and their rates, (2 V, 2 (3 + J)): feet stand still."""
        _, foot = self._jacobians()
        size, seen = self._size, self._size - 3
        base = -np.linalg.solve(foot[:, :3], foot[:, 3:])
        base[:, 2] = 0.0
        found = np.zeros((2 * size, 2 * seen))
        found[:3, :seen], found[3:size, :seen] = base, np.eye(seen)
        found[size : size + 3, seen:], found[size + 3 :, seen:] = base, np.eye(seen)
        found[5, 2] = 0.0  # the heading
        return found


def _pose(height: float, tilt: float, joints: Floats) -> Floats:
    return np.array([0, 0, height, np.cos(tilt / 2), 0, np.sin(tilt / 2), 0, *joints])
