"""Joint PD control, the law of MIT-mode motors.

    tau = Kp (q_d - q) + Kd (dq_d - dq) + tau_ff        clipped to +/- tau_max

tau [N m], q [rad], dq [rad/s], Kp [N m/rad], Kd [N m s/rad]; for a sliding joint [N], [m], [m/s].
Source: Katz, "A low cost modular actuator for dynamic robots", MIT 2018; motors behind Unitree's
`LowCmd` run the same law in firmware (unitree_sdk2). With a target at rest the closed
loop is passive: the energy dq' M dq / 2 + (q_d - q)' Kp (q_d - q) / 2 falls by dq' Kd dq.

Joint impedance control: springs and dampers at the joints of an arm that weighs nothing.

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
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import CommandKind, JointCommand, RobotCommand


class JointPd:
    """Gains for a driver whose motors run the law, or the law itself for one that takes torques."""

    setpoint: CommandKind = CommandKind.joint
    command: CommandKind = CommandKind.joint

    def __init__(
        self,
        effort_limit: Sequence[float],
        *,
        stiffness: Sequence[float] | None = None,
        damping: Sequence[float] | None = None,
        in_firmware: bool = True,
    ) -> None:
        """Describe the motors.

        Args:
            effort_limit: Largest torque of each joint, (J,), [N m].
            stiffness: Gains that replace those of the setpoint, (J,), [N m/rad].
            damping: Likewise, (J,), [N m s/rad].
            in_firmware: Whether the driver's motors run the law; False makes torques.

        Raises:
            ConfigError: A number is negative.
        """
        self._effort_limit = not_negative("effort_limit", effort_limit)
        self._gains = {
            name: not_negative(name, gain)[None]
            for name, gain in (("kp", stiffness), ("kd", damping))
            if gain is not None
        }
        self._in_firmware = in_firmware

    def start(self, state: RobotState, last: RobotCommand | None) -> None:
        """Nothing: the law has no memory."""

    def update(self, setpoint: RobotCommand, state: RobotState, dt: float) -> JointCommand:
        """MIT-mode command, (1, J) each."""
        wanted = replace(expect(setpoint, JointCommand), **self._gains)
        limit = self._effort_limit
        if self._in_firmware:
            return replace(wanted, tau=np.clip(wanted.tau, -limit, limit))
        effort = np.clip(torque(wanted, state.joint_position, state.joint_velocity), -limit, limit)
        return pure_torque(effort, state, wanted.gripper)


def torque(command: JointCommand, q: np.ndarray, dq: np.ndarray) -> np.ndarray:
    """Torque of a motor in MIT mode, unclipped, (..., J), [N m].

    Args:
        command: Setpoints and gains, (..., J).
        q: Measured positions, (..., J), [rad].
        dq: Measured velocities, (..., J), [rad/s].
    """
    law = command.kp * (command.q - q) + command.kd * (command.dq - dq) + command.tau
    return np.asarray(law, dtype=np.float64)


def pure_torque(
    effort: np.ndarray, state: RobotState, gripper: np.ndarray | None = None
) -> JointCommand:
    """A command of torques alone, (1, J), [N m], for a driver that takes torques.

    Position and velocity are the measured ones, so that nothing pulls if a driver or a handover
    raises the gains.
    """
    none = np.zeros_like(effort)
    q = np.array(state.joint_position, dtype=np.float64)
    dq = np.array(state.joint_velocity, dtype=np.float64)
    return JointCommand(q=q, dq=dq, tau=effort, kp=none, kd=none.copy(), gripper=gripper)


def not_negative(name: str, values: Sequence[float]) -> np.ndarray:
    """Limits or gains as an array, (J,).

    Raises:
        ConfigError: One of them is negative or not a number.
    """
    array = np.array(values, dtype=np.float64)
    if not (array >= 0).all():
        raise ConfigError(f"{name} must be >= 0 for every joint, got {list(values)}")
    return array


FeedForward: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From positions [rad] and velocities [rad/s] of the joints, (J,) each, to torques, (J,), [N m]."""


class JointImpedance(JointPd):
    """Joint springs and dampers, the setpoint's, on top of a rigid-body model's torques."""

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
            feed_forward: g + c, or the part of them that the arm does not add by itself; of a
                `KinematicChain`: `lambda q, dq: chain.at(q).bias_torque(dq)`.
            in_firmware: Whether the driver's motors run springs and dampers; False makes torques.

        Raises:
            ConfigError: A limit is negative.
        """
        super().__init__(effort_limit, in_firmware=in_firmware)
        self._feed_forward = feed_forward

    def update(self, setpoint: RobotCommand, state: RobotState, dt: float) -> JointCommand:
        """MIT-mode command or torques, (1, J) each."""
        wanted = expect(setpoint, JointCommand)
        q = np.asarray(state.joint_position[0], dtype=np.float64)
        dq = np.asarray(state.joint_velocity[0], dtype=np.float64)
        carried = replace(wanted, tau=wanted.tau + self._feed_forward(q, dq))
        return super().update(carried, state, dt)
