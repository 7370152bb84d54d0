"""A robot that is not there: ideal joints or a flying point, with the bad habits of a real one."""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from hardware.control.timing.clock import Clock
from hardware.drivers.fake_bodies import Body, FlyingBody, JointBody
from robot_rl.core.errors import ConfigError, StaleStateError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind, RobotCommand
from robot_rl.core.robot_state import RobotState

_STEP = 1e-3
"""Longest step of the body [s]."""


@dataclass(kw_only=True)
class Habits:
    """What goes wrong; may be changed at any time."""

    delay: float = 0.0
    """Age of every sample when it arrives [s]."""
    noise: float = 0.0
    """Multiple of the noise that the spec's sensors declare."""
    dropout: float = 0.0
    """Share of samples that never arrive, in [0, 1]."""
    frozen: bool = False
    """No new sample arrives."""
    no_number: bool = False
    """The first field of every new sample is NaN."""
    read_error: str = ""
    """Reading raises this."""
    write_error: str = ""
    """Writing raises this."""


class FakeDriver:
    """A `StampedDriver` without a robot. The body moves when somebody reads or writes."""

    def __init__(
        self, spec: RobotSpec, clock: Clock, *, habits: Habits | None = None,
        max_age: float = 0.2, body: Body | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        """Make a robot.

        Args:
            spec: What it is; measured fields that its body does not have are zero.
            clock: Of the loop.
            habits: What goes wrong.
            max_age: Of the newest sample, beyond which reading raises [s].
            body: What moves; by the spec's command if None.
            seed: Of noise and dropout.
        """
        kinds = (CommandKind.joint, CommandKind.rotors, CommandKind.body_rates)
        if spec.command not in kinds:
            raise ConfigError(
                f"robot '{spec.name}' takes '{spec.command.value}' commands, which no fake body "
                f"follows; known: {', '.join(kind.value for kind in kinds)}"
            )
        self.spec = spec
        self.habits = habits or Habits()
        jointed = spec.command is CommandKind.joint
        self.body: Body = body or (JointBody(spec) if jointed else FlyingBody(spec))
        self.connected = False
        self._clock, self._max_age = clock, max_age
        self._rng = np.random.default_rng(seed)
        self._time = clock.now()
        self._underway: deque[tuple[float, RobotState]] = deque(maxlen=1000)
        self._newest: tuple[float, RobotState] | None = None

    @property
    def stamp(self) -> float:
        """Measurement time of what `read` gave last [s]."""
        return -math.inf if self._newest is None else self._newest[0]

    def connect(self) -> None:
        """Begin to measure; the first sample is of now."""
        self.connected = True
        self._newest = None
        self._underway.clear()
        self._underway.append((self._catch_up(), self._sample()))

    def read(self) -> RobotState:
        """Newest sample that has arrived."""
        if self.habits.read_error:
            raise OSError(self.habits.read_error)
        now = self._catch_up()
        lost = self.habits.frozen or self._rng.random() < self.habits.dropout
        if self.connected and not lost:
            self._underway.append((now, self._sample()))
        while self._underway and self._underway[0][0] + self.habits.delay <= now:
            self._newest = self._underway.popleft()
        age = now - self.stamp
        if not self.connected or self._newest is None or age > self._max_age:
            raise StaleStateError(
                f"a sample of robot '{self.spec.name}' was asked for; the newest is {age:.3f} s "
                f"old, at most {self._max_age} s are allowed; connect it, or look at its habits"
            )
        return self._newest[1]

    def write(self, command: RobotCommand) -> RobotCommand:
        """Follow a command from now on."""
        if self.habits.write_error:
            raise OSError(self.habits.write_error)
        self._catch_up()
        return self.body.accept(command)

    def stop(self) -> None:
        """Damping, or rotors off."""
        self._catch_up()
        self.body.relax()

    def close(self) -> None:
        """Stop, and measure no more."""
        self.stop()
        self.connected = False
        self._newest = None

    def _catch_up(self) -> float:
        """Move the body to now."""
        now = self._clock.now()
        steps = math.ceil((now - self._time) / _STEP - 1e-6)
        for _ in range(steps):
            self.body.step((now - self._time) / steps)
        self._time = now
        return now

    def _sample(self) -> RobotState:
        fields = self.body.fields()
        values: dict[str, np.ndarray] = {}
        for index, (name, width) in enumerate(self.spec.state_widths.items()):
            true = fields.get(name)
            if true is None:  # an attitude that nobody models is none
                true = np.eye(1, width) if width == 4 else np.zeros((1, width))
            noise = self.habits.noise * self.spec.sensors[name].noise
            values[name] = true + noise * self._rng.standard_normal((1, width))
            if self.habits.no_number and index == 0:
                values[name] = np.full((1, width), np.nan)
        return RobotState(values)
