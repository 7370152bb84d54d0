"""What is wrong with the commands of a policy and of a person: age, numbers, jump, lease."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np

from hardware.control.safety import Condition, SafetyState
from hardware.control.watch.measured import ROUNDING
from hardware.control.watch.safety_limits import SafetyLimits
from hardware.controllers.controller import kind_of
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import (
    CommandKind,
    JointCommand,
    PoseCommand,
    RobotCommand,
)
from robot_rl.core.robot_state import RobotState

IN_CHARGE = (SafetyState.POLICY, SafetyState.HUMAN)
"""States in which somebody's commands are followed; also the names of the two sources."""


@dataclass(frozen=True, kw_only=True)
class StampedCommand:
    """A command as it arrives."""

    command: RobotCommand
    """The setpoint."""
    stamp: float
    """Measurement time of the state that it was made from, clock of the loop [s]."""
    gains: str = ""
    """Name of the set of gains that it was made for."""


class CommandSource(Protocol):
    """Where commands come from: a mailbox, a topic, a test."""

    def newest(self) -> StampedCommand | None:
        """The newest command; None where there was none. Real-time: never blocks."""
        ...


class CommandWatch:
    """Keeps the newest good command of each source and says what is wrong with it."""

    def __init__(
        self, spec: RobotSpec, limits: SafetyLimits, *, kinds: Collection[CommandKind] = (),
        gain_sets: Collection[str] = ("",),
    ) -> None:  # fmt: skip
        """Watch commands to a robot.

        Args:
            spec: The robot.
            limits: Thresholds.
            kinds: Kinds of command that are taken; the robot's own if empty.
            gain_sets: Names of the sets of gains that are known.
        """
        self._limits = limits
        self._kinds = tuple(kinds) or (spec.command,)
        self._gain_sets = frozenset(gain_sets)
        self._widths = _widths(spec)
        self._seen: dict[SafetyState, StampedCommand | None] = dict.fromkeys(IN_CHARGE)
        self._faults: dict[SafetyState, str | None] = dict.fromkeys(IN_CHARGE)
        self._awaiting = False
        self.good: dict[SafetyState, StampedCommand | None] = dict.fromkeys(IN_CHARGE)
        """Newest good command of each source."""
        self.details: dict[Condition, str] = {}
        """What there is to say about the conditions of the last tick."""

    def forget(self) -> None:
        """Let no command from before a reset count."""
        self.good = dict.fromkeys(IN_CHARGE)

    def update(
        self, now: float, safety: SafetyState, state: RobotState | None,
        commands: Mapping[SafetyState, StampedCommand | None], heartbeat: float,
    ) -> set[Condition]:  # fmt: skip
        """What is wrong. Real-time: never blocks.

        Args:
            now: Time of the tick [s].
            safety: State of the machine: says whose commands are followed.
            state: Newest good sample.
            commands: Newest command of each source.
            heartbeat: When the person was heard last [s].
        """
        self.details = {}
        found: set[Condition] = set()
        for source in IN_CHARGE:
            self._take(source, commands.get(source), now)
            if source is safety and (fault := self._faults[source]):
                self._say(found, Condition.COMMAND_INVALID, fault)
        self._policy(found, now, safety)
        self._person(found, now, heartbeat)
        for source, jump in zip(IN_CHARGE, (Condition.POLICY_JUMP, Condition.HUMAN_JUMP),
                                strict=True):  # fmt: skip
            good = self.good[source]
            if source is not safety and good is not None and state is not None:
                self._jump(found, jump, good.command, state)
        return found

    def _take(self, source: SafetyState, command: StampedCommand | None, now: float) -> None:
        if command is self._seen[source]:
            return
        self._seen[source] = command
        self._faults[source] = fault = None if command is None else self._fault(command, now)
        if command is not None and fault is None:
            self.good[source] = command

    def _policy(self, found: set[Condition], now: float, safety: SafetyState) -> None:
        """A policy is waited for while it is in charge, and in the pause that its silence made."""
        age = self._age(SafetyState.POLICY, now)
        late = age > self._limits.command_late + ROUNDING
        if late or self._faults[SafetyState.POLICY]:
            said = self._faults[SafetyState.POLICY] or f"newest command is {1e3 * age:.0f} ms old"
            self._say(found, Condition.POLICY_SILENT, said)
        pausing = self._awaiting and late and safety is SafetyState.HOLD
        self._awaiting = safety is SafetyState.POLICY or pausing
        if self._awaiting and late:
            said = f"newest command is {1e3 * age:.0f} ms old"
            self._say(found, Condition.COMMAND_LATE, said)
            if age > self._limits.command_lost + ROUNDING:
                self._say(found, Condition.COMMAND_LOST, said)

    def _person(self, found: set[Condition], now: float, heartbeat: float) -> None:
        """A person is as old as the older of heartbeat and command: neither may be latched."""
        age = max(now - heartbeat, self._age(SafetyState.HUMAN, now))
        said = f"the person was heard {1e3 * age:.0f} ms ago"
        if age > self._limits.lease_late + ROUNDING:
            self._say(found, Condition.LEASE_LATE, said)
        if age > self._limits.lease_lost + ROUNDING:
            self._say(found, Condition.LEASE_LOST, said)

    def _jump(
        self, found: set[Condition], condition: Condition, command: RobotCommand, state: RobotState
    ) -> None:
        limits, measured = self._limits, state.fields
        if isinstance(command, JointCommand) and "joint_position" in measured:
            far = float(np.max(abs(command.q - measured["joint_position"]), initial=0.0))
            if far > limits.first_command_jump:
                self._say(found, condition, f"first command is {far:.2f} rad from the pose")
        # The end effector is measured in base axes, which are the world's where the base is fixed.
        fixed = "position_w" not in measured and "end_effector_position_b" in measured
        if isinstance(command, PoseCommand) and fixed:
            far = float(np.linalg.norm(command.position_w - measured["end_effector_position_b"]))
            if far > limits.first_position_jump:
                self._say(found, condition, f"first command is {far:.2f} m from the end effector")

    def _age(self, source: SafetyState, now: float) -> float:
        good = self.good[source]
        return math.inf if good is None else now - good.stamp

    def _fault(self, arrived: StampedCommand, now: float) -> str | None:
        """Why a command cannot be used; None where it can."""
        command = arrived.command
        if kind_of(command) not in self._kinds:
            known = ", ".join(k.value for k in self._kinds)
            return f"got a {type(command).__name__}; this robot takes: {known}"
        if arrived.gains not in self._gain_sets:
            return f"gain set '{arrived.gains}' is unknown; known: {sorted(self._gain_sets)}"
        if not arrived.stamp <= now + self._limits.clock_skew:
            return f"stamp {arrived.stamp:.3f} s lies in the future of {now:.3f} s"
        for entry in fields(command):
            value = getattr(command, entry.name)
            if value is None:
                continue
            if np.shape(value) != (1, self._widths[entry.name]):
                return (
                    f"{entry.name} must be (1, {self._widths[entry.name]}), got {np.shape(value)}"
                )
            if not np.isfinite(value).all():
                return f"{entry.name} is {np.asarray(value)}"
        return None

    def _say(self, found: set[Condition], condition: Condition, detail: str) -> None:
        found.add(condition)
        self.details[condition] = detail


def _widths(spec: RobotSpec) -> dict[str, int]:
    """Width of every entry of every kind of command."""
    widths = dict.fromkeys(("q", "dq", "tau", "kp", "kd"), spec.num_joints)
    widths |= {"speed": len(spec.rotors), "thrust": 1, "gripper": 1, "orientation_w": 4}
    return widths | dict.fromkeys(("rates_b", "position_w", "linear_b", "angular_b"), 3)
