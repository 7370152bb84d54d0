"""The way of a setpoint to the motors: its limits, controller, blend, limits of the command."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hardware.control.limits import JointLimiter, Limiter
from hardware.controllers.controller import Controller, kind_of
from hardware.controllers.handover import Handover
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import CommandKind, RobotCommand


@dataclass(kw_only=True)
class ControllerSet:
    """Controllers by the setpoints that they follow."""

    by_kind: Mapping[CommandKind, Controller] = field(default_factory=dict)
    """By the kind of setpoint; a kind that the driver takes needs none."""
    stop: Controller | None = None
    """Follows what stops the robot; None where the driver takes that itself."""
    limiters: Mapping[CommandKind, Limiter] = field(default_factory=dict)
    """Of setpoints before their controller: pose targets, joint targets of a torque law."""
    blend_time: float = 0.4
    """Time to hand over to a policy or a person [s]."""
    on_setpoint: Callable[[RobotCommand], None] | None = None
    """Is told every setpoint of a policy or a person before anything is done to it: a simulated
    robot, whose rewards look at what a policy asks for. Must not block."""


class CommandPipeline:
    """Everything between a setpoint and the driver; remembers what was followed and sent last."""

    def __init__(
        self,
        controllers: ControllerSet,
        limiter: Limiter,
        accepted: CommandKind,
        stops: CommandKind,
    ) -> None:
        """Join the parts.

        Args:
            accepted: Kind of command that the driver takes.
            stops: Kind of setpoint that stops the robot.

        Raises:
            ConfigError: Nothing leads from the stop's setpoints to the driver's commands.
            SpecMismatchError: A controller takes or makes another kind than it stands for.
        """
        self._controller_set, self._limiter = controllers, limiter
        self._accepted, self._stops = accepted, stops
        self._controllers: dict[CommandKind, Controller] = {accepted: PassThrough(accepted)}
        self._controllers |= controllers.by_kind
        self._handover: Handover | None = None  # while a policy or a person is followed
        self._active: Controller | None = None
        self._switched = False
        self._kind: CommandKind | None = None  # of the setpoint followed last
        self.followed: RobotCommand | None = None
        """Setpoint followed last, within its limits; of joints before its torque was bounded."""
        self.sent: RobotCommand | None = None
        """Command let through last."""
        for kind, controller in controllers.by_kind.items():
            _check(controller, kind, accepted)
        if controllers.stop is not None:
            _check(controllers.stop, stops, accepted)
        elif stops is not accepted:
            raise ConfigError(
                f"this robot is stopped by '{stops.value}' setpoints, but its driver takes "
                f"'{accepted.value}' commands: name a controller from one to the other"
            )

    def start(self, state: RobotState) -> None:
        """Begin at the measured state: controllers, integrators and limiters forget the past."""
        self._limiter.start(state)
        for limiter in self._controller_set.limiters.values():
            limiter.start(state)
        self._active = self._handover = self.sent = self._kind = None

    def switch(self) -> None:
        """Take commands of another sender from now on."""
        self._switched = True

    def follow(
        self, setpoint: RobotCommand, state: RobotState, dt: float, *, stops: bool, abrupt: bool
    ) -> tuple[bool, bool]:
        """One tick, from a setpoint to `sent`. Real-time: never blocks.

        Args:
            stops: Whether it comes from the stop and not from a policy or a person.
            abrupt: Whether torques and gains may leap, since the robot is stopped.

        Returns:
            Whether a limit changed something, and whether something was no number.
        """
        clamped = replaced = False
        kind = kind_of(setpoint)
        if self._controller_set.on_setpoint is not None and not stops:
            self._controller_set.on_setpoint(setpoint)
        limiter = self._controller_set.limiters.get(kind)
        if limiter is not None:
            if kind is not self._kind:  # its last target is from before the robot was elsewhere
                limiter.start(state)
            setpoint, clamped, replaced = limiter.limit(setpoint, state, dt, abrupt=abrupt)
        self._kind = kind
        if stops and kind in (self._stops, self._accepted):
            # Rotors that are off pass the stop's controller by, which might turn them for attitude.
            controller = self._controller_set.stop if kind is self._stops else None
            command = self._stop(controller, setpoint, state, dt)
        else:  # also a pose that is held: its controller goes on
            controller = self._controllers[kind]
            command = self._hand_over(controller, setpoint, state, dt)
        limited = self._limiter.limit(command, state, dt, abrupt=abrupt)
        self.sent = limited.command
        through = controller is None or isinstance(controller, PassThrough)
        if through:
            setpoint, limiter = limited.command, self._limiter
        self.followed = limiter.target if isinstance(limiter, JointLimiter) else setpoint
        gliding = None if through or self._handover is None else self._handover.followed
        if gliding is not None and gliding is not setpoint:
            self.followed = gliding  # on the way from another sender's setpoint
        return clamped or limited.clamped, replaced or limited.replaced

    def _stop(
        self, controller: Controller | None, setpoint: RobotCommand, state: RobotState, dt: float
    ) -> RobotCommand:
        """At once, without a passage."""
        if self._handover is not None or controller is not self._active:
            self._handover, self._active = None, controller
            if controller is not None:
                controller.start(state, self.sent)
        return setpoint if controller is None else controller.update(setpoint, state, dt)

    def _hand_over(
        self, controller: Controller, setpoint: RobotCommand, state: RobotState, dt: float
    ) -> RobotCommand:
        """Bumplessly from the command sent last, or from the controller that was active."""
        if self._handover is None:
            self._handover = Handover(controller, self._controller_set.blend_time)
            self._handover.start(state, self.sent)
        elif self._switched or controller is not self._active:
            self._handover.switch(controller, state)
        self._active, self._switched = controller, False
        return self._handover.update(setpoint, state, dt)


class PassThrough:
    """The controller of setpoints that the driver takes as they are."""

    def __init__(self, kind: CommandKind) -> None:
        self.setpoint = self.command = kind

    def start(self, state: RobotState, last: RobotCommand | None) -> None:
        """Nothing to remember."""

    def update(self, setpoint: RobotCommand, state: RobotState, dt: float) -> RobotCommand:
        """The setpoint."""
        return setpoint


def _check(controller: Controller, setpoint: CommandKind, command: CommandKind) -> None:
    if (controller.setpoint, controller.command) != (setpoint, command):
        raise SpecMismatchError(
            f"a controller from '{setpoint.value}' to '{command.value}' was asked for, got one "
            f"from '{controller.setpoint.value}' to '{controller.command.value}'"
        )
