"""Interventions: a person takes the robot, leads it, and gives it back.

    none -> requested -> leading -> none

When a person asks and when they get the robot are two times: operators ask before the failure that
they see coming, and a refused request is an intervention that never was. While a person leads, one
key marks where recovery (back to a state that the policy knows) ends and correction (on with the
task) begins (RaC: Hu et al., 2025). There the episode ends with the intervention (`ends_episode`);
HIL-SERL and LeRobot go on with it.
"""

import math
from dataclasses import dataclass, field
from enum import Enum

from hardware.control.safety import SafetyState
from robot_rl.core.errors import ConfigError


class SegmentKind(Enum):
    """Kind of a step, by who moved the robot and what for."""

    policy = "policy"
    human = "human"
    recovery = "recovery"
    correction = "correction"
    demo = "demo"


@dataclass(kw_only=True)
class InterventionConfig:
    """Course of an intervention."""

    first: SegmentKind = SegmentKind.human
    """Kind that it begins with: `human` where nobody marks, `recovery` for RaC."""
    ends_episode: bool = False
    """The episode ends when the robot is given back."""
    patience: float = 1.0
    """Time after which a request that was not granted is given up [s]."""

    def __post_init__(self) -> None:
        if self.first not in (SegmentKind.human, SegmentKind.recovery, SegmentKind.correction):
            raise ConfigError(
                f"an intervention cannot begin with '{self.first.value}'; known: human, recovery, "
                "correction"
            )
        if not 0 < self.patience < math.inf:
            raise ConfigError(f"an intervention's patience must be > 0 s, got {self.patience}")


@dataclass(kw_only=True)
class Intervention:
    """One intervention; times are of the loop's clock [s]."""

    number: int
    """From 1, of this session."""
    requested: float
    """Time of the request."""
    granted: float = math.nan
    """Time from which the person had the robot; NaN where the request was refused."""
    ended: float = math.nan
    """Time from which they no longer had it; NaN while they have it."""
    interrupted: bool = False
    """It ended by a stop, a lost lease or a fault, and not by giving the robot back."""
    discarded: bool = False
    """Its steps are not to be learned from; the rest of the episode is."""
    segments: list[tuple[float, SegmentKind]] = field(
        default_factory=list[tuple[float, SegmentKind]]
    )
    """Beginning and kind of each of its segments, in order."""

    def kind_at(self, time: float) -> SegmentKind:
        """Kind of a step that began at a time; `policy` outside of the intervention."""
        if not self.granted <= time or time >= self.ended:
            return SegmentKind.policy
        return [kind for since, kind in self.segments if since <= time][-1]


class InterventionTracker:
    """The interventions of a session, followed by what the loop says about who has the robot."""

    def __init__(self, config: InterventionConfig | None = None) -> None:
        self.config = config or InterventionConfig()
        """Course of an intervention."""
        self.history: list[Intervention] = []
        """All of the session that were granted, the newest last."""
        self.pending: Intervention | None = None
        """Requested and neither granted nor given up."""
        self.current: Intervention | None = None
        """The one that is under way."""
        self._ended_episode = False
        self._count = 0

    @property
    def kind(self) -> SegmentKind:
        """Kind of what is done now."""
        return SegmentKind.policy if self.current is None else self.current.segments[-1][1]

    def request(self, now: float) -> None:
        """A person asks for the robot; asked again before it is granted, the first time counts."""
        if self.current is None and self.pending is None:
            self._count += 1
            self.pending = Intervention(number=self._count, requested=now)

    def observe(self, safety: SafetyState, now: float) -> None:
        """Follow the state of the loop."""
        if safety is SafetyState.HUMAN:
            if self.current is None:
                self._grant(now)
            return
        if self.current is not None:
            self.current.ended = now
            self.current.interrupted = safety is not SafetyState.POLICY
            self._ended_episode |= self.config.ends_episode
            self.current = None
        if self.pending is not None and now - self.pending.requested > self.config.patience:
            self.pending = None

    def mark(self, now: float) -> SegmentKind:
        """Turn from recovery to correction, or back; does nothing while nobody leads.

        Returns:
            The kind from now on.
        """
        if self.current is not None:
            recovers = self.kind is SegmentKind.recovery
            kind = SegmentKind.correction if recovers else SegmentKind.recovery
            self.current.segments.append((now, kind))
        return self.kind

    def set_kind(self, kind: SegmentKind, now: float) -> None:
        """Begin a segment of a kind, as a rewind begins recovery; not twice the same."""
        if self.current is not None and self.kind is not kind:
            self.current.segments.append((now, kind))

    def discard(self, number: int | None = None) -> Intervention | None:
        """Discard an intervention and keep its episode; the newest if no number is given.

        Returns:
            The one that was discarded; None where there is none, or it is already.
        """
        for one in reversed(self.history):
            if (number is None or one.number == number) and not one.discarded:
                one.discarded = True
                return one
        return None

    def take_episode_end(self) -> bool:
        """True once after an intervention that ends its episode."""
        ended, self._ended_episode = self._ended_episode, False
        return ended

    def kind_at(self, time: float) -> SegmentKind:
        """Kind of a step that began at a time of the loop's clock [s]."""
        for one in reversed(self.history):
            if one.granted <= time:
                return one.kind_at(time)
        return SegmentKind.policy

    def _grant(self, now: float) -> None:
        if self.pending is None:  # somebody else asked for this person
            self.request(now)
        current, self.pending = self.pending, None
        assert current is not None
        current.granted = now
        current.segments.append((now, self.config.first))
        self.history.append(current)
        self.current = current
