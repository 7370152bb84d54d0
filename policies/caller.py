"""Duties of whoever runs a policy: what its training did around it, as `spec.json` says it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robot_rl.core.env_selection import Array
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import STATE_FIELDS, ObservationInputs, ObservationMap, TermConfig
from robot_rl.core.observation import RobotState as State


@dataclass(frozen=True, kw_only=True)
class InputField:
    """One array that the observation is made from."""

    group: str
    """state, goal or sensed: the argument of `PolicyRunner.act` that it belongs to."""
    name: str
    """Its name there."""
    width: int
    """Entries for one robot."""
    meaning: str
    """Unit and axes."""


@dataclass(frozen=True, kw_only=True)
class ValueRange:
    """Smallest and largest value of every column."""

    low: list[float]
    """(width,), unit of the field."""
    high: list[float]
    """(width,), unit of the field."""


@dataclass(frozen=True, kw_only=True)
class CallerSpec:
    """Section `caller` of `spec.json`; bundles written before it have none."""

    control_dt: float
    """Time between two actions [s]: the period of `PolicyRunner.act`."""
    loop_dt: float | None = None
    """Time between two commands to the motors in training, in which targets moved [s]."""
    target_speed_limit: list[float] | None = None
    """Largest speed of each joint's position target, (J,), [rad/s] or [m/s]; None where targets
    leaped to where the action said. `PolicyRunner` moves them so by itself."""
    gravity_compensation: bool | None = None
    """True where the robot's controller bore the weight of its links in training: a robot without
    that sags. None where nothing is said."""
    arming_pose: list[float] = field(default_factory=list[float])
    """Joint positions to bring the robot to before the policy acts, (J,), [rad] or [m]; empty for a
    robot without joints."""
    start_ranges: dict[str, ValueRange] = field(default_factory=dict[str, ValueRange])
    """Extent of the states that training began in, by field of `RobotState`; empty if unknown."""
    fields: list[InputField] = field(default_factory=list[InputField])
    """Inputs that the observation is really made from; others may hold anything finite."""
    measurement_age: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Least and largest age of a measurement in training, by field [s]; empty if unknown."""
    action_delay: list[float] = field(default_factory=list[float])
    """Least and largest time from an action to the motors that obey it in training [s]; empty if
    unknown."""

    def check(self, num_joints: int) -> None:
        """Refuse numbers that contradict themselves or the robot.

        Raises:
            ConfigError: A limit is missing or not positive, or a range ends before it begins.
        """
        if not self.control_dt > 0 or (self.loop_dt is not None and not self.loop_dt > 0):
            raise ConfigError(
                f"caller: control_dt and loop_dt must be > 0 s, got {self.control_dt}, "
                f"{self.loop_dt}"
            )
        limits = self.target_speed_limit
        if limits is not None and (len(limits) != num_joints or not min(limits, default=1) > 0):
            raise ConfigError(
                f"caller.target_speed_limit: expected {num_joints} speeds > 0, got {limits}"
            )
        if len(self.arming_pose) != num_joints:
            raise ConfigError(
                f"caller.arming_pose: expected {num_joints} joint positions, got {self.arming_pose}"
            )
        spans = {f"measurement_age.{name}": span for name, span in self.measurement_age.items()}
        for name, span in (spans | {"action_delay": self.action_delay}).items():
            if span and not (len(span) == 2 and 0 <= span[0] <= span[1]):
                raise ConfigError(f"caller.{name}: expected [least, largest] >= 0 s, got {span}")
        for name, extent in self.start_ranges.items():
            if len(extent.low) != len(extent.high):
                raise ConfigError(f"caller.start_ranges.{name}: low and high differ in length")


class TargetRamp:
    """Position targets of N robots on their way, no faster than the joints may move."""

    def __init__(self, limit: Sequence[float], num_robots: int) -> None:
        """Begin at zero; `begin` says where really.

        Args:
            limit: Largest speed of each joint's target, (J,), [rad/s] or [m/s].
        """
        self._limit = np.array(limit, np.float32)
        self.position = np.zeros((num_robots, len(limit)), np.float32)
        """Targets at the beginning of the control period, (N, J), [rad] or [m]."""

    def begin(self, rows: np.ndarray, position: Array) -> None:
        """Start from where the joints are in the masked robots, (N,) bool."""
        self.position[rows] = np.asarray(position)[rows]

    def at(self, goal: Array, elapsed: float) -> np.ndarray:
        """Targets after a part of the control period, (N, J); `elapsed` is in [s]."""
        way = self._limit * np.float32(elapsed)
        return self.position + np.clip(np.asarray(goal) - self.position, -way, way)


class _Watched(Mapping[str, Array]):
    """Arrays by name that notes which of them are read."""

    def __init__(self, values: Mapping[str, Array], read: set[str]) -> None:
        self._values, self._read = values, read

    def __getitem__(self, name: str) -> Array:
        self._read.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def fields_read(
    terms: Sequence[TermConfig],
    widths: Mapping[str, Mapping[str, int]],
    action_size: int,
    meanings: Mapping[str, str] | None = None,
) -> list[InputField]:
    """Inputs that observation terms read.

    Args:
        widths: Of all inputs, by group (state, goal, sensed) and name.
        meanings: Unit and axes of goals and sensed inputs by name, where they are known.
    """
    read = {group: set[str]() for group in widths}
    given: dict[str, Any] = {
        group: _Watched({n: np.zeros((1, w), np.float32) for n, w in of.items()}, read[group])
        for group, of in widths.items()
    }
    inputs = ObservationInputs(
        state=State(given["state"]),
        goal=given["goal"],
        sensed=given["sensed"],
        last_action=np.zeros((1, action_size), np.float32),
    )
    ObservationMap(terms, inputs)
    known = STATE_FIELDS | dict(meanings or {})
    return [
        InputField(group=group, name=name, width=width, meaning=known.get(name) or _by_name(name))
        for group, of in widths.items()
        for name, width in of.items()
        if name in read[group]
    ]


def _by_name(name: str) -> str:
    """Meaning of an input as far as its name says it: SI units, the frame is the name's end."""
    frames = {"_w": "world axes", "_b": "base axes", "_ee": "axes of the end effector"}
    return next((f"SI units, {text}" for end, text in frames.items() if name.endswith(end)), "")
