"""A person's intent: what their sticks and buttons say, and its way to a twist.

    deadband -> lock -> curve -> speed scale

A device sends its whole state again and again, never events: a message that is lost costs nothing.
Whether the person wants to move the robot is a button (`clutch`) and not the size of a deflection,
so that a device that drifts or reports all zeros takes nothing over and loses nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import ConfigError, unknown_name

AXES = ("x", "y", "z", "roll", "pitch", "yaw")
"""Axes of a stick: translation, then rotation about the same axes."""
Floats = NDArray[np.float64]


class MotionFrame(Enum):
    """Axes that a deflection means."""

    base = "base"
    """Those of the robot's base, or of a drone's world."""
    tool = "tool"
    """Those of the end effector, or of a drone's heading."""


@dataclass(frozen=True, kw_only=True)
class Intent:
    """State of a person's device."""

    axes: Floats = field(default_factory=lambda: np.zeros(6))
    """Deflections in the order of `AXES`, (6,), in [-1, 1]."""
    clutch: bool = False
    """The button that lets deflections move the robot is down."""
    gripper: bool = False
    """The button that turns the gripper over is down."""
    speed: float = 1.0
    """Scale of the speed, in [0, 1]."""
    lock: tuple[str, ...] = ()
    """Axes that do not move."""
    frame: MotionFrame = MotionFrame.base
    """Axes that a deflection means."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Intent":
        """An intent as a device or a browser sends it; what is left out is as at rest.

        Raises:
            ConfigError: A name is unknown, or a value is none of its kind.
        """
        known = ("axes", "clutch", "gripper", "speed", "lock", "frame")
        for name in values:
            if name not in known:
                raise ConfigError(unknown_name("entry of an intent", str(name), known))
        lock = values.get("lock", ())
        if isinstance(lock, str) or not isinstance(lock, Sequence):
            raise ConfigError(f"an intent's lock must be a list of axes, got {lock!r}")
        axes = [str(axis) for axis in cast(Sequence[Any], lock)]
        for axis in axes:
            if axis not in AXES:
                raise ConfigError(unknown_name("axis", axis, AXES))
        frames = [frame.value for frame in MotionFrame]
        frame = values.get("frame", MotionFrame.base.value)
        if frame not in frames:
            raise ConfigError(unknown_name("frame", str(frame), frames))
        return cls(
            axes=np.array(_numbers("axes", values.get("axes", [0.0] * 6), 6, low=-1.0)),
            clutch=_flag(values, "clutch"),
            gripper=_flag(values, "gripper"),
            speed=_numbers("speed", [values.get("speed", 1.0)], 1, low=0.0)[0],
            lock=tuple(axes),
            frame=MotionFrame(frame),
        )


@dataclass(kw_only=True)
class StickConfig:
    """Response of a stick."""

    deadband: list[float] = field(default_factory=lambda: [0.08] * 6)
    """Deflection of each axis that counts as none, (6,), in [0, 1)."""
    exponent: float = 1.5
    """Of the curve from deflection to speed: above 1 it is finer around the middle."""
    lock: list[str] = field(default_factory=list[str])
    """Axes that never move: those along which a policy's actions do not move either."""

    def __post_init__(self) -> None:
        if len(self.deadband) != 6 or not all(0 <= one < 1 for one in self.deadband):
            raise ConfigError(f"deadband needs 6 numbers in [0, 1), got {self.deadband}")
        if not 0 < self.exponent < math.inf:
            raise ConfigError(f"the exponent of a stick must be > 0, got {self.exponent}")
        for axis in self.lock:
            if axis not in AXES:
                raise ConfigError(unknown_name("axis", axis, AXES))


def shaped(intent: Intent, config: StickConfig) -> Floats:
    """Share of the largest speed on every axis, (6,), in [-1, 1]; 0 while the clutch is up."""
    if not intent.clutch:
        return np.zeros(6)
    dead = np.array(config.deadband)
    size = np.clip((np.abs(intent.axes) - dead) / (1 - dead), 0.0, 1.0)
    free = np.array([axis not in (*intent.lock, *config.lock) for axis in AXES])
    return intent.speed * free * np.sign(intent.axes) * size**config.exponent


def _flag(values: Mapping[str, Any], name: str) -> bool:
    value = values.get(name, False)
    if not isinstance(value, bool):
        raise ConfigError(f"an intent's {name} must be true or false, got {value!r}")
    return value


def _numbers(name: str, value: Any, count: int, *, low: float) -> list[float]:
    """Numbers in [low, 1]; what lies a little beyond, as devices do, is clipped."""
    row = cast(Sequence[Any], value) if isinstance(value, Sequence) else ()
    good = len(row) == count and all(
        isinstance(one, int | float) and not isinstance(one, bool) and math.isfinite(one)
        for one in row
    )
    if not good:
        raise ConfigError(f"an intent's {name} must be {count} finite number(s), got {value!r}")
    return [min(max(float(one), low), 1.0) for one in row]
