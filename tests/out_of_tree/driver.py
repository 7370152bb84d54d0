"""Driver of the arm with two joints as a package of its own brings it: ideal joints on a port."""

import math
from collections.abc import Mapping

import numpy as np

from hardware.control.clock import Clock
from robot_rl.core.errors import ConfigError, ShapeError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import JointCommand, RobotCommand

_LINK = 0.3
"""Length of each of the two links [m]."""
_INERTIA = 0.2
"""Of each joint [kg m^2]."""


class PortDriver:
    """A `StampedDriver`: two joints in MIT mode that know nothing of each other."""

    def __init__(self, spec: RobotSpec, clock: Clock, options: Mapping[str, str]) -> None:
        """Take the options of `driver_options=`.

        Raises:
            ConfigError: There is no port.
        """
        if "port" not in options:
            raise ConfigError("driver=my_arm_port needs its port: driver_options={port:<name>}")
        self.spec, self._clock = spec, clock
        self.stamp = -math.inf
        self._q = np.array([[joint.default_position for joint in spec.joints]])
        self._dq = np.zeros_like(self._q)
        self._limit = np.array([[joint.effort_limit for joint in spec.joints]])
        self._time = clock.now()
        self.stop()

    def connect(self) -> None:
        """Nothing waits behind this port."""

    def read(self) -> RobotState:
        """Joints, and the end effector by forward kinematics."""
        self._move()
        self.stamp = self._time
        first, both = self._q[:, 0], self._q.sum(axis=1)
        x, y = (_LINK * (f(first) + f(both)) for f in (np.cos, np.sin))
        return RobotState({
            "joint_position": self._q.copy(), "joint_velocity": self._dq.copy(),
            "end_effector_position_b": np.stack([x, y, np.zeros_like(x)], axis=-1),
        })  # fmt: skip

    def write(self, command: RobotCommand) -> RobotCommand:
        """Follow a joint command from now on."""
        if not isinstance(command, JointCommand):
            raise ShapeError(f"this arm takes JointCommand, got {type(command).__name__}")
        self._move()
        self._command = command
        return command

    def stop(self) -> None:
        """Damp the joints."""
        still = np.zeros_like(self._q)
        kd = np.full_like(still, 6.0)
        self._command = JointCommand(q=self._q, dq=still, tau=still, kp=still, kd=kd)

    def close(self) -> None:
        """Damp the joints."""
        self.stop()

    def _move(self) -> None:
        now, c = self._clock.now(), self._command
        while self._time < now:
            dt = min(0.001, now - self._time)
            law = c.kp * (c.q - self._q) + c.kd * (c.dq - self._dq) + c.tau
            self._dq = self._dq + dt * np.clip(law, -self._limit, self._limit) / _INERTIA
            self._q, self._time = self._q + dt * self._dq, self._time + dt
