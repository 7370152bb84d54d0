"""What a robot is told when nobody commands it."""

import numpy as np

from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import (
    BodyRateCommand,
    CommandKind,
    JointCommand,
    RobotCommand,
    RotorCommand,
)


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
