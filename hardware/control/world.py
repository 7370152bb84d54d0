"""Episodes of a simulated robot's world, asked for by another process, and what became of them.

    learner --- episodes: number, seed ---> robot process --- world: goals, inputs, outcome ---> all

A robot that is put elsewhere while a policy commands it would be driven back by the command of
before. So the world stands still at its start until a command is followed that answers a
measurement of the new episode: a simulated episode begins with its first command.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from hardware.control.clock import Clock
from hardware.control.ipc import SharedMemoryReader, SharedMemoryWriter
from hardware.control.monitors import COMMANDED_STATES
from hardware.control.robot_loop import RobotLoop

OUTCOME = "outcome"
"""Field of the channel `world` with the world's own judgement of an episode, a `WorldOutcome`."""
GOAL, SENSED = "goal/", "sensed/"
"""Prefixes of the other fields: goals, and what is measured beside the robot's own state."""


class EpisodeResult(Protocol):
    """Result of a simulated episode so far, as a twin tells it."""

    steps: int
    total_return: float
    reward: float
    terminated: bool
    success: bool


class SimulatedWorld(Protocol):
    """World of a simulated robot: `sim.twin.Twin` is one."""

    frozen: bool
    """While true the world stands still."""

    @property
    def goal(self) -> Mapping[str, np.ndarray]:
        """Present goals, by name, each (1, width)."""
        ...

    @property
    def sensed(self) -> Mapping[str, np.ndarray]:
        """Measurements beside the robot's own state, by name, each (1, width)."""
        ...

    @property
    def outcome(self) -> Any:
        """Result of the episode so far: an `EpisodeResult`."""
        ...

    def begin(self, seed: int) -> None:
        """Begin an episode."""
        ...


@dataclass(frozen=True, kw_only=True)
class WorldOutcome:
    """The task's own judgement of the present episode of a simulated world."""

    begun: int = 0
    """Number of the request that began the episode; 0 where nobody asked for it."""
    since: float = -math.inf
    """When it began, clock of the loop [s]; what was measured later is of this episode."""
    steps: int = 0
    """Control steps of the task since the episode began."""
    total_return: float = 0.0
    """Sum of the task's rewards; stands still once the task has terminated."""
    reward: float = 0.0
    """Reward of the newest of these steps."""
    terminated: bool = False
    """The task ended the episode."""
    success: bool = False
    """The episode would count as a success if it ended now."""

    def to_row(self) -> np.ndarray:
        """Numbers for the channel `world`, (1, OUTCOME_WIDTH)."""
        return np.array([[float(value) for value in asdict(self).values()]])

    @classmethod
    def from_row(cls, row: np.ndarray) -> "WorldOutcome":
        """Outcome of such numbers."""
        begun, since, steps, total, reward, terminated, success = np.ravel(row).tolist()
        return cls(
            begun=int(begun), since=since, steps=int(steps), total_return=total, reward=reward,
            terminated=bool(terminated), success=bool(success),
        )  # fmt: skip


OUTCOME_WIDTH = 7
"""Numbers of a `WorldOutcome`."""


class EpisodeRequest(NamedTuple):
    """Request that a simulated world begins an episode."""

    number: int
    """Of the request; another one than the world's last is done, once."""
    seed: int
    """Of the episode's start."""


class EpisodePublisher(SharedMemoryWriter):
    """Asks a simulated world for episodes; numbers go on growing when its process comes again."""

    def __init__(self, name: str) -> None:
        super().__init__(name, 2)
        self._number = int(time.time())

    def begin(self, seed: int) -> int:
        """Ask for an episode; returns the request's number, which its outcome will name."""
        self._number += 1
        self.write([self._number, seed], 0.0)
        return self._number


class EpisodeSubscriber(SharedMemoryReader):
    """Receives these requests in the robot process."""

    def __init__(self, name: str) -> None:
        super().__init__(name, 2)

    def newest(self) -> EpisodeRequest | None:
        """The newest request; None before the first."""
        message = self.newest_message()
        return None if message is None else EpisodeRequest(*map(int, message.values.tolist()))


class WorldEpisodes:
    """Begins episodes of a simulated world as they are asked for, between the loop's ticks."""

    def __init__(self, world: SimulatedWorld, *, judged: bool = True) -> None:
        """Take over a world.

        Args:
            judged: Tell what the task thinks of the episode; False where nobody asks, as telling
                costs time in every tick.
        """
        self._world, self._judged = world, judged
        self._request = EpisodeRequest(0, 0)
        self._since = -math.inf
        self._loop: RobotLoop | None = None  # while the world waits for its first command

    def between_ticks(self, loop: RobotLoop, request: EpisodeRequest | None, clock: Clock) -> None:
        """Begin what is asked for anew, once.

        Args:
            loop: Its controllers and limits start at the new pose.
            request: The newest.
            clock: Of the loop.
        """
        if request is not None and request.number != self._request.number:
            self._world.begin(request.seed)
            self._request, self._since, self._loop = request, clock.now(), loop
            self._world.frozen = True
        if self._loop is not None:
            loop.restart()
            if loop.safety not in COMMANDED_STATES:
                self._go_on()

    def on_setpoint(self) -> None:
        """Let the world go on if the setpoint that is followed now answers its new episode."""
        if self._loop is not None and self._loop.answered > self._since:
            self._go_on()

    def fields(self) -> dict[str, np.ndarray]:
        """Goals, further inputs and outcome for the channel `world`, (1, width) each."""
        goals = {GOAL + name: value for name, value in self._world.goal.items()}
        sensed = {SENSED + name: value for name, value in self._world.sensed.items()}
        if not self._judged:
            return {**goals, **sensed}
        result: EpisodeResult = self._world.outcome
        outcome = WorldOutcome(
            begun=self._request.number, since=self._since, steps=result.steps,
            total_return=result.total_return, reward=result.reward,
            terminated=result.terminated, success=result.success,
        )  # fmt: skip
        return {**goals, **sensed, OUTCOME: outcome.to_row()}

    def _go_on(self) -> None:
        self._loop, self._world.frozen = None, False
