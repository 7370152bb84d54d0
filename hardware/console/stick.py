"""Messages of a person's stick: which of them count, and what they mean.

A stick is only as good as its age: a message that is repeated, overtaken, of another connection or
older than 150 ms is dropped. The person's settings (deadband, locked axes, speed) are applied here,
on the robot's computer, so that a reloaded page drives as the page before.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from robot_rl.core.errors import ConfigError

AXES = ("x", "y", "z", "roll", "pitch", "yaw")
"""Axes of a stick, each in [-1, 1]: three of translation, three of rotation."""
OLDEST_SECONDS = 0.15
"""Age of a message that still counts [s]."""
SILENT_SECONDS = 0.22
"""Silence after which the person counts as gone [s]: with the time of a check, below 0.3 s."""
STUCK_SECONDS = 5.0
"""Time for which an axis away from the centre may say the very same number [s]."""
_STEADY = ("keyboard", "pad")
"""Devices of a page that say the same number for as long as a hand does not move."""
_STUCK_ABOVE, _FULL = 0.05, 0.999
"""An axis at its stop says 1 for as long as it is pushed, which is no fault."""
FRAMES = ("base", "tool")


@dataclass
class DriveSettings:
    """Choices of a person about the stick."""

    speed: float = 0.5
    """Factor on all axes, in [0.05, 1]."""
    frame: str = "base"
    """Axes that the stick moves along: base or tool."""
    deadband: list[float] = field(default_factory=lambda: [0.08] * len(AXES))
    """Deflection of each axis that counts as none, in [0, 0.9]."""
    locked: list[bool] = field(default_factory=lambda: [False] * len(AXES))
    """Axes that do nothing."""

    def changed(self, wish: Mapping[str, Any]) -> "DriveSettings":
        """Settings with some of them changed.

        Raises:
            ConfigError: A value is none that can be set.
        """
        speed = _number(wish.get("speed", self.speed), "speed", 0.05, 1.0)
        frame = wish.get("frame", self.frame)
        if frame not in FRAMES:
            raise ConfigError(f"frame: one of {', '.join(FRAMES)} was expected, got '{frame}'")
        deadband = wish.get("deadband", self.deadband)
        locked = wish.get("locked", self.locked)
        if not isinstance(deadband, list) or len(deadband) != len(AXES):
            raise ConfigError(f"deadband: {len(AXES)} numbers were expected, got {deadband!r:.60}")
        if (
            not isinstance(locked, list)
            or len(locked) != len(AXES)
            or not all(isinstance(one, bool) for one in locked)
        ):
            raise ConfigError(
                f"locked: {len(AXES)} of true/false were expected, got {locked!r:.60}"
            )
        bands = [_number(one, "deadband", 0.0, 0.9) for one in deadband]
        return DriveSettings(speed=speed, frame=frame, deadband=bands, locked=list(locked))

    def shaped(self, raw: Sequence[float]) -> list[float]:
        """Axes after the deadband, still over the whole of [-1, 1]."""
        return [
            math.copysign(min(1.0, max(0.0, abs(value) - band) / (1.0 - band)), value)
            for value, band in zip(raw, self.deadband, strict=True)
        ]

    def intent(self, message: "StickMessage", *, clutch: bool) -> dict[str, Any]:
        """A person's intent as `Intent.from_dict` of hardware/teleop takes it."""
        return {
            "axes": self.shaped(message.axes),
            "clutch": clutch,
            "gripper": message.gripper,
            "speed": self.speed,
            "lock": [name for name, locked in zip(AXES, self.locked, strict=True) if locked],
            "frame": self.frame,
        }


@dataclass(frozen=True, kw_only=True)
class StickMessage:
    """A message of a page about its stick."""

    sequence: int
    time: float
    """Server's clock, as the page reckons it [s]."""
    connection: str
    """Name of the connection, as the server gave it."""
    axes: tuple[float, ...]
    """Raw axes, (6,), each in [-1, 1]."""
    clutch: bool
    """The intent button is held."""
    gripper: bool
    """The button that turns the gripper over is down."""
    device: str

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> "StickMessage":
        """Read a message.

        Raises:
            ConfigError: It is malformed.
        """
        axes = message.get("axes")
        if not isinstance(axes, list) or len(axes) != len(AXES):
            raise ConfigError(f"axes: {len(AXES)} numbers were expected, got {axes!r:.60}")
        sequence, clutch = message.get("seq"), message.get("clutch")
        gripper = message.get("gripper", False)
        if not isinstance(sequence, int) or isinstance(sequence, bool) or sequence < 0:
            raise ConfigError(f"seq: a whole number was expected, got {sequence!r:.30}")
        for name, button in (("clutch", clutch), ("gripper", gripper)):
            if not isinstance(button, bool):
                raise ConfigError(f"{name}: true or false was expected, got {button!r:.30}")
        return cls(
            sequence=sequence,
            time=_number(message.get("t"), "t", -math.inf, math.inf),
            connection=str(message.get("connection", ""))[:64],
            axes=tuple(_number(one, "axes", -1.0, 1.0) for one in axes),
            clutch=bool(clutch),
            gripper=bool(gripper),
            device=str(message.get("device", ""))[:40],
        )


class StickStream:
    """Messages of one connection, of which only new ones count."""

    def __init__(self, connection: str) -> None:
        self._connection = connection
        self._sequence = -1
        self._same_since: list[float | None] = [None] * len(AXES)
        self._before: tuple[float, ...] = ()
        self.dropped: dict[str, int] = {}
        """Reason -> how many messages did not count."""

    def fault(self, message: StickMessage, now: float) -> str:
        """Reason why a message does not count; empty where it does."""
        reason = self._reason(message, now)
        if reason:
            self.dropped[reason] = self.dropped.get(reason, 0) + 1
            return reason
        self._sequence = message.sequence
        return ""

    def stuck_axis(self, message: StickMessage, now: float) -> str:
        """Name of an axis that has said the same for too long while it is off the centre.

        A key or a pad at its stop is no stuck axis; only analogue sticks are asked here.
        """
        before, self._before = self._before, message.axes
        if message.device in _STEADY:
            before = ()
        for index, value in enumerate(message.axes):
            same = bool(before) and before[index] == value
            if not same or not _STUCK_ABOVE < abs(value) < _FULL:
                self._same_since[index] = None
            elif self._same_since[index] is None:
                self._same_since[index] = now
            elif now - (self._same_since[index] or now) > STUCK_SECONDS:
                return AXES[index]
        return ""

    def _reason(self, message: StickMessage, now: float) -> str:
        if message.connection != self._connection:
            return "of another connection"
        if message.sequence <= self._sequence:
            return "repeated or overtaken"
        if not -OLDEST_SECONDS <= now - message.time <= OLDEST_SECONDS:
            return f"more than {1000 * OLDEST_SECONDS:.0f} ms old"
        return ""


def _number(value: Any, name: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{name}: a number was expected, got {value!r:.30}")
    if not low <= value <= high:
        raise ConfigError(f"{name}: a number in [{low:g}, {high:g}] was expected, got {value:g}")
    return float(value)
