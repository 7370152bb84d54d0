"""Position targets that move no faster than joints may, as behind the range limiter of a robot.

    target <- target + clip(goal - target, -v_max dt, v_max dt)      in every physics step dt

v_max [rad/s] is a joint's velocity limit. It is the rule that the loop of a robot takes from
ros2_control (`hardware/control/limiter.py`), where it ticks at the physics rate: a policy that asks
for more is trained with what that limiter leaves of it. Limits of position are the action map's.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from robot_rl.core.robot import RobotSpec
from robot_rl.core.rows import Rows
from sim.physics.engine import Engine


class TargetRamp:
    """The way of the targets of N worlds through the physics steps of a control period."""

    def __init__(self, robot: RobotSpec, engine: Engine) -> None:
        """Begin at zero; `begin` says where really.

        Args:
            robot: Joints with velocity limits; their actuators are the model's first.
            engine: Its controls are written.
        """
        count, joints, steps = engine.num_worlds, robot.num_joints, engine.decimation
        fastest = np.array([joint.velocity_limit for joint in robot.joints])
        self._fastest = fastest.clip(1e-6, 1e6)  # neither stuck nor without a limit divides well
        # Ways are counted in seconds at the joints' limits; steps lie outermost, worlds and joints
        # side by side: numpy is quick along long rows.
        self._passed = np.arange(1, steps + 1)[:, None] * (engine.control_dt / steps)  # [s]
        self._back = -self._passed
        self._target = np.zeros((count, joints))
        self._moved = np.zeros((steps, count * joints))
        control = engine.control.numpy()
        self._control, self._others = control[:, :joints], control[:, joints:]
        self._ramp = np.zeros((count, steps, control.shape[1]))

    def draw(
        self, goal: NDArray[np.float32], stiffness: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Move the targets for one control period.

        The engine's controls are those of the goals before, and those of the last step after.

        Args:
            goal: Asked positions, (N, J), [rad].
            stiffness: Gains that multiply positions in the controls, (N, J), [N m/rad].

        Returns:
            Controls of all steps, (N, steps, nu).
        """
        way = (goal - self._target) / self._fastest  # (N, J), [s]
        gain = stiffness * self._fastest
        moved = np.minimum(way.reshape(-1), self._passed, out=self._moved)
        np.maximum(moved, self._back, out=moved)
        self._target += moved[-1].reshape(way.shape) * self._fastest
        moved *= gain.reshape(-1)
        torque = moved.reshape(-1, *way.shape).swapaxes(0, 1)  # (N, steps, J)
        start = self._control - gain * way  # controls of the targets before
        joints = way.shape[1]
        np.add(start[:, None], torque, out=self._ramp[..., :joints])
        self._ramp[..., joints:] = self._others[:, None]
        self._control[:] = self._ramp[:, -1, :joints]
        return self._ramp

    def begin(self, rows: Rows, position: NDArray[np.float64]) -> None:
        """Let the targets of the picked worlds start from positions, (count, J), [rad]."""
        self._target[rows.ids] = position

    def state_dict(self) -> dict[str, Any]:
        """Where the targets are, copied."""
        return {"target": torch.tensor(self._target)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._target[:] = state["target"]
