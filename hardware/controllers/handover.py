"""Bumpless handover: from one controller to the next, or from a command that is held.

    u = (1 - w) u_old + w u_new,      w = 10 s^3 - 15 s^4 + 6 s^5,  s = t / T in [0, 1]

w (minimum jerk: Flash and Hogan, "The coordination of arm movements", 1985) begins and ends without
speed and acceleration. Three rules keep the passage as safe as its ends:

- The old controller goes on running with the setpoint that it followed last: an old command that
  is only held would fly a multirotor open loop. Where three meet, the first two's command is held.
- Joint commands are mixed by their effect. Mixing gains and positions entry by entry makes torques
  that neither side asked for; here every torque lies between those of the two, in every state.
- To the same controller, only the setpoint passes over; its integrators and attractors stay.
"""

from dataclasses import fields, replace

import numpy as np

from hardware.controllers import rotations
from hardware.controllers.controller import Command, Controller, finite, kind_of
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import CommandKind, JointCommand, PoseCommand, RobotCommand


class Handover:
    """A controller that others can take the place of while it runs.

    Starting it with a command of its kind hands over from that command.
    """

    def __init__(self, controller: Controller, duration: float = 0.4) -> None:
        """Begin with a controller.

        Args:
            duration: T, time of a passage [s]; 0 for leaps.

        Raises:
            ConfigError: The duration is negative or no number.
        """
        if not 0 <= duration < np.inf:
            raise ConfigError(f"a handover's duration must be a finite time >= 0, got {duration}")
        self.setpoint: CommandKind = controller.setpoint
        self.command: CommandKind = controller.command
        self._controller = controller
        self._passage, self._glide = Passage(duration), Passage(duration)
        self._held: RobotCommand | None = None  # made by those who left before the live one
        self._live: tuple[Controller, RobotCommand] | None = None  # leaving, with its setpoint
        self._live_share = 1.0  # of the two above
        self._rest: RobotCommand | None = None  # what the leaving made together at the last tick
        self._left: RobotCommand | None = None  # setpoint that is being left
        self._followed: RobotCommand | None = None  # setpoint of the last tick
        self._sent: RobotCommand | None = None  # command of the last tick

    @property
    def weight(self) -> float:
        """The present controller's part of the command, in [0, 1]."""
        return self._passage.weight

    @property
    def followed(self) -> RobotCommand | None:
        """Setpoint of the last tick as the present controller got it; None before the first."""
        return self._followed

    def start(self, state: RobotState, last: RobotCommand | None) -> None:
        """Begin with the present controller, from the command sent last if it is of this kind."""
        self._controller.start(state, last)
        self._live = self._left = self._followed = self._rest = None
        self._held = self._sent = last if _is(last, self.command) else None
        self._glide.skip()
        if self._held is None:
            self._passage.skip()
        else:
            self._passage.begin()

    def switch(self, controller: Controller, state: RobotState) -> None:
        """Let another controller take over, or new setpoints of the same one. Real-time.

        Raises:
            SpecMismatchError: It makes another kind of command.
        """
        if controller.command is not self.command:
            raise SpecMismatchError(
                f"a handover of '{self.command.value}' commands got a {type(controller).__name__}, "
                f"which makes '{controller.command.value}' commands"
            )
        if controller is self._controller:
            self._left = self._followed
            self._glide.begin()
            return
        self._live = (self._controller, self._followed) if self._followed else None
        self._live_share = self.weight
        self._held = self._rest if self._live else self._sent
        self._left = self._followed = None
        self._glide.skip()
        self._passage.begin()
        controller.start(state, self._sent)
        self._controller, self.setpoint = controller, controller.setpoint

    def update(self, setpoint: RobotCommand, state: RobotState, dt: float) -> RobotCommand:
        """The command of this tick; costs that of two controllers during a passage. Real-time."""
        gliding = self._glide.tick(dt)
        if self._left is not None and gliding < 1:
            setpoint = blend(self._left, setpoint, gliding)
        command = self._controller.update(setpoint, state, dt)
        weight = self._passage.tick(dt)
        rest = self._leaving(state, dt) if weight < 1 else None
        if rest is not None:
            command = blend(rest, command, weight)
        if finite(command):
            self._followed, self._rest, self._sent = setpoint, rest, command
        return command

    def _leaving(self, state: RobotState, dt: float) -> RobotCommand | None:
        """Command of those who leave; None where there are none."""
        if self._live is None:
            return self._held
        controller, setpoint = self._live
        command = controller.update(setpoint, state, dt)
        return command if self._held is None else blend(self._held, command, self._live_share)


class Passage:
    """A weight that goes from 0 to 1 in a time, counted in seconds and not in ticks."""

    def __init__(self, duration: float) -> None:
        self._duration = duration
        self._elapsed: float = duration
        self._begun = True
        self.weight = 1.0
        """In [0, 1]."""

    def begin(self) -> None:
        """The next tick is the first: its weight is 0."""
        self._begun, self.weight = False, 0.0

    def skip(self) -> None:
        """Be at the end."""
        self._begun, self._elapsed, self.weight = True, self._duration, 1.0

    def tick(self, dt: float) -> float:
        """The weight `dt` seconds after the tick before."""
        self._elapsed = self._elapsed + dt if self._begun else 0.0
        self._begun = True
        done = self._elapsed >= self._duration
        self.weight = 1.0 if done else min_jerk(self._elapsed / self._duration)
        return self.weight


def min_jerk(share: float) -> float:
    """Minimum-jerk way from 0 to 1 at a share of its time in [0, 1]."""
    return share * share * share * (10 + share * (6 * share - 15))


def blend(old: Command, new: Command, weight: float) -> Command:
    """A command between two of one kind.

    Args:
        new: The command at weight 1; what the old one lacks, such as a gripper, is its.

    Raises:
        SpecMismatchError: They are of different kinds.
    """
    if type(old) is not type(new):
        raise SpecMismatchError(
            f"there is nothing between a {type(old).__name__} and a {type(new).__name__}"
        )
    mixed = {}
    for entry in fields(new):
        before, after = getattr(old, entry.name), getattr(new, entry.name)
        if before is not None and after is not None:
            mixed[entry.name] = np.asarray(before + weight * (after - before), np.float64)
    if isinstance(old, PoseCommand) and isinstance(new, PoseCommand):
        a, b = rotations.quaternion(old.orientation_w), rotations.quaternion(new.orientation_w)
        mixed["orientation_w"] = np.array([rotations.slerp(a, b, weight)])
    elif isinstance(old, JointCommand) and isinstance(new, JointCommand):
        for target, gain in (("q", "kp"), ("dq", "kd")):
            mixed[target] = _by_effect(old, new, weight, target, gain, mixed)
    return replace(new, **mixed)


def _by_effect(
    old: JointCommand,
    new: JointCommand,
    weight: float,
    target: str,
    gain: str,
    mixed: dict[str, np.ndarray],
) -> np.ndarray:
    """Positions (velocities) that, with the mixed gains, pull as the mixture of both commands."""
    pull = (1 - weight) * getattr(old, gain) * getattr(old, target)
    pull = pull + weight * getattr(new, gain) * getattr(new, target)
    stiff = mixed[gain] > 0  # without gains on either side nothing pulls anywhere
    return np.where(stiff, pull / np.where(stiff, mixed[gain], 1.0), mixed[target])


def _is(command: RobotCommand | None, kind: CommandKind) -> bool:
    return command is not None and kind_of(command) is kind
