"""Access of a learning environment to a robot: everything known of it, and ways to ask for things.

`ChannelPort` talks to a running robot process through shared memory, in real time. `LockstepPort`
(hardware/learning/lockstep.py) ticks a loop of its own on a logical clock. An environment cannot
tell them apart, except by their speed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from hardware.control.clock import MonotonicClock
from hardware.control.ipc import (
    ArraySubscriber,
    CommandLayout,
    CommandPublisher,
    ExecutedSubscriber,
    StatusSubscriber,
)
from hardware.control.monitors import StampedCommand
from hardware.control.process import RobotChannels
from hardware.control.request_socket import NoRobotError, send_request
from hardware.control.robot_loop import Executed, RobotStatus
from hardware.control.safety import Condition
from hardware.control.world import GOAL, OUTCOME, SENSED, EpisodePublisher, WorldOutcome
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind, RobotCommand


@dataclass(frozen=True, kw_only=True)
class Readings:
    """Newest of everything that is known of a robot at a moment."""

    now: float
    """Moment of the reading, clock of the loop [s]."""
    state: RobotState | None = None
    """Measured state, fields (1, width), float64; None before the first sample."""
    state_stamp: float = -math.inf
    """When it was measured [s]."""
    goal: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Goals by name, (1, width)."""
    sensed: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Further inputs by name, (1, width)."""
    sensed_stamps: Mapping[str, float] = field(default_factory=dict)
    """When each of them was measured [s]."""
    outcome: WorldOutcome | None = None
    """Judgement of a simulated world; None where there is none."""
    executed: Executed | None = None
    """Setpoint and counts of the loop's newest tick; None while no loop runs."""
    status: RobotStatus | None = None
    """Status of the loop; None while none runs."""


class RobotPort(Protocol):
    """Access to one robot."""

    @property
    def spec(self) -> RobotSpec:
        """The robot."""
        ...

    @property
    def world_widths(self) -> Mapping[str, int]:
        """Goals (`goal/<name>`) and further inputs (`sensed/<name>`) with their widths."""
        ...

    def now(self) -> float:
        """Clock of the loop [s]."""
        ...

    def read(self) -> Readings:
        """Newest of everything. Never waits."""
        ...

    def send(self, command: RobotCommand, stamp: float) -> None:
        """Send a policy's command that answers a measurement of that time [s]. Never waits."""
        ...

    def wait_until(self, time: float) -> None:
        """Let time pass until a moment of the loop's clock [s]."""
        ...

    def request(self, request: Condition) -> None:
        """Ask the loop for something, as a person would. Never waits."""
        ...

    def begin_world(self, seed: int) -> int:
        """Ask a simulated world for an episode; returns the number that its outcome will name."""
        ...

    def close(self) -> None:
        """Let go of the robot; allowed more than once."""
        ...


class ChannelPort:
    """Access to the robot process of this name, which may come later, die and come again."""

    def __init__(
        self, name: str, spec: RobotSpec, *, setpoint: CommandKind,
        world_widths: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        """Open the channels.

        Args:
            name: As of `RobotChannels`.
            spec: The robot as its process describes it.
            setpoint: Kind of command that policies send.
            world_widths: As of the robot process: other widths are not read.

        Raises:
            ChannelBusyError: Another policy commands this robot.
        """
        channels = RobotChannels(name)
        self.spec = spec
        self.world_widths = dict(world_widths or {})
        self._channels = channels
        layout = CommandLayout(spec, setpoint)
        self._policy = CommandPublisher(channels.policy, layout)
        self._episodes = EpisodePublisher(channels.episodes)
        self._states = ArraySubscriber(channels.state, spec.state_widths)
        self._world = ArraySubscriber(channels.world, self.world_widths)
        self._executed = ExecutedSubscriber(channels.executed, layout)
        self._status = StatusSubscriber(channels.status)
        self._clock = MonotonicClock()
        self._state: tuple[RobotState | None, float] = (None, -math.inf)
        self._seen: tuple[Mapping[str, np.ndarray], float] = ({}, -math.inf)

    def now(self) -> float:
        """Monotonic clock of this computer, which the loop's is too [s]."""
        return self._clock.now()

    def read(self) -> Readings:
        """Newest of everything. Never waits."""
        if (newer := self._states.newer()) is not None:
            self._state = RobotState(newer[0]), newer[1]
        if (newer := self._world.newer()) is not None:
            self._seen = newer
        executed, status = self._executed.newest(), self._status.newest()
        return world_readings(
            Readings(
                now=self._clock.now(), state=self._state[0], state_stamp=self._state[1],
                executed=executed, status=status,
            ),
            *self._seen,
        )  # fmt: skip

    def send(self, command: RobotCommand, stamp: float) -> None:
        """Leave a command in the channel `policy`."""
        self._policy.send(StampedCommand(command=command, stamp=stamp))

    def wait_until(self, time: float) -> None:
        """Sleep."""
        self._clock.sleep_until(time)

    def request(self, request: Condition) -> None:
        """Ask through the socket `operator`; a robot process that is not there hears nothing."""
        try:
            send_request(self._channels.operator, request)
        except NoRobotError:
            return  # whoever asks sees by the readings that no loop runs

    def begin_world(self, seed: int) -> int:
        """Ask in the channel `episodes`."""
        return self._episodes.begin(seed)

    def close(self) -> None:
        """Remove the channels that are written here; allowed more than once."""
        for channel in (self._policy, self._episodes, self._states, self._world, self._executed,
                        self._status):  # fmt: skip
            channel.close()


def world_readings(readings: Readings, fields: Mapping[str, np.ndarray], stamp: float) -> Readings:
    """The readings with what a world tells, by the names of the channel `world`.

    Args:
        fields: Of the channel, (1, width) each; empty before the first.
        stamp: Their time [s].
    """
    outcome = fields.get(OUTCOME)
    goal = {n.removeprefix(GOAL): v for n, v in fields.items() if n.startswith(GOAL)}
    sensed = {n.removeprefix(SENSED): v for n, v in fields.items() if n.startswith(SENSED)}
    return Readings(
        now=readings.now, state=readings.state, state_stamp=readings.state_stamp,
        executed=readings.executed, status=readings.status, goal=goal, sensed=sensed,
        sensed_stamps=dict.fromkeys(sensed, stamp),
        outcome=None if outcome is None else WorldOutcome.from_row(outcome),
    )  # fmt: skip
