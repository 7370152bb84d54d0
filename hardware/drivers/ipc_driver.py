"""A robot that another process talks to: samples and commands pass through two channels.

Whatever that process speaks (ROS 2, a vendor's SDK) can stall for seconds. The control loop never
waits for it: it reads the newest sample that lies there, and leaves its command.

    process --- measured ---> driver --- sent ---> process
"""

import math
from collections.abc import Callable

from hardware.control.clock import Clock
from hardware.control.ipc import (
    TEXT_WIDTH,
    ArraySubscriber,
    CommandLayout,
    CommandPublisher,
    unpacked_text,
)
from hardware.control.monitors import StampedCommand
from robot_rl.core.errors import StaleStateError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import RobotCommand
from robot_rl.core.robot_driver import safe_command

_POLL_SECONDS = 0.01
PUBLISHERS = "publishers"
"""Number of senders of commands to the robot, this side included: goes with every sample."""
DOUBLED = "doubled"
"""Text of `doubled` below: goes with every sample."""


def measured_widths(spec: RobotSpec) -> dict[str, int]:
    """Fields of a sample with widths."""
    return {**spec.state_widths, PUBLISHERS: 1, DOUBLED: TEXT_WIDTH}


class IpcDriver:
    """A `StampedDriver` on this side of the channels; the other process may come later."""

    def __init__(
        self, spec: RobotSpec, clock: Clock, *, measured: str, sent: str, max_age: float = 0.2,
        patience: float = 30.0, waiting: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Open the channels.

        Args:
            clock: Of the loop; the other process stamps samples in its time.
            max_age: Of the newest sample, beyond which reading raises [s].
            patience: How long `connect` waits for the first sample [s].
            waiting: Called meanwhile; raises to give up.

        Raises:
            ChannelBusyError: Another process drives this robot.
        """
        self.spec = spec
        self.stamp = -math.inf
        """Measurement time of what `read` gave last [s]."""
        self.publishers = 1
        """Number of senders of commands to the robot, this side included."""
        self.doubled = ""
        """Measurements that come from more than one sender, in words; empty where none do."""
        self._clock, self._max_age = clock, max_age
        self._patience, self._waiting = patience, waiting
        self._state: RobotState | None = None
        self._samples = ArraySubscriber(measured, measured_widths(spec))
        self._commands = CommandPublisher(sent, CommandLayout(spec, spec.command))
        self._safe = safe_command(spec)
        self._closed = False

    def connect(self) -> None:
        """Wait for the first sample.

        Raises:
            StaleStateError: None came in time.
        """
        end = self._clock.now() + self._patience
        while self._state is None:
            self._waiting()
            if self._clock.now() > end:
                raise StaleStateError(
                    f"waited {self._patience:g} s for a first sample of robot '{self.spec.name}'; "
                    "is its node running, with these topic names and this ROS_DOMAIN_ID?"
                )
            self._look()
            self._clock.sleep_until(self._clock.now() + _POLL_SECONDS)

    def read(self) -> RobotState:
        """Newest sample that has arrived."""
        self._look()
        age = self._clock.now() - self.stamp
        if self._state is None or age > self._max_age:
            raise StaleStateError(
                f"a sample of robot '{self.spec.name}' was asked for; the newest is {age:.3f} s "
                f"old, at most {self._max_age:g} s are allowed; look at the node that drives it"
            )
        return self._state

    def write(self, command: RobotCommand) -> RobotCommand:
        """Leave a command for the other process."""
        self._commands.send(StampedCommand(command=command, stamp=self._clock.now()))
        return command

    def stop(self) -> None:
        """Leave the safe command: joints damped, rotors still; the other process does the rest."""
        if not self._closed:
            self.write(self._safe)

    def close(self) -> None:
        """Stop and remove the channels; allowed more than once."""
        self.stop()
        self._closed = True
        self._commands.close()
        self._samples.close()

    def _look(self) -> None:
        found = self._samples.newer()
        if found is None:
            return
        values, stamp = found
        self._state = RobotState({name: values[name] for name in self.spec.state_widths})
        self.publishers, self.stamp = int(values[PUBLISHERS][0, 0]), stamp
        self.doubled = unpacked_text(values[DOUBLED])
