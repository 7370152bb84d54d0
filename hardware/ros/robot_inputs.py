"""Inputs of a policy, gathered from topics: state, goals, further inputs, and their ages."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

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
_PERIODS, _OLDEST_SENSED = 3.0, 0.5
"""Age of a measurement [periods] and of a further input [s] from which on it is stale."""


class Newest(Protocol):
    """A topic of which only the newest message counts."""

    def take(self) -> Any | None:
        """The newest message that came since the last call; None if none did."""
        ...


ReadMeasurements: TypeAlias = Callable[[Fields], int | None]
"""Puts what came since the last call into fields; returns when it was measured [ns], None if
nothing came; raises SpecMismatchError where a message's names do not fit the robot."""


class Topics(Protocol):
    """Source of messages: a `RosSession`, or a recording."""

    def measured(self, topic: StateTopic, widths: Mapping[str, int]) -> ReadMeasurements:
        """Hear a topic of measurements; `widths` are those of all fields of the robot's state."""
        ...

    def listen(self, topic: str, package: str, kind: str, *, latched: bool = False) -> Newest:
        """Hear a topic, of a type such as `sensor_msgs`, `JointState`."""
        ...


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
        names: Mapping[str, str] | None = None,
    ) -> None:
        """Subscribe.

        Args:
            goals: Values that goals have until a message changes them, (1, width).
            names: Topics of measurements that somebody else gives other names -> theirs.
        """
        widths = robot.state_widths
        self.state = {name: np.zeros((1, width)) for name, width in widths.items()}
        self.goal = {name: np.full((1, width), np.nan) for name, width in goal_widths.items()}
        self.sensed = {name: np.full((1, width), np.nan) for name, width in sensed_widths.items()}
        measured, theirs = state_topics(robot), names or {}
        self.rates = {
            one.name: min(robot.sensors[f].rate_hz for f in one.fields) for one in measured
        }
        """Topics of the robot's own measurements, and how often each comes [Hz]."""
        self._read = {
            one.name: topics.measured(replace(one, name=theirs.get(one.name, one.name)), widths)
            for one in measured
        }
        self._goals = {
            name: topics.listen(f"goal/{name}", *GOAL_TYPE, latched=True) for name in self.goal
        }
        self._sensed = {name: topics.listen(f"sensed/{name}", *SENSED_TYPE) for name in self.sensed}
        self._stamps: dict[str, int] = {}
        self.sent_goals: set[str] = set()
        """Goals that somebody gave or sent."""
        for name, value in (goals or {}).items():
            if name in self.goal:
                self.sent_goals.add(name)
                put_row(self.goal[name], value, f"goal '{name}'")

    @property
    def stamp(self) -> int:
        """Measurement time of the first topic, joints or IMU [ns]; 0 before it ever came."""
        return self._stamps.get(next(iter(self._read)), 0)

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
        for topic, read in self._read.items():
            stamp = read(self.state)
            if stamp is not None:
                self._stamps[topic] = stamp
        for name, newest in self._goals.items():
            found = newest.take()
            if found is not None:
                self.sent_goals.add(name)
                put_row(self.goal[name], found.data, f"goal '{name}'")
        for name, newest in self._sensed.items():
            found = newest.take()
            if found is not None:
                put_row(self.sensed[name], found.position, f"sensed input '{name}'")
                self._stamps[f"sensed/{name}"] = to_nanoseconds(found.header.stamp)

    def robot_state(self, now: int) -> RobotState:
        """The robot's state as the policy takes it, float32.

        Args:
            now: Time [ns].

        Raises:
            StaleStateError: Something never came or is too old; names every such topic.
        """
        oldest = {name: max(_LEAST_AGE, _PERIODS / rate) for name, rate in self.rates.items()}
        oldest |= {f"sensed/{name}": _OLDEST_SENSED for name in self.sensed}
        silent = [topic for topic in oldest if topic not in self._stamps]
        silent += [f"goal/{n}" for n, value in self.goal.items() if np.isnan(value).any()]
        if silent:
            raise StaleStateError(f"nothing has come yet on {', '.join(silent)}")
        ages = {topic: (now - self._stamps[topic]) * 1e-9 for topic in oldest}
        if late := {topic: age for topic, age in ages.items() if age > oldest[topic]}:
            told = ", ".join(f"{topic} ({age:.3f} s)" for topic, age in late.items())
            raise StaleStateError(f"measurements are too old: {told}; is the robot's driver alive?")
        return RobotState({name: value.astype(np.float32) for name, value in self.state.items()})


def put_row(into: np.ndarray, values: object, what: str) -> None:
    """Put a message's numbers into a row, (1, width).

    Raises:
        ShapeError: There are more or fewer of them.
    """
    row = np.asarray(values, dtype=np.float64).ravel()
    if row.shape[0] != into.shape[1]:
        raise ShapeError(f"{what} has {row.shape[0]} numbers, the policy takes {into.shape[1]}")
    into[0] = row
