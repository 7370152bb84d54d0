"""Contract of every control law: a setpoint and a state in, a command out."""

from dataclasses import fields
from typing import Protocol, TypeVar

import numpy as np

from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import COMMANDS, CommandKind, RobotCommand

Command = TypeVar("Command", bound=RobotCommand)

_KINDS = {made: kind for kind, made in COMMANDS.items()}


class Controller(Protocol):
    """From a setpoint and the measured state to a command that the driver accepts.

    One robot: arrays have N = 1 in front. What goes in is never changed, what comes out is new.
    From what is not a number comes a command that is none, and no memory of it stays.
    """

    setpoint: CommandKind
    """Kind of setpoint."""
    command: CommandKind
    """Kind of command."""

    def start(self, state: RobotState, last: RobotCommand | None) -> None:
        """Forget the past and begin bumplessly; comes before the first `update`.

        Args:
            last: The command sent last; None before the first.
        """
        ...

    def update(self, setpoint: RobotCommand, state: RobotState, dt: float) -> RobotCommand:
        """The command of this tick. Real-time: no blocking, no logging.

        Args:
            dt: Time since the update before [s].

        Raises:
            SpecMismatchError: The setpoint is of another kind.
        """
        ...


def kind_of(command: RobotCommand) -> CommandKind:
    """The kind of a command."""
    return _KINDS[type(command)]


def expect(setpoint: RobotCommand, wanted: type[Command]) -> Command:
    """The setpoint, when it is of the wanted class.

    Raises:
        SpecMismatchError: It is not.
    """
    if not isinstance(setpoint, wanted):
        raise SpecMismatchError(
            f"a controller of {wanted.__name__} setpoints got a {type(setpoint).__name__}; "
            "choose the controller whose `setpoint` is the kind that is sent"
        )
    return setpoint


def finite(*values: np.ndarray | RobotCommand) -> bool:
    """True if all entries of arrays and commands are numbers."""
    for value in values:
        arrays = [value] if isinstance(value, np.ndarray) else _entries(value)
        if not all(np.isfinite(array).all() for array in arrays):
            return False
    return True


def _entries(command: RobotCommand) -> list[np.ndarray]:
    entries = (getattr(command, entry.name) for entry in fields(command))
    return [entry for entry in entries if entry is not None]


class Cascade:
    """Two controllers at the same rate: `Cascade(PositionSe3(...), BodyRates(...))` flies to poses.

    Three or more are nested.
    """

    def __init__(self, outer: Controller, inner: Controller) -> None:
        """Join two controllers.

        Raises:
            SpecMismatchError: The inner one does not take what the outer one makes.
        """
        if outer.command is not inner.setpoint:
            raise SpecMismatchError(
                f"{type(outer).__name__} makes '{outer.command.value}' commands, but "
                f"{type(inner).__name__} takes '{inner.setpoint.value}'"
            )
        self.setpoint: CommandKind = outer.setpoint
        self.command: CommandKind = inner.command
        self._outer, self._inner = outer, inner

    def start(self, state: RobotState, last: RobotCommand | None) -> None:
        """Start both; the outer one sees the last command where it is of its kind."""
        seen = last if last is not None and kind_of(last) is self._outer.command else None
        self._outer.start(state, seen)
        self._inner.start(state, last)

    def update(self, setpoint: RobotCommand, state: RobotState, dt: float) -> RobotCommand:
        """The inner controller's command."""
        return self._inner.update(self._outer.update(setpoint, state, dt), state, dt)
