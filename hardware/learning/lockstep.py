"""A robot's loop ticked by its environment on a logical clock: as fast as it can, bit for bit."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hardware.control.clock import LogicalClock
from hardware.control.limits import make_limiter
from hardware.control.monitors import SafetyLimits, SafetyMonitor, StampedCommand
from hardware.control.pipeline import ControllerSet
from hardware.control.robot_loop import RobotLoop, StampedDriver
from hardware.control.safety import Condition, SafetyState
from hardware.control.stopping import StopConfig, make_stopping
from hardware.control.world import (
    GOAL,
    SENSED,
    EpisodeRequest,
    SimulatedWorld,
    WorldEpisodes,
)
from hardware.learning.port import Readings, world_readings
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind, RobotCommand


class CommandSlot:
    """Newest command of a sender in this process: a `CommandSource`."""

    def __init__(self) -> None:
        self._command: StampedCommand | None = None

    def send(self, command: RobotCommand, stamp: float) -> None:
        """Leave a command that answers a measurement of that time [s]."""
        self.put(StampedCommand(command=command, stamp=stamp))

    def put(self, command: StampedCommand) -> None:
        """Leave a command."""
        self._command = command

    def newest(self) -> StampedCommand | None:
        """The newest command; None before the first."""
        return self._command


class LockstepPort:
    """A `RobotPort` with the robot's whole loop in it: monitors, limits, controllers, driver.

    Time passes in `wait_until` only. A simulated person sends to `human`, keeps
    `loop.requests.heartbeat` alive in `on_tick`, and asks by `request`.
    """

    def __init__(
        self, driver: StampedDriver, *, clock: LogicalClock, period: float, limits: SafetyLimits,
        setpoint: CommandKind | None = None, spec: RobotSpec | None = None,
        controllers: ControllerSet | None = None,
        stop: StopConfig | None = None, world: SimulatedWorld | None = None,
    ) -> None:  # fmt: skip
        """Join the parts and connect the driver; as of `RobotProcess`.

        Args:
            clock: Of driver and loop.
            limits: Thresholds, with times that fit the control period: `SafetyLimits.for_policy`.
            world: World of the driver, where it is a simulated one: often the driver itself.
        """
        self.spec = spec or driver.spec
        kind = setpoint or self.spec.command
        controllers = controllers or ControllerSet()
        self.policy, self.human = CommandSlot(), CommandSlot()
        self.on_tick: Callable[[], None] = lambda: None
        """Called before every tick."""
        self.clock, self._driver, self._period = clock, driver, period
        driver.connect()
        self._world = world
        self._episodes = None if world is None else WorldEpisodes(world)
        self._request = EpisodeRequest(0, 0)
        self._on_setpoint = controllers.on_setpoint
        controllers.on_setpoint = self._follow
        self._state: tuple[RobotState | None, float] = (None, -np.inf)
        self.loop = RobotLoop(
            driver, clock=clock, period=period, on_sample=self._keep,
            monitor=SafetyMonitor(self.spec, limits, period, kinds=[kind]),
            limiter=make_limiter(self.spec, limits.joints),
            stopping=make_stopping(self.spec, stop), controllers=controllers,
            sources={SafetyState.POLICY: self.policy, SafetyState.HUMAN: self.human},
        )  # fmt: skip
        self.world_widths: Mapping[str, int] = {} if world is None else {
            **{GOAL + name: value.shape[1] for name, value in world.goal.items()},
            **{SENSED + name: value.shape[1] for name, value in world.sensed.items()},
        }  # fmt: skip
        self._fields: Mapping[str, np.ndarray] = {}
        self._fields_stamp = -np.inf
        self._next = clock.now()

    def now(self) -> float:
        """Logical time [s]."""
        return self.clock.now()

    def read(self) -> Readings:
        """Newest of everything, as a robot process publishes it after a tick."""
        readings = Readings(
            now=self.clock.now(), state=self._state[0], state_stamp=self._state[1],
            executed=self.loop.executed, status=self.loop.status,
        )  # fmt: skip
        return world_readings(readings, self._fields, self._fields_stamp)

    def send(self, command: RobotCommand, stamp: float) -> None:
        """Command as the policy."""
        self.policy.send(command, stamp)

    def wait_until(self, time: float) -> None:
        """Tick as often as the loop would until then."""
        while self._next + self._period <= time + 0.5 * self._period:
            self._next += self._period
            self.clock.sleep_until(self._next)
            self.on_tick()
            self.loop.tick()
            self._between_ticks()

    def request(self, request: Condition) -> None:
        """Ask for something in the next tick."""
        self.loop.requests.ask(request)

    def begin_world(self, seed: int) -> int:
        """Let the world begin an episode between this tick and the next.

        Raises:
            ConfigError: The robot lives in no simulated world.
        """
        if self._episodes is None:
            raise ConfigError(
                f"robot '{self.spec.name}' was asked to begin an episode of its simulated world, "
                "but it has none; leave 'begin_world' out of the reset"
            )
        self._request = EpisodeRequest(self._request.number + 1, seed)
        return self._request.number

    def close(self) -> None:
        """Stop the robot; allowed more than once."""
        self._driver.close()

    def _between_ticks(self) -> None:
        if self._episodes is not None:
            request = self._request if self._request.number else None
            self._episodes.between_ticks(self.loop, request, self.clock)
            self._fields, self._fields_stamp = self._episodes.fields(), self._driver.stamp

    def _follow(self, setpoint: RobotCommand) -> None:
        if self._episodes is not None:
            self._episodes.on_setpoint()
        if self._on_setpoint is not None:
            self._on_setpoint(setpoint)

    def _keep(self, fields: Mapping[str, Any], stamp: float) -> None:
        self._state = RobotState(fields), stamp
