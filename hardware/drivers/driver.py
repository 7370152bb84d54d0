"""What the control loop asks of a driver beyond the contract of `robot_rl.core.robot_driver`."""

from typing import Protocol, runtime_checkable

from robot_rl.core.robot_driver import RobotDriver


@runtime_checkable
class StampedDriver(RobotDriver, Protocol):
    """A driver that says when its newest sample was measured."""

    @property
    def stamp(self) -> float:
        """Measurement time of what `read` gave last, clock of the loop [s]; -inf before."""
        ...
