"""Inputs of a policy, gathered from topics: state, goals, further inputs, and their ages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hardware.ros.message_parts import Fields, to_nanoseconds
from hardware.ros.state_messages import StateTopic, state_topics
from robot_rl.core.errors import ShapeError, StaleStateError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec

GOAL_TYPE = ("std_msgs", "Float64MultiArray")
SENSED_TYPE = ("sensor_msgs", "JointState")
_LEAST_AGE = 0.1
"""No measurement counts as stale before this [s]."""
_PERIODS = 3.0


class Newest(Protocol):
    """A topic of which only the newest message counts."""

    def take(self) -> Any | None:
        """The newest message that came since the last call; None if none did."""
        ...


class Measurements(Protocol):
    """A topic of measurements."""

    def read(self, fields: Fields) -> int | None:
        """Put what came since the last call into fields.

        Returns:
            When it was measured [ns]; None if nothing came.

        Raises:
            SpecMismatchError: A message's names do not fit the robot.
        """
        ...


class Topics(Protocol):
    """Source of messages: a `RosSession`, or a recording."""

    def measured(self, topic: StateTopic, widths: Mapping[str, int]) -> Measurements:
        """Hear a topic of measurements; `widths` are those of all fields of the robot's state."""
        ...

    def listen(self, topic: str, package: str, kind: str, *, latched: bool = False) -> Newest:
        """Hear a topic, of a type such as `sensor_msgs`, `JointState`."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Source:
    topic: StateTopic
    measurements: Measurements
    rate_hz: float
    """Declared rate [Hz]."""

    @property
    def oldest_allowed(self) -> float:
        return max(_LEAST_AGE, _PERIODS / self.rate_hz)


class RobotInputs:
    """Subscribes to a robot's measurements, to goals and to further inputs.

    Goals come as `std_msgs/Float64MultiArray` on `goal/<name>` and stay until the next one, or are
    given once and for all. Further inputs come as `sensor_msgs/JointState` on `sensed/<name>`: the
    positions are the numbers, the stamp is the time of the measurement.
    """

    def __init__(
        self,
        topics: Topics,
        robot: RobotSpec,
        *,
        goal_widths: Mapping[str, int],
        sensed_widths: Mapping[str, int],
        goals: Mapping[str, np.ndarray] | None = None,
        oldest_sensed: float = 0.5,
    ) -> None:
        """Subscribe.

        Args:
            goals: Values that goals have until a message changes them, (1, width).
            oldest_sensed: Age at which a further input counts as stale [s].
        """
        widths = robot.state_widths
        self.state = {name: np.zeros((1, width)) for name, width in widths.items()}
        self.goal = {name: np.full((1, width), np.nan) for name, width in goal_widths.items()}
        self.sensed = {name: np.full((1, width), np.nan) for name, width in sensed_widths.items()}
        self._sources = [
            _Source(
                topic=topic,
                measurements=topics.measured(topic, widths),
                rate_hz=min(robot.sensors[field].rate_hz for field in topic.fields),
            )
            for topic in state_topics(robot)
        ]
        self._goals = {
            name: topics.listen(f"goal/{name}", *GOAL_TYPE, latched=True) for name in self.goal
        }
        self._sensed = {name: topics.listen(f"sensed/{name}", *SENSED_TYPE) for name in self.sensed}
        self._oldest_sensed = oldest_sensed
        self._stamps: dict[str, int] = {}
        self.sent_goals: set[str] = set()
        """Goals that somebody gave or sent."""
        for name, value in (goals or {}).items():
            if name in self.goal:
                self.sent_goals.add(name)
                _put(self.goal[name], value, f"goal '{name}'")

    @property
    def rates(self) -> dict[str, float]:
        """Topics of the robot's own measurements, and how often each comes [Hz]."""
        return {source.topic.name: source.rate_hz for source in self._sources}

    @property
    def stamp(self) -> int:
        """Measurement time of the first topic, joints or IMU [ns]; 0 before it ever came."""
        return self._stamps.get(self._sources[0].topic.name, 0)

    @property
    def stamps(self) -> dict[str, int]:
        """Measurement time of each topic that the state consists of [ns]."""
        return dict(self._stamps)

    def poll(self) -> None:
        """Take what has come since the last look; waits for nothing.

        Raises:
            SpecMismatchError: A message's names do not fit the robot.
            ShapeError: A goal or a further input has another width than the policy's.
        """
        for source in self._sources:
            stamp = source.measurements.read(self.state)
            if stamp is not None:
                self._stamps[source.topic.name] = stamp
        for name, newest in self._goals.items():
            found = newest.take()
            if found is not None:
                self.sent_goals.add(name)
                _put(self.goal[name], found.data, f"goal '{name}'")
        for name, newest in self._sensed.items():
            found = newest.take()
            if found is not None:
                _put(self.sensed[name], found.position, f"sensed input '{name}'")
                self._stamps[f"sensed/{name}"] = to_nanoseconds(found.header.stamp)

    def missing(self) -> list[str]:
        """Topics that nothing has come from yet."""
        topics = [source.topic.name for source in self._sources]
        topics += [f"sensed/{name}" for name in self.sensed]
        silent = [topic for topic in topics if topic not in self._stamps]
        return silent + [f"goal/{n}" for n, value in self.goal.items() if np.isnan(value).any()]

    def stale(self, now: int) -> dict[str, float]:
        """Topics whose newest measurement is too old at a time [ns], with its age [s]."""
        oldest = {source.topic.name: source.oldest_allowed for source in self._sources}
        oldest |= {f"sensed/{name}": self._oldest_sensed for name in self.sensed}
        known = {topic: self._stamps[topic] for topic in oldest if topic in self._stamps}
        ages = {topic: (now - stamp) * 1e-9 for topic, stamp in known.items()}
        return {topic: age for topic, age in ages.items() if age > oldest[topic]}

    def robot_state(self, now: int) -> RobotState:
        """The robot's state as the policy takes it, float32.

        Args:
            now: Time [ns].

        Raises:
            StaleStateError: Something never came or is too old; names every such topic.
        """
        if silent := self.missing():
            raise StaleStateError(f"nothing has come yet on {', '.join(silent)}")
        if late := self.stale(now):
            told = ", ".join(f"{topic} ({age:.3f} s)" for topic, age in late.items())
            raise StaleStateError(f"measurements are too old: {told}; is the robot's driver alive?")
        return RobotState({name: value.astype(np.float32) for name, value in self.state.items()})


def _put(into: np.ndarray, values: object, what: str) -> None:
    row = np.asarray(values, dtype=np.float64).ravel()
    if row.shape[0] != into.shape[1]:
        raise ShapeError(f"{what} has {row.shape[0]} numbers, the policy takes {into.shape[1]}")
    into[0] = row
