"""Position targets that move no faster than joints may, as behind the range limiter of a robot.

    target <- target + clip(goal - target, -v_max dt, v_max dt)      in every physics step dt

v_max [rad/s] is a joint's velocity limit. It is the rule that the loop of a robot takes from
ros2_control (`hardware/control/limits.py`), where it ticks at the physics rate: a policy
that asks for more is trained with what that limiter leaves of it. Limits of position are the action
map's.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.robot import RobotSpec
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
        control = engine.control
        fastest = torch.tensor([joint.velocity_limit for joint in robot.joints]).to(control)
        self._fastest = fastest.clip(1e-6, 1e6)  # neither stuck nor without a limit divides well
        # Ways are counted in seconds at the joints' limits; steps lie outermost, worlds and joints
        # side by side: the processor is quick along long rows.
        self._passed = torch.arange(1, steps + 1).to(control)[:, None] * (engine.control_dt / steps)
        self._back = -self._passed  # [s], (steps, 1)
        self._target = torch.zeros_like(control[:, :joints])
        self._moved = control.new_zeros(steps, count * joints)
        self._control, self._others = control[:, :joints], control[:, None, joints:]
        self._ramp, self._other_ramps = engine.ramp[..., :joints], engine.ramp[..., joints:]

    def draw(self, goal: Tensor, stiffness: Tensor) -> None:
        """Move the targets for one control period: write the engine's `ramp`.

        The engine's controls are those of the goals before, and those of the last step after.

        Args:
            goal: Asked positions, (N, J), [rad].
            stiffness: Gains that multiply positions in the controls, (N, J), [N m/rad].
        """
        way = (goal - self._target).div_(self._fastest)  # (N, J), [s]
        gain = stiffness * self._fastest
        moved = torch.minimum(way.reshape(-1), self._passed, out=self._moved)
        torch.maximum(moved, self._back, out=moved)
        self._target.addcmul_(moved[-1].reshape(way.shape), self._fastest)
        moved *= gain.reshape(-1)
        torque = moved.reshape(-1, *way.shape).transpose(0, 1)  # (N, steps, J)
        start = self._control - gain.mul_(way)  # controls of the targets before
        torch.add(start[:, None], torque, out=self._ramp)
        self._other_ramps.copy_(self._others)
        self._control.copy_(self._ramp[:, -1])

    @property
    def target(self) -> Tensor:
        """Where the targets are, (N, J), [rad]."""
        return self._target

    def begin(self, rows: EnvSelection, position: Tensor) -> None:
        """Let the targets of the picked worlds start from positions, (count, J), [rad]."""
        rows.put(self._target, position)

    def state_dict(self) -> dict[str, Any]:
        """Where the targets are, copied."""
        return {"target": self._target.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._target.copy_(state["target"])
