"""One controller behind another: the outer one's command is the inner one's setpoint."""

from hardware.controllers.controller import Controller, kind_of
from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.robot_command import CommandKind, RobotCommand
from robot_rl.core.robot_state import RobotState


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
