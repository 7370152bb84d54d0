"""Limits of commands, the last thing before the robot.

Joint commands follow the "range limiter" and "soft limiter" of ros2_control (53b9999d1):
`joint_limits_helpers.cpp` and `joint_soft_limiter.cpp`. Two deviations make the bounds
hold for the stream of commands itself, whatever the measurement says: the velocity that the
acceleration limit starts from is that of the previous *command* (there: the measured one, and
without its sign), and a joint with an acceleration limit brakes ahead of its position limits by the
soft limiter's own rule.

Beside the feed-forward torque, the torque that a command makes in a motor with its own loop,

    kp (q_sent - q) + kd (dq_sent - dq) + tau,

stays within the effort limit at the measured state of the tick, and two commands in a row differ by
no more than a rate of torque. Both hold because the sent q moves; the target that it stands for is
kept beside it, so that a joint which does not get there is noticed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardware.control.clock import ROUNDING
from robot_rl.core.errors import ConfigError, ShapeError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import (
    BodyRateCommand,
    CommandKind,
    JointCommand,
    PoseCommand,
    RobotCommand,
    RotorCommand,
)

Vector: TypeAlias = NDArray[np.float64]


RETURN_SPEED = math.radians(1.0)
"""Largest speed of a joint that is measured outside its soft limits [rad/s] (soft limiter)."""


_ENTRIES = ("q", "dq", "tau", "kp", "kd")


BODY_RATES = (10.0, 10.0, 6.0)
"""Largest body rates of a drone about x, y and z [rad/s]; a choice, to be narrowed per vehicle."""


class Limited(NamedTuple):
    """A command within limits."""

    command: RobotCommand
    clamped: bool
    """A limit changed the command."""
    replaced: bool
    """An entry was no number, so that the previous one stayed."""


GAIN_TIME = 0.1
"""Shortest time in which a gain may rise from nothing to its largest value [s]."""


GAIN_FACTOR = 2.0
"""Largest multiple of a joint's own gains that a command may ask for."""


@dataclass(frozen=True, kw_only=True)
class JointBounds:
    """Bounds of each of J joints beside those of its `JointSpec`; a robot file narrows them."""

    stiffness: tuple[float, ...]
    """Largest stiffness [N m/rad]."""
    damping: tuple[float, ...]
    """Largest damping [N m s/rad]."""
    torque_rate: tuple[float, ...]
    """Largest change of a command's torque [N m/s]."""
    tracking_error: tuple[float, ...]
    """Largest distance from the target, beside `SafetyLimits.tracking_error` [rad]."""
    tracking_time: tuple[float, ...]
    """Time for which that must last [s]."""

    @classmethod
    def of(cls, spec: RobotSpec, gain_factor: float = GAIN_FACTOR) -> "JointBounds":
        """Bounds of a robot without a file of its own.

        Its torque changes as fast as where its own stiffness follows a target at its largest speed.
        """
        joints = spec.joints
        return cls(
            stiffness=tuple(gain_factor * joint.stiffness for joint in joints),
            damping=tuple(gain_factor * joint.damping for joint in joints),
            torque_rate=tuple(
                joint.stiffness * joint.velocity_limit if joint.stiffness > 0 else math.inf
                for joint in joints
            ),
            tracking_error=(math.inf,) * len(joints),
            tracking_time=(0.0,) * len(joints),
        )


@dataclass(frozen=True, kw_only=True)
class JointLimits:
    """Limits of J joints, each an array (J,)."""

    lower: Vector
    """Hard position limits [rad] or [m]."""
    upper: Vector
    velocity: Vector
    """Largest speed of the command [rad/s]; infinite for none."""
    acceleration: Vector
    """Largest change of that speed [rad/s^2]; infinite for none."""
    effort: Vector
    """Largest torque of a command at the measured state [N m]."""
    stiffness: Vector
    """Largest stiffness [N m/rad]."""
    damping: Vector
    """Largest damping [N m s/rad]."""
    soft_lower: Vector
    """Soft position limits: beyond them the command is driven back; the hard ones for none."""
    soft_upper: Vector
    torque_rate: Vector
    """Largest change of that torque by commands of a policy or a person [N m/s]; infinite for
    none."""
    k_position: float = math.inf
    """Speed allowed per distance to a soft limit [1/s]; infinite for none."""
    k_velocity: float = math.inf
    """Torque allowed per distance to a velocity bound [N m s/rad]; infinite for none."""
    tolerance: float = 0.002
    """Distance outside the hard limits at which a joint may still move [rad]."""

    def __post_init__(self) -> None:
        if not np.all(self.lower < self.upper):
            raise ConfigError(f"joint limits: lower {self.lower} must lie below {self.upper}")
        inside = (self.lower <= self.soft_lower) & (self.soft_upper <= self.upper)
        if not np.all(inside & (self.soft_lower < self.soft_upper)):
            raise ConfigError("joint limits: the soft limits must lie within the hard ones")
        if not np.all(np.isfinite(self.velocity) | np.isinf(self.acceleration)):
            raise ConfigError("joint limits: a limit of acceleration needs one of velocity")
        for name in ("velocity", "acceleration", "effort", "torque_rate", "k_position",
                     "k_velocity"):  # fmt: skip
            if not np.all(getattr(self, name) > 0):
                raise ConfigError(f"joint limits: {name} must be > 0, got {getattr(self, name)}")

    @classmethod
    def of(
        cls, spec: RobotSpec, *, acceleration: float = math.inf, soft_margin: float = 0.0,
        gain_factor: float = GAIN_FACTOR, k_position: float = math.inf,
        k_velocity: float = math.inf, bounds: JointBounds | None = None,
    ) -> "JointLimits":  # fmt: skip
        """Limits of a robot.

        Args:
            acceleration: Of every joint's command [rad/s^2].
            soft_margin: Distance of the soft limits from the hard ones [rad].
            gain_factor: Largest multiple of the spec's gains that a command may ask for.
            k_position: See the field; a tenth of a second's approach is 10.
            bounds: Largest gains and rates of torque instead of those of `JointBounds.of`.
        """
        joints, bounds = spec.joints, bounds or JointBounds.of(spec, gain_factor)
        lower, upper = np.array([j.position_limit for j in joints], float).reshape(-1, 2).T
        return cls(
            lower=lower,
            upper=upper,
            velocity=np.array([j.velocity_limit for j in joints], float),
            acceleration=np.full(len(joints), acceleration),
            effort=np.array([j.effort_limit for j in joints], float),
            stiffness=np.array(bounds.stiffness, float),
            damping=np.array(bounds.damping, float),
            torque_rate=np.array(bounds.torque_rate, float),
            soft_lower=lower + soft_margin,
            soft_upper=upper - soft_margin,
            k_position=k_position,
            k_velocity=k_velocity,
        )


class JointLimiter:
    """Keeps joint commands within limits; remembers the previous command. One robot (N = 1)."""

    def __init__(self, limits: JointLimits) -> None:
        """Limit by `limits`; the first `limit` starts at the measured pose if `start` did not."""
        self.limits = limits
        # With v <= k (limit - q) and k <= a / v_max, a command never needs more than a to stop.
        self._braking = np.full(len(limits.lower), limits.k_position)
        braked = np.isfinite(limits.acceleration)
        self._braking[braked] = np.minimum(
            limits.k_position, limits.acceleration[braked] / limits.velocity[braked]
        )
        self._has_soft = (limits.soft_lower > limits.lower) | (limits.soft_upper < limits.upper)
        self._zero = np.zeros(len(limits.lower))
        self._begin(self._zero)
        self._started = False

    def start(self, state: RobotState) -> None:
        """Begin at the measured pose, at rest; where none is measured, at the nearest to zero."""
        measured = self._measured(state, "joint_position", self._zero)
        self._begin(_clip(measured, self.limits.lower, self.limits.upper))

    @property
    def target(self) -> JointCommand:
        """Command let through last, before its torque was bounded; each entry (1, J)."""
        return _batch(self._last)

    def limit(
        self, command: RobotCommand, state: RobotState, dt: float, *, abrupt: bool = False
    ) -> Limited:
        """The nearest allowed command. Real-time: never blocks.

        Args:
            command: Joint command, each entry (1, J).
            dt: Time since the previous command [s]. One that is no time (0, negative, NaN,
                infinite) counts as 1 ns: the position stays, and everything keeps its limits.
            abrupt: True if torques and gains may leap, as where the robot is stopped.
        """
        if not isinstance(command, JointCommand):
            raise ShapeError(f"a joint limiter takes JointCommand, got {type(command).__name__}")
        dt = _passed(dt)
        if not self._started:
            self.start(state)
        asked, replaced = self._finite(command)
        q = self._measured(state, "joint_position", self._last.q)
        dq = self._measured(state, "joint_velocity", self._zero)
        target = self._bounded(asked, q, dq, dt)
        sent = self._within_torque(target, q, dq, dt, abrupt)
        clamped = any(
            not np.array_equal(getattr(sent, name), getattr(asked, name))
            for name in (*_ENTRIES, *(["gripper"] if asked.gripper is not None else []))
        )
        self._speed = (target.q - self._last.q) / dt
        self._last, self._sent, self._fresh = target, sent, False
        return Limited(_batch(sent), clamped, replaced)

    def _bounded(self, asked: JointCommand, q: Vector, dq: Vector, dt: float) -> JointCommand:
        limits, last = self.limits, self._last
        low, high = self._velocity_bounds(q, dt)
        # The difference of two positions divided by dt loses digits, hence positions are compared.
        target = _clip(asked.q, last.q + low * dt, last.q + high * dt)
        low_dq, high_dq = self._setpoint_bounds(q, dt)
        low_tau, high_tau = self._effort_bounds(q, dq, (low, high))
        return JointCommand(
            q=_clip(target, limits.lower, limits.upper),
            dq=_clip(asked.dq, low_dq, high_dq),
            tau=_clip(asked.tau, low_tau, high_tau),
            kp=_clip(asked.kp, 0.0, limits.stiffness),
            kd=_clip(asked.kd, 0.0, limits.damping),
            gripper=None if asked.gripper is None else _clip(asked.gripper, 0.0, 1.0),
        )

    def _within_torque(
        self, target: JointCommand, q: Vector, dq: Vector, dt: float, abrupt: bool
    ) -> JointCommand:
        """The target with a torque that is neither too large nor leaps."""
        limits, steady, before = self.limits, self._steady, self._sent.q
        reach = limits.velocity * dt
        sent = replace(target, q=_clip(target.q, steady.q - reach, steady.q + reach))
        if not (abrupt or self._fresh):
            sent = self._steadied(sent, steady, q, dq, dt)
        self._steady = sent
        over = _beyond(_torque(sent, q, dq), limits.effort)
        if not over.any():
            return sent  # back from where the bound had moved it at once, as that takes torque away
        stiff = sent.kp > 1e-6  # less moves nothing, and does not divide well
        moved = sent.q - np.divide(over, sent.kp, where=stiff, out=np.zeros_like(over))
        # Towards the joint only: ahead of a fast one it would drive what damping shall brake.
        moved = _clip(moved, np.minimum(sent.q, q), np.maximum(sent.q, q))
        # Away from where the command would be no faster than the joint: a measurement may be wrong.
        low = np.maximum(np.minimum(before - reach, sent.q), limits.lower)
        high = np.minimum(np.maximum(before + reach, sent.q), limits.upper)
        sent = replace(sent, q=np.where(stiff, _clip(moved, low, high), sent.q))
        return self._within_effort(sent, q, dq)

    def _within_effort(self, sent: JointCommand, q: Vector, dq: Vector) -> JointCommand:
        # Twice: beside a damping of 1e300 N m the digits of the stiffness are lost at first.
        for _ in range(2):
            over = _beyond(_torque(sent, q, dq), self.limits.effort)
            if not over.any():
                return sent
            sent = _weakened(sent, over, q, dq)
        return sent

    def _steadied(
        self, target: JointCommand, before: JointCommand, q: Vector, dq: Vector, dt: float
    ) -> JointCommand:
        """As much of the way from the previous command as gains and torque may change in a step.

        Both commands are compared at the present state: the robot's own motion, such as an impact
        that its damping answers, is no change of the command.
        """
        limits, step = self.limits, dt / GAIN_TIME
        kp = np.minimum(target.kp, before.kp + step * limits.stiffness)
        kd = np.minimum(target.kd, before.kd + step * limits.damping)
        # Along a share s of the way the torque is a + b s + c s^2, as gains and errors both change.
        stiffer, harder = kp - before.kp, kd - before.kd
        move, faster = target.q - before.q, target.dq - before.dq
        c = stiffer * move + harder * faster
        b = stiffer * (before.q - q) + before.kp * move + target.tau - before.tau
        b += harder * (before.dq - dq) + before.kd * faster
        allowed = limits.torque_rate * dt
        change = abs(b) + abs(c)  # |b s + c s^2| <= s (|b| + |c|)
        if np.all(change <= allowed):
            return replace(target, kp=kp, kd=kd)
        share = np.where(change > allowed, allowed / np.maximum(change, 1e-300), 1.0)
        return replace(
            target, q=before.q + share * move, dq=before.dq + share * faster,
            tau=before.tau + share * (target.tau - before.tau), kp=before.kp + share * stiffer,
            kd=before.kd + share * harder,
        )  # fmt: skip

    def _velocity_bounds(self, q: Vector, dt: float) -> tuple[Vector, Vector]:
        """Between which speeds the commanded position may move, (J,) each."""
        limits, last = self.limits, self._last.q
        # Soft limiter: -k (q - limit), with the previous command, at most one whole step.
        k = np.minimum(self._braking, 1.0 / dt)
        low = _clip(k * (limits.soft_lower - last), -limits.velocity, limits.velocity)
        high = _clip(k * (limits.soft_upper - last), -limits.velocity, limits.velocity)
        outside = (q < limits.soft_lower) | (q > limits.soft_upper)
        crawl = np.where(outside, np.where(self._far_outside(q), 0.0, RETURN_SPEED), math.inf)
        crawl = np.where(self._has_soft, crawl, math.inf)
        low, high = _clip(low, -crawl, crawl), _clip(high, -crawl, crawl)
        return self._within_acceleration(low, high, self._speed, dt)

    def _setpoint_bounds(self, q: Vector, dt: float) -> tuple[Vector, Vector]:
        """Bounds of the velocity setpoint: no further than the limit within one step, (J,) each."""
        limits = self.limits
        fastest = np.where(self._far_outside(q), 0.0, limits.velocity)
        low = _clip((limits.lower - q) / dt, -fastest, fastest)
        high = _clip((limits.upper - q) / dt, -fastest, fastest)
        return self._within_acceleration(low, high, self._last.dq, dt)

    def _effort_bounds(
        self, q: Vector, dq: Vector, bounds: tuple[Vector, Vector]
    ) -> tuple[Vector, Vector]:
        """Bounds of the torque: none outward at a stop, none forward when too fast, (J,) each."""
        limits = self.limits
        low, high = -limits.effort, limits.effort
        if math.isfinite(limits.k_velocity):
            low = _clip(limits.k_velocity * (bounds[0] - dq), low, high)
            high = _clip(limits.k_velocity * (bounds[1] - dq), -limits.effort, high)
        blocked_below = ((q <= limits.lower) & (dq <= 0)) | (dq < -limits.velocity)
        blocked_above = ((q >= limits.upper) & (dq >= 0)) | (dq > limits.velocity)
        low = np.where(
            blocked_below, np.maximum(low, 0.0), np.where(blocked_above, -limits.effort, low)
        )
        high = np.where(
            blocked_above, np.minimum(high, 0.0), np.where(blocked_below, limits.effort, high)
        )
        return low, high

    def _within_acceleration(
        self, low: Vector, high: Vector, speed: Vector, dt: float
    ) -> tuple[Vector, Vector]:
        step = self.limits.acceleration * dt
        return _clip(low, speed - step, speed + step), _clip(high, speed - step, speed + step)

    def _begin(self, q: Vector) -> None:
        zero = self._zero
        self._last = JointCommand(q=q, dq=zero, tau=zero, kp=zero, kd=zero)
        self._steady = self._sent = self._last  # both before and after the bound of the torque
        self._fresh = True  # the first command has no gains and no torque to leap from
        self._speed = zero
        self._started = True

    def _measured(self, state: RobotState, name: str, absent: Vector) -> Vector:
        """A measured field (J,), with `absent` wherever nothing or no number was measured."""
        if name not in state.fields:
            return absent
        row = _row(state.field(name), len(absent), name)
        return np.where(np.isfinite(row), row, absent)

    def _far_outside(self, q: Vector) -> NDArray[np.bool_]:
        limits = self.limits
        return (q < limits.lower - limits.tolerance) | (q > limits.upper + limits.tolerance)

    def _finite(self, command: JointCommand) -> tuple[JointCommand, bool]:
        """The command as (J,) rows, with the previous entry wherever one is no number."""
        rows, replaced = {}, False
        for name in _ENTRIES:
            last = getattr(self._last, name)
            row = _row(getattr(command, name), len(last), name)
            good = np.isfinite(row)
            replaced |= not good.all()
            rows[name] = np.where(good, row, last)
        gripper = command.gripper
        if gripper is not None:
            gripper = np.asarray(gripper, np.float64).reshape(1, 1)
            if not np.isfinite(gripper).all():
                gripper, replaced = self._last.gripper, True
        return JointCommand(**rows, gripper=gripper), replaced


class BoxLimiter:
    """Each entry of a command in its range; one that is no number stays as it was."""

    def __init__(
        self, kind: type[RobotCommand], ranges: Mapping[str, tuple[Vector, Vector]]
    ) -> None:
        """Limit commands of a kind by the lowest and highest values of its entries, (1, width)."""
        self._kind, self._ranges = kind, ranges
        self.start()

    def start(self, state: RobotState | None = None) -> None:
        """Rotors at rest, no rates and no thrust."""
        self._last = {name: np.zeros_like(high) for name, (_, high) in self._ranges.items()}

    def limit(
        self, command: RobotCommand, state: RobotState, dt: float, *, abrupt: bool = False
    ) -> Limited:
        """The nearest allowed command."""
        if not isinstance(command, self._kind):
            raise ShapeError(
                f"this limiter takes {self._kind.__name__}, got {type(command).__name__}"
            )
        clamped = replaced = False
        asked = {n: _finite(getattr(command, n), last, n) for n, last in self._last.items()}
        for name, (low, high) in self._ranges.items():
            values, absent = asked[name]
            self._last[name] = np.clip(values, low, high)
            clamped |= not np.array_equal(self._last[name], values)
            replaced |= absent
        return Limited(self._kind(**self._last), clamped, replaced)


def rotor_limiter(num_rotors: int) -> BoxLimiter:
    """Rotor speeds in [0, 1]."""
    full = np.ones((1, num_rotors))
    return BoxLimiter(RotorCommand, {"speed": (0 * full, full)})


def body_rate_limiter(rates: Sequence[float] = BODY_RATES, thrust: float = 1.0) -> BoxLimiter:
    """Body rates about x, y and z [rad/s] and collective thrust, in (0, 1], within limits."""
    fast, full = np.array([rates], float), np.array([[thrust]], float)
    return BoxLimiter(BodyRateCommand, {"rates_b": (-fast, fast), "thrust": (0 * full, full)})


@dataclass(frozen=True, kw_only=True)
class PoseLimits:
    """Workspace and speed of an end effector's target."""

    lower: tuple[float, float, float] = (-math.inf, -math.inf, -math.inf)
    """Corner of the workspace box [m], axes of the command."""
    upper: tuple[float, float, float] = (math.inf, math.inf, math.inf)
    speed: float = 0.25
    """Largest speed of the target [m/s]: that of manual operation in ISO 10218 as commonly told."""


class PoseLimiter:
    """Clamps a pose target, before a controller follows it: to a box, and in speed."""

    def __init__(self, limits: PoseLimits) -> None:
        self._limits = limits
        self._last: PoseCommand | None = None

    def start(self, state: RobotState) -> None:
        """Forget the previous target: the next one is where the speed limit starts from."""
        self._last = None

    def limit(
        self, command: RobotCommand, state: RobotState, dt: float, *, abrupt: bool = False
    ) -> Limited:
        """The nearest allowed target; raises ShapeError where the first one is no number.

        Args:
            command: Pose target, (1, ...) arrays.
            dt: Time since the previous target [s]; see `JointLimiter.limit`.
            abrupt: Without effect here.
        """
        if not isinstance(command, PoseCommand):
            raise ShapeError(f"a pose limiter takes PoseCommand, got {type(command).__name__}")
        last = self._last or command
        position, no_position = _finite(command.position_w, last.position_w, "position_w")
        turn, no_turn = _finite(command.orientation_w, last.orientation_w, "orientation_w")
        if not (np.isfinite(position).all() and np.isfinite(turn).all()):
            raise ShapeError("the first pose target must be finite numbers")
        length = float(np.linalg.norm(turn))
        turn = turn / length if length > 1e-6 else np.asarray(last.orientation_w, float)
        boxed = np.clip(position, self._limits.lower, self._limits.upper)
        if self._last is not None:
            step = boxed - last.position_w
            distance = float(np.linalg.norm(step))
            boxed = last.position_w + step * min(
                1.0, self._limits.speed * _passed(dt) / max(distance, 1e-12)
            )
        self._last = PoseCommand(position_w=boxed, orientation_w=turn, gripper=command.gripper)
        clamped = not np.array_equal(boxed, position)
        return Limited(self._last, clamped, no_position or no_turn)


Limiter: TypeAlias = JointLimiter | BoxLimiter | PoseLimiter
"""The last thing that a command passes."""


def make_limiter(spec: RobotSpec, bounds: JointBounds | None = None) -> Limiter:
    """The limiter of the command that a robot's driver accepts.

    Args:
        bounds: Of each joint; those of `JointBounds.of` if None.
    """
    if spec.command is CommandKind.joint:
        return JointLimiter(JointLimits.of(spec, bounds=bounds))
    if spec.command is CommandKind.rotors:
        return rotor_limiter(len(spec.rotors))
    if spec.command is CommandKind.body_rates:
        return body_rate_limiter()
    raise ConfigError(
        f"robot '{spec.name}' accepts '{spec.command.value}' commands, which nothing limits yet; "
        "known: joint, rotors, body_rates"
    )


def _torque(command: JointCommand, q: Vector, dq: Vector) -> Vector:
    """Torque that a command of (J,) rows makes in a measured state, (J,) [N m]."""
    return command.kp * (command.q - q) + command.kd * (command.dq - dq) + command.tau


def _beyond(torque: Vector, effort: Vector) -> Vector:
    """Part of a torque beyond its limit, with its sign; rounding is no part."""
    return torque - _clip(torque, -effort, effort)


def _weakened(command: JointCommand, over: Vector, q: Vector, dq: Vector) -> JointCommand:
    """The command without what makes a torque too large that no position could settle.

    Taken away are feed-forward, then damping, then stiffness, each no further than to nothing.
    """
    entries = {"tau": 1.0, "kd": command.dq - dq, "kp": command.q - q}
    weaker = {}
    for name, lever in entries.items():
        term = getattr(command, name) * lever
        same = np.sign(term) == np.sign(over)
        cut = np.where(same, np.sign(over) * np.minimum(abs(over), abs(term)), 0.0)
        share = np.divide(cut, term, where=cut != 0, out=np.zeros_like(over))
        weaker[name] = getattr(command, name) * (1.0 - share)
        over = over - cut
    return replace(command, **weaker)


def _batch(command: JointCommand) -> JointCommand:
    """Rows (J,) as a batch of one robot, (1, J); a gripper is one already."""
    rows = {name: getattr(command, name)[None] for name in _ENTRIES}
    return JointCommand(**rows, gripper=command.gripper)


def _passed(dt: float) -> float:
    """A time in which commands may move [s]: 1 ns where it is none."""
    return dt if ROUNDING <= dt < math.inf else ROUNDING


def _row(value: object, count: int, name: str) -> Vector:
    """A batch of one robot as a row of its own, (count,)."""
    row = np.asarray(value, dtype=np.float64)
    if row.shape not in ((1, count), (count,)):
        raise ShapeError(f"'{name}' must be (1, {count}) for this robot, got {row.shape}")
    return row.reshape(count)


def _clip(value: Vector, low: ArrayLike, high: ArrayLike) -> Vector:
    """Like `numpy.clip`, in half its time for rows of a dozen entries."""
    return np.minimum(np.maximum(value, low), high)


def _finite(
    value: object, last: NDArray[np.float64], name: str
) -> tuple[NDArray[np.float64], bool]:
    """The value with the previous one wherever it is no number, and whether it was replaced."""
    asked = np.asarray(value, dtype=np.float64)
    if asked.shape != last.shape:
        raise ShapeError(f"'{name}' must be {last.shape} for this robot, got {asked.shape}")
    good = np.isfinite(asked)
    return np.where(good, asked, last), not bool(good.all())
