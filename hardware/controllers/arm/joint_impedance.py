"""Joint impedance control: springs and dampers at the joints of an arm that weighs nothing.

    tau = Kp (q_d - q) + Kd (dq_d - dq) + g(q) + c(q, dq) + tau_ff       clipped to +/- tau_max

tau [N m], q [rad], dq [rad/s], Kp [N m/rad], Kd [N m s/rad]; g holds the arm against gravity, c
makes up for Coriolis and centrifugal torques. An arm whose own controller compensates gravity
(Franka's, below every command) gets no g here.
Source: Albu-Schaeffer, Ott and Hirzinger, "A unified passivity-based control framework for
position, torque and impedance control of flexible joint robots", IJRR 2007 (here without the
joints' flexibility); joint_impedance_example_controller of franka_ros2.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from hardware.controllers.controller import expect
from hardware.controllers.joint_pd import not_negative, torque_command
from robot_rl.core.robot_command import CommandKind, JointCommand, RobotCommand
from robot_rl.core.robot_state import RobotState

FeedForward: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From positions [rad] and velocities [rad/s] of the joints, (J,) each, to torques, (J,), [N m]."""


class JointImpedance:
    """Joint springs and dampers on top of a rigid-body model's torques.

        chain = KinematicChain(...)
        JointImpedance(limits, lambda q, dq: chain.at(q).bias_torque(dq))

    The stiffness and damping are the setpoint's.
    """

    setpoint: CommandKind = CommandKind.joint
    command: CommandKind = CommandKind.joint

    def __init__(
        self,
        effort_limit: Sequence[float],
        feed_forward: FeedForward,
        *,
        in_firmware: bool = False,
    ) -> None:
        """Describe the arm.

        Args:
            effort_limit: Largest torque of each joint, (J,), [N m].
            feed_forward: g + c, or the part of them that the arm does not add by itself.
            in_firmware: Whether the driver's motors run springs and dampers; False makes torques.

        Raises:
            ConfigError: A limit is negative.
        """
        self._effort_limit = not_negative("effort_limit", effort_limit)
        self._feed_forward = feed_forward
        self._in_firmware = in_firmware

    def start(self, state: RobotState, last: RobotCommand | None) -> None:
        """Nothing: the law has no memory."""

    def update(self, setpoint: RobotCommand, state: RobotState, dt: float) -> JointCommand:
        """MIT-mode command or torques, (1, J) each."""
        wanted = expect(setpoint, JointCommand)
        q = np.asarray(state.joint_position[0], dtype=np.float64)
        dq = np.asarray(state.joint_velocity[0], dtype=np.float64)
        carried = replace(wanted, tau=wanted.tau + self._feed_forward(q, dq))
        if not self._in_firmware:
            return torque_command(carried, state, self._effort_limit)
        limit = self._effort_limit
        return replace(carried, tau=np.clip(carried.tau, -limit, limit))
