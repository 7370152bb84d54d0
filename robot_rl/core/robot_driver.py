"""Protocol by which every robot, real or simulated, is driven; command that holds it safe."""

from typing import Protocol, runtime_checkable

import numpy as np

from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import (
    BodyRateCommand,
    CommandKind,
    JointCommand,
    RobotCommand,
    RotorCommand,
)


@runtime_checkable
class RobotDriver(Protocol):
    """The one door to a robot, real or simulated."""

    @property
    def spec(self) -> RobotSpec:
        """The robot behind the door."""
        ...

    def connect(self) -> None:
        """Open the connection; may block. Raises when the robot is not the one of `spec`."""
        ...

    def read(self) -> RobotState:
        """Newest sample. Real-time: never blocks. Raises StaleStateError when none came in time."""
        ...

    def write(self, command: RobotCommand) -> RobotCommand:
        """Send a command; returns the command really sent after the robot's own limits.

        Real-time: never blocks.
        """
        ...

    def stop(self) -> None:
        """Bring the robot to its safe state. Allowed in any state, any number of times."""
        ...

    def close(self) -> None:
        """Stop and release the connection; allowed more than once."""
        ...


def safe_command(robot: RobotSpec) -> RobotCommand:
    """Joints that are damped and nothing else, or rotors that stand still, (1, ...).

    Raises:
        ConfigError: The robot takes another kind of command.
    """
    if robot.command is CommandKind.rotors:
        return RotorCommand(speed=np.zeros((1, len(robot.rotors))))
    if robot.command is CommandKind.body_rates:
        return BodyRateCommand(rates_b=np.zeros((1, 3)), thrust=np.zeros((1, 1)))
    if robot.command is CommandKind.joint:
        zero = np.zeros((1, robot.num_joints))
        damping = np.array([[joint.damping for joint in robot.joints]], float)
        return JointCommand(q=zero, dq=zero, tau=zero, kp=zero, kd=damping)
    known = ", ".join(k.value for k in (CommandKind.joint, CommandKind.rotors,
                                        CommandKind.body_rates))  # fmt: skip
    raise ConfigError(
        f"robot '{robot.name}' takes '{robot.command.value}' commands, for which there is no safe "
        f"one here; known: {known}"
    )
