"""The way of a setpoint to the motors: its limits, controller, blend, limits of the command."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hardware.control.blending import Blend
from hardware.control.clipping import Limiter
from hardware.controllers.controller import Controller, kind_of
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot_command import CommandKind, RobotCommand
from robot_rl.core.robot_state import RobotState


@dataclass(kw_only=True)
class Laws:
    """Which controller follows which setpoints."""

    controllers: Mapping[CommandKind, Controller] = field(default_factory=dict)
    """By the kind of setpoint; a kind that the driver takes needs none."""
    stop: Controller | None = None
    """Follows what stops the robot; None where the driver takes that itself."""
    limiters: Mapping[CommandKind, Limiter] = field(default_factory=dict)
    """Of setpoints before their controller: pose targets, joint targets of a torque law."""
    blend_time: float = 0.4
    """Time to hand over to a policy or a person [s]."""


class CommandPath:
    """Everything between a setpoint and the driver; remembers what was followed and sent last."""

    def __init__(
        self, laws: Laws, limiter: Limiter, accepted: CommandKind, stops: CommandKind
    ) -> None:
        """Join the parts.

        Args:
            laws: Controllers.
            limiter: Of what the driver gets.
            accepted: Kind of command that the driver takes.
            stops: Kind of setpoint that stops the robot.

        Raises:
            ConfigError: A controller takes or makes another kind than it stands for.
        """
        self._laws, self._limiter = laws, limiter
        self._accepted, self._stops = accepted, stops
        self._blend = Blend(laws.blend_time)
        self._active: Controller | None = None
        self.followed: RobotCommand | None = None
        """Setpoint followed last, within its limits."""
        self.sent: RobotCommand | None = None
        """Command let through last."""
        for kind, controller in laws.controllers.items():
            _check(controller, kind, accepted)
        if laws.stop is not None:
            _check(laws.stop, stops, accepted)
        elif stops is not accepted:
            raise ConfigError(
                f"this robot is stopped by '{stops.value}' setpoints, but its driver takes "
                f"'{accepted.value}' commands: name a controller from one to the other"
            )

    def start(self, state: RobotState) -> None:
        """Begin at the measured state: controllers, integrators and limiters forget the past."""
        self._limiter.start(state)
        for limiter in self._laws.limiters.values():
            limiter.start(state)
        self._active = None
        self.sent = None

    def switch(self, now: float) -> None:
        """Somebody new commands from now on."""
        self._blend.start(now, self.sent)
        self._active = None

    def follow(
        self, setpoint: RobotCommand, state: RobotState, now: float, dt: float, *, stops: bool
    ) -> tuple[bool, bool]:
        """One tick, from a setpoint to `sent`. Real-time: never blocks.

        Args:
            setpoint: What to follow.
            state: Newest good sample.
            now: Time of the tick [s].
            dt: Period [s].
            stops: Whether it comes from the stop and not from a policy or a person.

        Returns:
            Whether a limit changed something, and whether something was no number.
        """
        clamped = replaced = False
        kind = kind_of(setpoint)
        if kind in self._laws.limiters:
            setpoint, clamped, replaced = self._laws.limiters[kind].limit(setpoint, state, dt)
        controller = self._controller(kind, stops)
        command = setpoint
        if controller is not None:
            if controller is not self._active:
                controller.start(state, self.sent)
            command = controller.update(setpoint, state, dt)
        self._active = controller
        if not stops:
            command = self._blend.apply(now, command)
        limited = self._limiter.limit(command, state, dt)
        self.sent = limited.command
        self.followed = limited.command if controller is None else setpoint
        return clamped or limited.clamped, replaced or limited.replaced

    def _controller(self, kind: CommandKind, stops: bool) -> Controller | None:
        """A stop has its own; rotors that are off pass it by, a pose that is held does too."""
        if not stops:
            return self._laws.controllers.get(kind)
        if kind is self._stops:
            return self._laws.stop
        return None if kind is self._accepted else self._laws.controllers.get(kind)


def _check(controller: Controller, setpoint: CommandKind, command: CommandKind) -> None:
    if (controller.setpoint, controller.command) != (setpoint, command):
        raise SpecMismatchError(
            f"a controller from '{setpoint.value}' to '{command.value}' was asked for, got one "
            f"from '{controller.setpoint.value}' to '{controller.command.value}'"
        )
