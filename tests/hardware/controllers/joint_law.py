"""A law of joints for what is tested with any controller: gains in the motors, or torques."""

from dataclasses import replace

import numpy as np

from hardware.controllers.controller import expect
from hardware.controllers.joint_pd import not_negative, pure_torque, torque
from robot_rl.core.robot_command import CommandKind, JointCommand


class JointLaw:
    """Springs and dampers of the setpoint, by the driver's motors or as torques."""

    setpoint: CommandKind = CommandKind.joint
    command: CommandKind = CommandKind.joint

    def __init__(self, effort_limit, *, in_firmware=True):
        self._limit, self._in_firmware = not_negative("effort_limit", effort_limit), in_firmware

    def start(self, state, last):
        pass

    def update(self, setpoint, state, dt):
        wanted = expect(setpoint, JointCommand)
        if self._in_firmware:
            return replace(wanted, tau=np.clip(wanted.tau, -self._limit, self._limit))
        effort = torque(wanted, state.joint_position, state.joint_velocity)
        return pure_torque(np.clip(effort, -self._limit, self._limit), state, wanted.gripper)
