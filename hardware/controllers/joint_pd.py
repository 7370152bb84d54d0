"""Torque of a motor in MIT mode, and commands for drivers that take torques.

    tau = Kp (q_d - q) + Kd (dq_d - dq) + tau_ff

tau [N m], q [rad], dq [rad/s], Kp [N m/rad], Kd [N m s/rad]; for a sliding joint [N], [m], [m/s].
Source: Katz, "A low cost modular actuator for dynamic robots", MIT 2018; motors behind Unitree's
`LowCmd` run the same law in firmware (unitree_sdk2).
"""

from collections.abc import Sequence

import numpy as np

from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import JointCommand


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
