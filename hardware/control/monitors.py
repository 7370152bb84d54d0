"""Safety monitors: everything that is wrong in a tick, as conditions of the state machine.

`SafetyLimits` has the thresholds, `StateMonitor` checks what is measured, `CommandMonitor` what a
policy and a person send, `SafetyMonitor` joins both with the loop's own lateness. They report and
never act. Time is an argument, so that every duration is tested on a logical clock.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Protocol

import numpy as np

from hardware.control.clock import ROUNDING
from hardware.control.limits import JointBounds
from hardware.control.safety import Condition, SafetyState
from hardware.controllers import rotations
from hardware.controllers.controller import kind_of
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import (
    CommandKind,
    JointCommand,
    PoseCommand,
    RobotCommand,
)

COMMANDED_STATES = (SafetyState.POLICY, SafetyState.HUMAN)
"""States in which somebody's commands are followed; also the names of the two sources."""


ANSWER_PERIODS = 3
"""Periods of the loop from a measurement to the command that answers it, 99th percentile on a
machine with room (docs/benchmarks/deployments.md: 2.3)."""


@dataclass(kw_only=True)
class SafetyLimits:
    """Thresholds of the conditions. Defaults without a source are choices, narrowed per robot."""

    command_late: float = 0.04
    """Age of a policy's command that pauses [s]; see `for_policy`."""
    command_lost: float = 0.1
    """Age of a policy's command that stops [s]."""
    clock_skew: float = 0.005
    """Largest lead of the stamp of a sample, a command or a heartbeat [s]."""
    lease_late: float = 0.15
    """Silence of a person after which their velocity is zero [s]."""
    lease_lost: float = 0.25
    """Silence of a person after which the robot holds [s]."""
    state_late: float = 0.02
    """Age of a sample that pauses [s]; three periods of the loop where that is longer."""
    state_lost: float = 0.1
    """Age of a sample that stops at once [s]."""
    range_tolerance: float = 0.05
    """Largest distance of a joint outside its hard limits [rad]."""
    velocity_factor: float = 1.2
    """Largest measured speed, as a multiple of the joint's limit."""
    effort_factor: float = 1.05
    """Largest measured torque, as a multiple of the joint's limit; a motor that saturates measures
    its limit, give or take noise, and does what it was built for."""
    load_time: float = 0.05
    """Time for which speed or torque must be too large [s]."""
    tracking_error: float = 1.0
    """Largest distance of a joint with stiffness from its commanded position [rad]."""
    tracking_time: float = 0.1
    """Time for which that must last [s]."""
    tilt: float = 1.2
    """Largest lean of a robot that stands on the ground [rad]."""
    tumble: float = math.pi / 2
    """Largest lean of a robot that flies [rad]."""
    tilt_time: float = 0.1
    """Time for which either must last [s]."""
    workspace_lower: tuple[float, float, float] = (-math.inf, -math.inf, -math.inf)
    """Corner of the box for the end effector (base axes) or a flying base (world axes) [m]."""
    workspace_upper: tuple[float, float, float] = (math.inf, math.inf, math.inf)
    external_force: float = math.inf
    """Largest measured force at the end effector [N]."""
    overrun_share: float = 0.25
    """Share of ticks within a second that may come late. What a late tick does to a robot is
    bounded by the ages of commands and samples; this notices a loop that does not keep its rate. A
    kernel that is not a real-time one makes 5 % late beside a training
    (docs/benchmarks/endurance.md); with one, narrow it in the robot file."""
    overrun_ticks: int = 5
    """Periods that a single tick may miss."""
    first_command_jump: float = 0.3
    """Largest distance of a first joint command from the measured pose [rad]."""
    first_position_jump: float = 0.1
    """Largest distance of a first pose command from the measured end effector, or a drone [m]."""
    first_rotation_jump: float = 0.5
    """Largest turn of a first pose command from the measured end effector [rad]."""
    joints: JointBounds | None = None
    """Bounds of each joint; those of `JointBounds.of` the robot if None."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, float | int) and not value >= 0:
                raise ConfigError(f"safety limit {entry.name} must be >= 0, got {value}")
        for what in ("command", "state", "lease"):
            late, lost = getattr(self, f"{what}_late"), getattr(self, f"{what}_lost")
            if late > lost:
                raise ConfigError(f"{what}_late {late} s must not exceed {what}_lost {lost} s")
        for low, high in zip(self.workspace_lower, self.workspace_upper, strict=True):
            if not low < high:
                raise ConfigError(
                    f"the workspace {self.workspace_lower} .. {self.workspace_upper} has no inside"
                )

    @classmethod
    def for_flight(cls) -> "SafetyLimits":
        """Limits of a drone, which cannot stand still: level at 0.1 s, descend at 0.5 s of silence.

        The half second is that of PX4's and the Crazyflie's offboard time-outs.
        """
        return cls(command_late=0.1, command_lost=0.5)

    @classmethod
    def for_policy(cls, spec: RobotSpec, control_dt: float, period: float) -> "SafetyLimits":
        """Limits of a robot, with times that a policy can keep.

        A command answers a measurement, and when the next one replaces it, it is as old as a
        control period and the way of an answer; another period where one decision failed. Commands
        that get older pause, twice as old ones stop; never before the usual times. A
        loop may miss half of the time that a command may be old. A sample may be as old as that
        too, or as the period in which the policy looks once, within half the age that stops: after
        a pause, what a loop reads first is as old as the pause.

        Args:
            control_dt: Of the policy [s].
            period: Of the loop [s].
        """
        usual = cls.for_flight() if spec.rotors else cls()
        late = 2 * control_dt + (ANSWER_PERIODS + 1) * period
        command_late = max(usual.command_late, late)
        return replace(
            usual,
            command_late=command_late,
            command_lost=max(usual.command_lost, 2 * late),
            state_late=min(
                max(usual.state_late, control_dt, command_late / 2), usual.state_lost / 2
            ),
            overrun_ticks=max(usual.overrun_ticks, int(command_late / (2 * period) + ROUNDING)),
        )

    def stretched(self, factor: float, *, lease: bool = False) -> "SafetyLimits":
        """The same limits with times that are longer by a factor, for a busy machine.

        Args:
            lease: The times of a person's silence too.
        """
        kinds = ("command", "state", *(["lease"] if lease else []))
        times = [f"{kind}_{end}" for kind in kinds for end in ("late", "lost")]
        return replace(
            self,
            **{name: factor * getattr(self, name) for name in times},
            overrun_share=min(1.0, factor * self.overrun_share),
            overrun_ticks=round(factor * self.overrun_ticks),
        )


@dataclass(frozen=True, kw_only=True)
class StampedCommand:
    """A command as it arrives."""

    command: RobotCommand
    """The setpoint."""
    stamp: float
    """Measurement time of the state that it was made from, clock of the loop [s]."""
    gains: str = ""
    """Name of the set of gains that it was made for."""
    fault: str = ""
    """Reason why what arrived is no command; empty where it is one."""


class CommandSource(Protocol):
    """Source of commands: a channel, a topic, a test."""

    def newest(self) -> StampedCommand | None:
        """The newest command; None where there was none. Real-time: never blocks."""
        ...


@dataclass(kw_only=True)
class TickInputs:
    """Knowledge of a tick before it decides."""

    now: float
    """Time of the tick [s]."""
    safety: SafetyState
    """State of the machine."""
    state: RobotState | None = None
    """Sample of the driver; None where it gave none."""
    stamp: float = -math.inf
    """Its measurement time [s]."""
    read_at: float = -math.inf
    """Time after it was read [s], if that is later than `now`: what a stamp may be at most."""
    commands: Mapping[SafetyState, StampedCommand | None] = field(default_factory=dict)
    """Newest command of each source, `POLICY` and `HUMAN`."""
    heartbeat: float = -math.inf
    """Time at which the person was heard last [s]."""
    followed: RobotCommand | None = None
    """Setpoint that was followed last."""
    missed: int = 0
    """Periods that the loop missed before this tick."""
    publishers: int = 1
    """Number of senders of commands to this robot."""
    doubled: str = ""
    """Measurements that come from more than one sender, in words; empty where none do."""


class Debounced:
    """A flag that must have been true for some time without a break."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None

    def __call__(self, true: bool, now: float) -> bool:
        """True if it is true now and was at every call of the last `seconds`."""
        if not true:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        return now - self._since >= self._seconds - ROUNDING


_ATTITUDES = ("orientation_w", "end_effector_orientation_b")
"""Quaternions, measured or commanded."""
_LENGTH_TOLERANCE = 0.1
"""Largest difference of their length from 1: ten times the noise of a sensor."""


class StateMonitor:
    """Keeps the newest good sample and says what is wrong with it."""

    def __init__(self, spec: RobotSpec, limits: SafetyLimits, period: float) -> None:
        """Monitor a robot in a loop with this period [s]."""
        self._spec, self._limits = spec, limits
        self._late = max(limits.state_late, 3 * period)
        self._lost = max(limits.state_lost, self._late)
        self._widths = spec.state_widths
        self._lower, self._upper = (
            np.array([joint.position_limit for joint in spec.joints], float).reshape(-1, 2).T
        )
        self._speed = np.array([joint.velocity_limit for joint in spec.joints], float)
        self._effort = np.array([joint.effort_limit for joint in spec.joints], float)
        self._overspeed, self._overtorque = Debounced(limits.load_time), Debounced(limits.load_time)
        self._tracking, self._leaning = Debounced(limits.tracking_time), Debounced(limits.tilt_time)
        self._bounds = limits.joints or JointBounds.of(spec)
        self._astray_since = np.full(len(spec.joints), math.inf)
        self.state: RobotState | None = None
        """Newest good sample."""
        self.stamp = -math.inf
        """Its measurement time [s]."""

    def forget_times(self) -> None:
        """Let no stamp and no duration of before count: the clock has begun anew."""
        self.stamp = -math.inf
        for flag in (self._overspeed, self._overtorque, self._tracking, self._leaning):
            flag(False, 0.0)

    def stamp_fault(self, stamp: float, now: float) -> str | None:
        """Reason why a sample's stamp cannot be its time of measurement; None where it can.

        Args:
            stamp: Measurement time that the driver says [s].
            now: Time after it was read [s].
        """
        if not math.isfinite(stamp):
            return f"a sample's stamp is {stamp}, expected seconds of the loop's clock"
        if stamp > now + self._limits.clock_skew:
            return f"a sample's stamp lies {stamp - now:.3f} s in the future"
        return None

    def update(self, seen: TickInputs) -> dict[Condition, str]:
        """Conditions that hold now, with details. Real-time: never blocks."""
        now, state, stamp = seen.now, seen.state, seen.stamp
        found: dict[Condition, str] = {}
        back = ""
        if state is not None:
            fault = self.stamp_fault(stamp, max(now, seen.read_at))
            if fault is None and stamp > self.stamp:
                fault = self._fault(state)
                if fault is None:
                    self.state, self.stamp = state, stamp
            elif fault is None and stamp < self.stamp:
                back = f"; the stamps of samples went back by {self.stamp - stamp:.3f} s"
            if fault is not None:
                found[Condition.STATE_INVALID] = fault
        age = now - self.stamp
        said = f"newest sample is {1e3 * age:.0f} ms old{back}"
        if self.state is None:
            said = "no sample that can be used has come yet"
        if age > self._late + ROUNDING:
            found[Condition.STATE_LATE] = said
        if age > self._lost + ROUNDING:
            found[Condition.STATE_LOST] = said
        if self.state is not None:
            self._joints(found, now, self.state, seen.followed)
            self._base(found, now, self.state)
            self._reach(found, self.state)
        return found

    def _fault(self, state: RobotState) -> str | None:
        for name, width in self._widths.items():
            value = state.fields.get(name)
            if value is None or np.shape(value) != (1, width):
                got = None if value is None else np.shape(value)
                return f"'{name}' must be (1, {width}), got {got}"
            if not np.isfinite(value).all():
                return f"'{name}' is {value}"
            if name in _ATTITUDES and (fault := _no_attitude(value)):
                return f"'{name}' is {fault}"
        return None

    def _joints(
        self,
        found: dict[Condition, str],
        now: float,
        state: RobotState,
        followed: RobotCommand | None,
    ) -> None:
        limits, fields = self._limits, state.fields
        if "joint_position" in fields:
            q, slack = fields["joint_position"][0], limits.range_tolerance
            outside = (q < self._lower - slack) | (q > self._upper + slack)
            if outside.any():
                found[Condition.OUTSIDE_RANGE] = self._named(outside, q)
            distance = np.zeros(len(q))
            if isinstance(followed, JointCommand):
                stiff = np.asarray(followed.kp)[0] > 0
                distance = np.where(stiff, abs(np.asarray(followed.q)[0] - q), 0.0)
            far = distance > limits.tracking_error
            if not self._tracking(bool(far.any()), now):
                far = np.zeros(len(q), bool)
            far |= self._astray(distance, now)
            if far.any():
                found[Condition.TRACKING_ERROR] = self._named(far, distance) + " rad off"
        if "joint_velocity" in fields:
            dq = fields["joint_velocity"][0]
            fast = abs(dq) > limits.velocity_factor * self._speed
            if self._overspeed(bool(fast.any()), now):
                found[Condition.OVERSPEED] = self._named(fast, dq)
        if "joint_effort" in fields:
            tau = fields["joint_effort"][0]
            strong = abs(tau) > limits.effort_factor * self._effort
            if self._overtorque(bool(strong.any()), now):
                found[Condition.OVERTORQUE] = self._named(strong, tau)

    def _astray(self, distance: np.ndarray, now: float) -> np.ndarray:
        """Joints that were too far from their targets for too long, by their own bounds, (J,)."""
        far = distance > self._bounds.tracking_error
        self._astray_since = np.where(far, np.minimum(self._astray_since, now), math.inf)
        return now - self._astray_since >= np.asarray(self._bounds.tracking_time) - ROUNDING

    def _base(self, found: dict[Condition, str], now: float, state: RobotState) -> None:
        if "orientation_w" not in state.fields:
            return
        flies = bool(self._spec.rotors)
        upright = rotations.vertical(rotations.quaternion(state.orientation_w))[2]
        lean = math.acos(min(max(upright, -1.0), 1.0))
        if self._leaning(lean > (self._limits.tumble if flies else self._limits.tilt), now):
            condition = Condition.TUMBLE if flies else Condition.TILT
            found[condition] = f"leans {math.degrees(lean):.0f} deg"

    def _reach(self, found: dict[Condition, str], state: RobotState) -> None:
        limits, name = self._limits, "end_effector_position_b"
        if self._spec.rotors:
            name = "position_w"
        if name in state.fields:
            place = state.field(name)[0]
            inside = (place >= limits.workspace_lower) & (place <= limits.workspace_upper)
            if not inside.all():
                found[Condition.OUTSIDE_WORKSPACE] = f"{name} is {np.round(place, 3)}"
        if "wrench_ee" in state.fields:
            force = float(np.linalg.norm(state.wrench_ee[0, :3]))
            if force > limits.external_force:
                found[Condition.EXTERNAL_FORCE] = f"{force:.1f} N at the end effector"

    def _named(self, which: np.ndarray, values: np.ndarray) -> str:
        pairs = zip(self._spec.joint_names, which, values, strict=True)
        return ", ".join(f"{name} {value:.3g}" for name, true, value in pairs if true)


def _no_attitude(value: np.ndarray) -> str:
    """Words about a quaternion that is far from length one; empty for an attitude."""
    length = math.sqrt(sum(x * x for x in np.ravel(value).tolist()))
    if abs(length - 1.0) <= _LENGTH_TOLERANCE:
        return ""
    return f"{value}, of length {length:.3g}: no attitude"


class CommandMonitor:
    """Keeps the newest good command of each source and says what is wrong with it."""

    def __init__(
        self, spec: RobotSpec, limits: SafetyLimits, kinds: Collection[CommandKind],
        gain_sets: Collection[str],
    ) -> None:  # fmt: skip
        self._limits = limits
        self._kinds = tuple(kinds) or (spec.command,)
        self._gain_sets = frozenset(gain_sets)
        self._widths = command_widths(spec)
        # The end effector is measured in base axes, which are the world's where the base is fixed.
        moves = "position_w" in spec.sensors and not spec.rotors
        self._place = "position_w" if spec.rotors else "" if moves else "end_effector_position_b"
        self._moved = "drone" if spec.rotors else "end effector"
        self._seen: dict[SafetyState, StampedCommand | None] = dict.fromkeys(COMMANDED_STATES)
        self._faults: dict[SafetyState, str | None] = dict.fromkeys(COMMANDED_STATES)
        self._awaiting = False
        self.good: dict[SafetyState, StampedCommand | None] = dict.fromkeys(COMMANDED_STATES)
        """Newest good command of each source."""

    def forget(self) -> None:
        """Let no command from before a reset count."""
        self.good = dict.fromkeys(COMMANDED_STATES)

    def update(self, seen: TickInputs, state: RobotState | None) -> dict[Condition, str]:
        """Conditions that hold now, with details; `state` is the newest good sample.

        Real-time: never blocks.
        """
        now, safety = seen.now, seen.safety
        found: dict[Condition, str] = {}
        for source in COMMANDED_STATES:
            self._take(source, seen.commands.get(source), now)
            if source is safety and (fault := self._faults[source]):
                found[Condition.COMMAND_INVALID] = fault
        self._policy(found, now, safety)
        heard = seen.heartbeat if seen.heartbeat <= now + self._limits.clock_skew else -math.inf
        self._person(found, now, heard)
        for source, jump in zip(COMMANDED_STATES, (Condition.POLICY_JUMP, Condition.HUMAN_JUMP),
                                strict=True):  # fmt: skip
            good = self.good[source]
            if source is not safety and good is not None and state is not None:
                self._jump(found, jump, good.command, state)
        return found

    def _take(self, source: SafetyState, command: StampedCommand | None, now: float) -> None:
        if command is self._seen[source]:
            return
        self._seen[source] = command
        try:
            fault = None if command is None else self._fault(command, now)
        except Exception as error:  # noqa: BLE001 - whoever sends this may not stop the robot
            fault = f"a command cannot be read: {type(error).__name__}"
        self._faults[source] = fault
        if command is not None and fault is None:
            self.good[source] = command

    def _policy(self, found: dict[Condition, str], now: float, safety: SafetyState) -> None:
        """A policy is waited for while it is in charge, and in the pause that its silence made."""
        age = self._age(SafetyState.POLICY, now)
        late = age > self._limits.command_late + ROUNDING
        if late or self._faults[SafetyState.POLICY]:
            said = self._faults[SafetyState.POLICY] or f"newest command is {1e3 * age:.0f} ms old"
            found[Condition.POLICY_SILENT] = said
        pausing = self._awaiting and late and safety is SafetyState.HOLD
        self._awaiting = safety is SafetyState.POLICY or pausing
        if self._awaiting and late:
            said = f"newest command is {1e3 * age:.0f} ms old"
            found[Condition.COMMAND_LATE] = said
            if age > self._limits.command_lost + ROUNDING:
                found[Condition.COMMAND_LOST] = said

    def _person(self, found: dict[Condition, str], now: float, heartbeat: float) -> None:
        """A person is as old as the older of heartbeat and command: neither may be latched."""
        age = max(now - heartbeat, self._age(SafetyState.HUMAN, now))
        said = f"the person was heard {1e3 * age:.0f} ms ago"
        if math.isinf(age):
            said = "the person has not been heard, or at a time that has not come yet"
        if age > self._limits.lease_late + ROUNDING:
            found[Condition.LEASE_LATE] = said
        if age > self._limits.lease_lost + ROUNDING:
            found[Condition.LEASE_LOST] = said

    def _jump(
        self,
        found: dict[Condition, str],
        condition: Condition,
        command: RobotCommand,
        state: RobotState,
    ) -> None:
        limits, measured = self._limits, state.fields
        if isinstance(command, JointCommand) and "joint_position" in measured:
            far = float(np.max(abs(command.q - measured["joint_position"]), initial=0.0))
            if far > limits.first_command_jump:
                found[condition] = f"first command is {far:.2f} rad from the pose"
        if isinstance(command, PoseCommand) and self._place in measured:
            far = float(np.linalg.norm(command.position_w - measured[self._place]))
            if far > limits.first_position_jump:
                found[condition] = f"first command is {far:.2f} m from the {self._moved}"
        attitude = measured.get("end_effector_orientation_b")
        if isinstance(command, PoseCommand) and attitude is not None and condition not in found:
            way = rotations.multiply(
                rotations.conjugate(rotations.quaternion(attitude)),
                rotations.quaternion(command.orientation_w),
            )
            turn = math.hypot(*rotations.rotation_vector(way))
            if turn > limits.first_rotation_jump:
                found[condition] = f"first command is turned by {turn:.2f} rad from the pose"

    def _age(self, source: SafetyState, now: float) -> float:
        good = self.good[source]
        return math.inf if good is None else now - good.stamp

    def _fault(self, arrived: StampedCommand, now: float) -> str | None:
        command = arrived.command
        if arrived.fault:
            return arrived.fault
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
            if entry.name in _ATTITUDES and (fault := _no_attitude(value)):
                return f"{entry.name} is {fault}"
        return None


class SafetyMonitor:
    """From what a tick knows to the conditions that hold in it."""

    def __init__(
        self, spec: RobotSpec, limits: SafetyLimits, period: float, *,
        kinds: Collection[CommandKind] = (), gain_sets: Collection[str] = ("",),
    ) -> None:  # fmt: skip
        """Monitor a robot in a loop with this period [s].

        Args:
            kinds: Kinds of command that are taken; the robot's own if empty.
        """
        self._limits = limits
        self.measured = StateMonitor(spec, limits, period)
        self.commanded = CommandMonitor(spec, limits, kinds, gain_sets)
        self._late_ticks = [False] * max(1, round(1.0 / period))
        self._tick = self._late = 0
        self.details: Mapping[Condition, str] = {}
        """Conditions of the last tick, each with a few words."""

    def update(self, seen: TickInputs) -> frozenset[Condition]:
        """Every condition that holds now. Real-time: never blocks."""
        found = self.measured.update(seen)
        found |= self.commanded.update(seen, self.measured.state)
        self._loop(found, seen.missed)
        senders = [f"{seen.publishers} send commands"] if seen.publishers > 1 else []
        if doubled := "; ".join([*senders, *filter(None, [seen.doubled])]):
            found[Condition.SECOND_PUBLISHER] = doubled
        self.details = found
        return frozenset(found)

    def forget_times(self) -> None:
        """Let no time of before count: the clock has begun anew."""
        self.measured.forget_times()
        self.commanded.forget()

    def _loop(self, found: dict[Condition, str], missed: int) -> None:
        """One flag per tick of the last second; a tick after a miss is a late one."""
        ticks = len(self._late_ticks)
        place, self._tick = self._tick % ticks, self._tick + 1
        self._late += (missed > 0) - self._late_ticks[place]
        self._late_ticks[place] = missed > 0
        late = self._late
        # A single late tick of a slow loop is no share of anything.
        often = late > max(1.0, self._limits.overrun_share * ticks)
        if often or missed > self._limits.overrun_ticks:
            found[Condition.OVERRUN] = (
                f"{late} of {ticks} ticks came late, this one by {missed} periods"
            )


def command_widths(spec: RobotSpec) -> dict[str, int]:
    """Width of every entry of every kind of command."""
    widths = dict.fromkeys(("q", "dq", "tau", "kp", "kd"), spec.num_joints)
    widths |= {"speed": len(spec.rotors), "thrust": 1, "gripper": 1, "orientation_w": 4}
    return widths | dict.fromkeys(("rates_b", "position_w", "linear_b", "angular_b"), 3)
