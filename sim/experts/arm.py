"""A scripted hand: an arm brings it to a pose step by step, as an action of the action map."""

import numpy as np
import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.action import ActionMap
from robot_rl.core.robot_command import JointCommand
from sim.physics.kinematics import ArmKinematics
from sim.robots.joint_simulation import MujocoSimulation

_ITERATIONS = 3
"""Of inverse kinematics per step; the pose of the last step is near."""
_JOINT_STEP = 0.2
"""Farthest that a joint's target is from the joint [rad]: below its speed limit at 25 Hz."""
_LAG = 0.08
"""Time by which every joint is made to lag behind its target [s]: motors are not damped alike, and
a hand whose joints lag differently swings and leaves its way."""
_SITE = "end_effector"


class ArmExpert:
    """Moves the hands of N worlds; reads their true state and changes nothing."""

    def __init__(
        self, simulation: MujocoSimulation, action_map: ActionMap, *, stride: float = 0.03
    ) -> None:
        """Read the worlds.

        Args:
            simulation: The worlds.
            action_map: Through whose inverse commands become actions.
            stride: Farthest that the hand's target is from the hand [m].
        """
        self._simulation, self._map, self._stride = simulation, action_map, stride
        arm = simulation.robot.num_joints
        own_lag = torch.tensor(action_map.damping) / torch.tensor(action_map.stiffness)
        self._lead = _LAG - own_lag
        middle = 0.5 * (np.array(action_map.low) + np.array(action_map.high))[:arm]
        self._kinematics = ArmKinematics(
            simulation.engine.model, simulation.layout, _SITE, rest=middle
        )

    def act(
        self, position: Tensor, yaw: Tensor | None = None, opening: Tensor | None = None
    ) -> Tensor:
        """Actions that go on towards poses of the hand, which points down, (N, A), in [-1, 1].

        Args:
            position: Of the end effector, (N, 3), [m], world.
            yaw: Turn of the hand about the vertical, (N,), [rad]; at 0 its fingers open along y.
                None lets the hand point and turn as it likes.
            opening: Of the gripper as a fraction, (N, 1); None where actions do not move it.
        """
        true_state = self._simulation.true_state
        way = position - true_state.end_effector_position_b
        length = way.norm(dim=-1, keepdim=True).clamp_min(1e-9)
        target = true_state.end_effector_position_b + way * (self._stride / length).clamp_max(1.0)
        down = None if yaw is None else _pointing_down(yaw)
        q = true_state.joint_position.double().numpy()
        place = target.double().numpy()
        solved = np.stack([
            self._kinematics.solve(q[i], place[i], None if down is None else down[i], _ITERATIONS)
            for i in range(len(q))
        ])  # fmt: skip
        change = torch.from_numpy(solved - q)
        change *= (_JOINT_STEP / change.abs().amax(-1, keepdim=True).clamp_min(1e-9)).clamp_max(1.0)
        goal = (torch.from_numpy(q) + change).float() - self._lead * true_state.joint_velocity
        still = torch.zeros_like(goal)
        command = JointCommand(q=goal, dq=still, tau=still, kp=still, kd=still, gripper=opening)
        return self._map.from_command(command).clamp(-1.0, 1.0)

    @property
    def heading(self) -> Tensor:
        """Turn of the hand about the vertical, (N,), [rad], as of `act`."""
        turn = quaternion.rotation_matrix(self._simulation.true_state.end_effector_orientation_b)
        return torch.atan2(turn[:, 3], turn[:, 0])  # its x axis, seen from above


def _pointing_down(yaw: Tensor) -> np.ndarray:
    """Orientations of hands that point down, (N, 4), wxyz."""
    down = torch.zeros(len(yaw), 4)
    down[:, 1], down[:, 2] = (0.5 * yaw).cos(), (0.5 * yaw).sin()
    return down.double().numpy()


def nearest_turn(angle: Tensor, period: float, near: Tensor) -> Tensor:
    """The angle, (N,), plus whole periods, that is nearest to another one, [rad]."""
    return near + torch.remainder(angle - near + 0.5 * period, period) - 0.5 * period
