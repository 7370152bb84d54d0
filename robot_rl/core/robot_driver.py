"""The protocol that every robot, real or simulated, is driven by."""

from typing import Protocol, runtime_checkable

from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import RobotCommand
from robot_rl.core.robot_state import RobotState


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
