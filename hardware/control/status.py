"""What the loop tells of itself, as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass

from hardware.control.safety import Condition, SafetyState


@dataclass(frozen=True)
class Trip:
    """A change of state that nobody asked for, or that stopped the robot."""

    time: float
    """When [s]."""
    before: SafetyState
    """From where."""
    after: SafetyState
    """To where."""
    causes: frozenset[Condition]
    """What decided."""
    words: str
    """The same for people."""


@dataclass(frozen=True, kw_only=True)
class RobotStatus:
    """The loop after a tick."""

    time: float
    """Of the tick [s]."""
    ticks: int
    """Ticks so far."""
    safety: SafetyState
    """State of the machine."""
    conditions: frozenset[Condition]
    """What held in the tick."""
    details: Mapping[Condition, str]
    """A few words on those where there is more than their name."""
    trip: Trip | None
    """The last trip."""
    refused: str
    """Why the last act that was not done was not done; empty where none was refused since."""
    state_age: float
    """Age of the sample in use [s]; infinite before the first."""
    clamped: int
    """Ticks in which a limit changed the command."""
    replaced: int
    """Ticks in which an entry of the command was no number."""
    missed: int
    """Periods missed so far."""

    @property
    def line(self) -> str:
        """One line for a terminal."""
        shown = [c.value for c in Condition if c in self.conditions]
        parts = [f"{self.time:9.2f} s  {self.safety.value:9}", ", ".join(shown) or "-"]
        if self.trip is not None:
            parts.append(f"last trip: {self.trip.words}")
        if self.refused:
            parts.append(self.refused)
        return "  ".join(parts)


def trip_words(
    before: SafetyState, after: SafetyState, causes: frozenset[Condition],
    details: Mapping[Condition, str],
) -> str:  # fmt: skip
    """A trip in words: from where, to where, and why."""
    return f"{before.value} -> {after.value}: {_reasons(causes, details)}"


def refusal_words(
    refused: Mapping[Condition, frozenset[Condition]], safety: SafetyState,
    details: Mapping[Condition, str],
) -> str:  # fmt: skip
    """Refused acts in words: what was asked for, and what forbids it."""
    return "; ".join(
        f"'{act.value}' is refused: " + (_reasons(reasons, details) if reasons else
                                         f"it does nothing in '{safety.value}'")
        for act, reasons in refused.items()
    )  # fmt: skip


def _reasons(causes: frozenset[Condition], details: Mapping[Condition, str]) -> str:
    named = [c for c in Condition if c in causes]
    return ", ".join(f"{c.value} ({details[c]})" if c in details else c.value for c in named)
