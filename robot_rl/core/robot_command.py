"""Commands that robots accept, batch-first, and their kinds."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias, TypeVar

from robot_rl.core.env_selection import Array


class CommandKind(Enum):
    """The kinds of command that a robot can accept."""

    rotors = "rotors"
    body_rates = "body_rates"
    joint = "joint"
    pose = "pose"


@dataclass(frozen=True, kw_only=True)
class RotorCommand:
    """Rotor speed setpoints."""

    speed: Array
    """Fraction of the largest rotor speed, (N, R), in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class BodyRateCommand:
    """Body rates and collective thrust for an inner loop."""

    rates_b: Array
    """Angular velocity setpoint, (N, 3), [rad/s], body axes."""
    thrust: Array
    """Fraction of the largest collective thrust, (N, 1), in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class JointCommand:
    """MIT-mode joint command: tau = kp (q - measured) + kd (dq - measured) + tau."""

    q: Array
    """Position setpoint, (N, J), [rad]."""
    dq: Array
    """Velocity setpoint, (N, J), [rad/s]."""
    tau: Array
    """Feed-forward torque, (N, J), [N m]."""
    kp: Array
    """Stiffness, (N, J), [N m/rad]."""
    kd: Array
    """Damping, (N, J), [N m s/rad]."""
    gripper: Array | None = None
    """Opening as a fraction of the largest, (N, 1), in [0, 1]; None without a gripper."""


@dataclass(frozen=True, kw_only=True)
class PoseCommand:
    """End-effector pose setpoint in the world."""

    position_w: Array
    """(N, 3), [m]."""
    orientation_w: Array
    """Unit quaternion wxyz, (N, 4)."""
    gripper: Array | None = None
    """Opening as a fraction of the largest, (N, 1), in [0, 1]; None without a gripper."""


RobotCommand: TypeAlias = RotorCommand | BodyRateCommand | JointCommand | PoseCommand

COMMANDS: dict[CommandKind, type[RobotCommand]] = {
    CommandKind.rotors: RotorCommand,
    CommandKind.body_rates: BodyRateCommand,
    CommandKind.joint: JointCommand,
    CommandKind.pose: PoseCommand,
}
"""The class of every kind."""

Command = TypeVar("Command", bound=RobotCommand)


def opening_of(command: RobotCommand) -> Array | None:
    """Opening that a command asks of the gripper, (N, 1), in [0, 1]; None where it leaves it."""
    return getattr(command, "gripper", None)


def with_opening(command: Command, opening: Array | None) -> Command:
    """The command, where it leaves the gripper as it is, with the opening that was asked for last.

    Args:
        opening: (N, 1), in [0, 1]; None changes nothing.
    """
    leaves = hasattr(command, "gripper") and opening_of(command) is None
    return replace(command, gripper=opening) if leaves and opening is not None else command
