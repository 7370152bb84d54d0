"""Access of a teleoperator to a robot's loop, by its channels or in the same process."""

from collections.abc import Callable
from typing import Protocol

from hardware.control.ipc import (
    ArraySubscriber,
    CommandLayout,
    CommandPublisher,
    HeartbeatPublisher,
    StatusSubscriber,
)
from hardware.control.monitors import StampedCommand
from hardware.control.process import RobotChannels
from hardware.control.request_socket import NoRobotError, send_request
from hardware.control.robot_loop import RobotLoop, RobotStatus
from hardware.control.safety import Condition
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind


class RobotPort(Protocol):
    """Access of a person's program to a robot, both ways. Nothing here waits."""

    def state(self) -> tuple[RobotState, float] | None:
        """Newest measured state and its stamp [s]; None before the first."""
        ...

    def status(self) -> RobotStatus | None:
        """Newest status of the loop; None without a loop."""
        ...

    def send(self, command: StampedCommand) -> None:
        """Leave a person's setpoint."""
        ...

    def heard(self, at: float) -> None:
        """Report when the person was heard last, clock of the loop [s]."""
        ...

    def ask(self, request: Condition) -> str:
        """Ask for something in the loop's next tick; returns why that was impossible, or empty."""
        ...

    def close(self) -> None:
        """Let go; allowed more than once."""
        ...


class ChannelPort:
    """A robot process on this computer. It may come later, go, and come again."""

    def __init__(
        self,
        spec: RobotSpec,
        channels: RobotChannels,
        kind: CommandKind,
        gain_sets: tuple[str, ...] = ("",),
    ) -> None:
        """Open the channels of a person, of whom a robot has one.

        Args:
            kind: Of a person's setpoints; the robot process must have the same `human_setpoint`.
            gain_sets: As of the robot process.

        Raises:
            ChannelBusyError: Another program lets a person command this robot.
        """
        self._operator = channels.operator
        self._commands = CommandPublisher(channels.human, CommandLayout(spec, kind, gain_sets))
        self._heartbeat = HeartbeatPublisher(channels.heartbeat)
        self._states = ArraySubscriber(channels.state, spec.state_widths)
        self._status = StatusSubscriber(channels.status)
        self._state: tuple[RobotState, float] | None = None

    def state(self) -> tuple[RobotState, float] | None:
        """Newest measured state and its stamp [s]."""
        if (found := self._states.newer()) is not None:
            self._state = RobotState(found[0]), found[1]
        return self._state

    def status(self) -> RobotStatus | None:
        """Newest status of the loop."""
        return self._status.newest()

    def send(self, command: StampedCommand) -> None:
        """Leave a setpoint in the channel."""
        self._commands.send(command)

    def heard(self, at: float) -> None:
        """Leave the heartbeat in its channel."""
        self._heartbeat.send(at)

    def ask(self, request: Condition) -> str:
        """Send a request to the robot process's socket."""
        try:
            send_request(self._operator, request)
        except NoRobotError as error:
            return str(error)
        return ""

    def close(self) -> None:
        """Remove the person's channels."""
        for channel in (self._commands, self._heartbeat, self._states, self._status):
            channel.close()


class LoopPort:
    """A loop in this process that ticks when its owner says so: a twin that need not wait."""

    def __init__(
        self,
        loop: RobotLoop,
        *,
        state: Callable[[], tuple[RobotState | None, float]],
        send: Callable[[StampedCommand], None],
    ) -> None:
        """Join the parts.

        Args:
            loop: Asked for things, and its status.
            state: Newest measured state of the loop and its stamp [s].
            send: Leaves a setpoint for the loop's source of `HUMAN` commands.
        """
        self._loop, self._state, self._send = loop, state, send

    def state(self) -> tuple[RobotState, float] | None:
        """Newest measured state and its stamp [s]."""
        state, stamp = self._state()
        return None if state is None else (state, stamp)

    def status(self) -> RobotStatus | None:
        """The loop after its last tick."""
        return self._loop.status

    def send(self, command: StampedCommand) -> None:
        """Leave a setpoint."""
        self._send(command)

    def heard(self, at: float) -> None:
        """Leave the heartbeat."""
        self._loop.requests.heartbeat = at

    def ask(self, request: Condition) -> str:
        """Ask for something in the loop's next tick."""
        self._loop.requests.ask(request)
        return ""

    def close(self) -> None:
        """Nothing is held."""
