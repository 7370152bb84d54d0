"""Interventions: a person takes the robot, leads it, and gives it back.

    none -> requested -> leading -> none

When a person asks and when they get the robot are two times: operators ask before the failure that
they see coming, and a refused request is an intervention that never was. While a person leads, one
key marks where recovery (back to a state that the policy knows) ends and correction (on with the
task) begins (RaC: Hu et al., 2025).
"""

import math
from dataclasses import dataclass
from enum import Enum

from hardware.control.safety import SafetyState

_PATIENCE = 1.0
"""Time after which a request that was not granted is given up [s]."""


class SegmentKind(Enum):
    """Kind of a step, by who moved the robot and what for."""

    policy = "policy"
    human = "human"
    recovery = "recovery"
    correction = "correction"
    demo = "demo"


@dataclass(kw_only=True)
class Intervention:
    """One intervention; times are of the loop's clock [s]."""

    requested: float = math.nan
    """Time of the request."""
    granted: float = math.nan
    """Time from which the person had the robot; NaN until then."""
    ended: float = math.nan
    """Time from which they no longer had it; NaN while they have it."""
    interrupted: bool = False
    """It ended by a stop, a lost lease or a fault, and not by giving the robot back."""


class InterventionTracker:
    """The newest intervention, followed by what the loop says about who has the robot."""

    def __init__(self) -> None:
        self.newest = Intervention()
        """The one that was granted last; it is under way until it has ended."""
        self.kind = SegmentKind.policy
        """Kind of what is done now."""
        self._requested = math.nan

    @property
    def leads(self) -> bool:
        """True while the person has the robot."""
        return math.isfinite(self.newest.granted) and math.isnan(self.newest.ended)

    def request(self, now: float) -> None:
        """A person asks for the robot; asked again before it is granted, the first time counts."""
        if not self.leads and math.isnan(self._requested):
            self._requested = now

    def observe(self, safety: SafetyState, now: float) -> None:
        """Follow the state of the loop."""
        if safety is SafetyState.HUMAN:
            if not self.leads:
                requested = now if math.isnan(self._requested) else self._requested
                self.newest = Intervention(requested=requested, granted=now)
                self.kind, self._requested = SegmentKind.human, math.nan
            return
        if self.leads:
            self.newest.ended = now
            self.newest.interrupted = safety is not SafetyState.POLICY
        self.kind = SegmentKind.policy
        if now - self._requested > _PATIENCE:
            self._requested = math.nan

    def mark(self, kind: SegmentKind) -> None:
        """Begin a segment of a kind; does nothing while nobody leads."""
        if self.leads:
            self.kind = kind
