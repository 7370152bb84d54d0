"""How far a replay is from what was recorded."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hardware.recording.replay import ReplayedStep
from hardware.ros.policy.policy_step import PolicyStep
from policies.runner import PolicySpec

TOLERANCE = 1e-6
"""Largest difference, per entry of magnitude up to 1: about eight roundings of a float32."""


@dataclass
class Comparison:
    """Largest differences so far, by what differs."""

    spec: PolicySpec
    steps: int = 0
    """Compared."""
    episodes: int = 0
    """That began and went on: until a policy is in charge, every step of it is a first one."""
    waiting: int = 0
    """First steps that no other followed: of a policy that was not in charge."""
    filling: int = 0
    """Steps that were not compared: histories were filled again after a gap."""
    without_command: int = 0
    """Compared steps whose command was not recorded."""
    differing: int = 0
    """Steps with a difference above the tolerance."""
    first: ReplayedStep | None = None
    """The first of them."""
    _before: PolicyStep | None = field(default=None, init=False)
    largest: dict[str, float] = field(default_factory=dict)
    """`observation/<term>`, `action/<name>`, `<field>/<name>` of the command -> difference."""

    def add(self, step: ReplayedStep) -> None:
        """Compare a step."""
        self._count(step.recorded)
        if not step.compared:
            self.filling += 1
            return
        self.steps += 1
        self.without_command += step.recorded_command is None
        apart = False
        for name, got, expected in self._pairs(step):
            # NaN against a number differs without end; NaN against NaN does not.
            gap = np.abs(np.where(np.isnan(got) & np.isnan(expected), 0.0, got - expected))
            gap[np.isnan(gap)] = np.inf
            self.largest[name] = max(self.largest.get(name, 0.0), float(gap.max(initial=0.0)))
            apart |= bool((gap > TOLERANCE * np.fmax(1.0, np.abs(expected))).any())
        self.differing += apart
        if apart and self.first is None:
            self.first = step

    def _count(self, step: PolicyStep) -> None:
        if step.starts:
            self.waiting += 1
        elif self._before is not None and self._before.starts:
            self.waiting -= 1
            self.episodes += 1
        self._before = step

    @property
    def same(self) -> bool:
        """Whether everything that was compared is the same, and anything was."""
        return self.steps > 0 and self.differing == 0

    def _pairs(self, step: ReplayedStep) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        for name, part in observation_parts(self.spec):
            yield f"observation/{name}", step.observation[part], step.recorded.observation[part]
        yield from _each("action", action_names(self.spec), step.action, step.recorded.action)
        sent: Mapping[str, np.ndarray] = step.recorded_command or {}
        for entry, values in step.command.items():
            if entry in sent:
                yield from _each(entry, action_names(self.spec), values, sent[entry])


def observation_parts(spec: PolicySpec) -> list[tuple[str, slice]]:
    """Terms of an observation, with the place of each; a term that comes twice is numbered."""
    parts: list[tuple[str, slice]] = []
    start = 0
    seen: dict[str, int] = {}
    for config, width in zip(spec.terms, spec.widths, strict=True):
        seen[config.term] = seen.get(config.term, 0) + 1
        twice = f"#{seen[config.term]}" if seen[config.term] > 1 else ""
        stop = start + width * config.history
        parts.append((f"{config.term}{twice}", slice(start, stop)))
        start = stop
    return parts


def action_names(spec: PolicySpec) -> Sequence[str]:
    """Names for the entries of an action or a command, as far as the robot has any."""
    return spec.robot.joint_names or spec.robot.rotors


def _each(
    what: str, names: Sequence[str], got: np.ndarray, expected: np.ndarray
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    for index, (a, b) in enumerate(zip(got, expected, strict=True)):
        name = names[index] if index < len(names) else str(index)
        yield f"{what}/{name}", np.array([a], np.float64), np.array([b], np.float64)
