"""The watch: per tick, everything that is wrong, as conditions of the state machine.

It judges and never acts. Time is an argument, so that every duration is tested on a logical clock.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hardware.control.safety import Condition, SafetyState
from hardware.control.watch.commanded import CommandWatch, StampedCommand
from hardware.control.watch.measured import StateWatch
from hardware.control.watch.safety_limits import SafetyLimits
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind, RobotCommand
from robot_rl.core.robot_state import RobotState

__all__ = ["Observed", "SafetyLimits", "StampedCommand", "Watch"]


@dataclass(kw_only=True)
class Observed:
    """What a tick knows before it decides."""

    now: float
    """Time of the tick [s]."""
    safety: SafetyState
    """State of the machine."""
    state: RobotState | None = None
    """What the driver gave; None where it gave nothing."""
    stamp: float = -math.inf
    """When that was measured [s]."""
    commands: Mapping[SafetyState, StampedCommand | None] = field(default_factory=dict)
    """Newest command of each source, `POLICY` and `HUMAN`."""
    heartbeat: float = -math.inf
    """When the person was heard last [s]."""
    followed: RobotCommand | None = None
    """Setpoint that was followed last."""
    missed: int = 0
    """Periods that the loop missed before this tick."""
    publishers: int = 1
    """How many send commands to this robot."""


class Watch:
    """From what a tick knows to the conditions that hold in it."""

    def __init__(
        self, spec: RobotSpec, limits: SafetyLimits, period: float, *,
        kinds: Collection[CommandKind] = (), gain_sets: Collection[str] = ("",),
    ) -> None:  # fmt: skip
        """Watch a robot in a loop.

        Args:
            spec: The robot.
            limits: Thresholds.
            period: Of the loop [s].
            kinds: Kinds of command that are taken; the robot's own if empty.
            gain_sets: Names of the sets of gains that are known.
        """
        self._limits = limits
        self.measured = StateWatch(spec, limits, period)
        self.commanded = CommandWatch(spec, limits, kinds=kinds, gain_sets=gain_sets)
        self._late_ticks = [False] * max(1, round(1.0 / period))
        self._tick = self._late = 0
        self._details: dict[Condition, str] = {}

    @property
    def details(self) -> Mapping[Condition, str]:
        """A few words on the conditions of the last tick, where there is more than their name."""
        return {**self.measured.details, **self.commanded.details, **self._details}

    def update(self, seen: Observed) -> frozenset[Condition]:
        """Every condition that holds now. Real-time: never blocks."""
        found = self.measured.update(seen.now, seen.state, seen.stamp, seen.followed)
        found |= self.commanded.update(
            seen.now, seen.safety, self.measured.state, seen.commands, seen.heartbeat
        )
        self._details = {}
        self._loop(found, seen.missed)
        if seen.publishers > 1:
            found.add(Condition.SECOND_PUBLISHER)
            self._details[Condition.SECOND_PUBLISHER] = f"{seen.publishers} send commands"
        return frozenset(found)

    def _loop(self, found: set[Condition], missed: int) -> None:
        """One flag per tick of the last second; a tick after a miss is a late one."""
        ticks = len(self._late_ticks)
        place, self._tick = self._tick % ticks, self._tick + 1
        self._late += (missed > 0) - self._late_ticks[place]
        self._late_ticks[place] = missed > 0
        late = self._late
        # A single late tick of a slow loop is no share of anything.
        often = late > max(1.0, self._limits.overrun_share * ticks)
        if often or missed > self._limits.overrun_ticks:
            found.add(Condition.OVERRUN)
            self._details[Condition.OVERRUN] = (
                f"{late} of {ticks} ticks came late, this one by {missed} periods"
            )
