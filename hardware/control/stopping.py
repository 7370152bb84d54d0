"""Commands that hold the robot safe: stand, arm, stop softly, damp; by kind of robot.

A robot with joints holds the pose commanded last, not the measured one: under gravity the measured
pose lies lower, and each hold would sag a little more. A drone cannot stand still, so it is
levelled, and lands where it has to stop.
"""

import math
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from hardware.control.safety import Condition, SafetyState
from hardware.controllers.handover import min_jerk
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.quaternion import rotate_inverse
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import (
    BodyRateCommand,
    CommandKind,
    JointCommand,
    RobotCommand,
    RotorCommand,
)

_RAMPED, _STOPPING = frozenset({Condition.RAMPED}), frozenset({Condition.STOPPING})
_NOTHING: frozenset[Condition] = frozenset()
_SUNK = 0.02
"""Loss of height by which a drone still sinks [m]."""
_AT_REST = 1.0
"""Time without that loss, after which it no longer sinks [s]."""
_LEAST_LIFT = 0.5
"""Share of its thrust at which a drone that does not sink rests on something."""
_RAMP_SPEED = 0.5
"""Largest speed of a ramp, as a fraction of each joint's limit. A choice."""
_LEVEL_GAIN = 5.0
"""Body rate per lean while a drone is levelled: a time constant of 0.2 s. A choice [1/s]."""
_CLIMB_GAIN = 0.2
"""Thrust per error of the vertical speed: 1 m/s asks for a fifth of the range. A choice [s/m]."""
_DESCENT_SPEED = 0.5
"""Of a landing drone: as a fall from 1.3 cm ends [m/s]. Where no speed is measured, a tenth of the
thrust is missing."""
_GROUND_HEIGHT = 0.05
"""Below this height a drone has landed: its origin lies above its feet [m]."""


@dataclass(kw_only=True)
class StopConfig:
    """Settings for standing up and stopping. The defaults are choices."""

    ramp_time: float = 2.5
    """From the measured pose to the one to arm in [s]; longer where a joint would be too fast."""
    pose: tuple[float, ...] = ()
    """End of the ramp instead of the default pose [rad], a number per joint."""
    in_place: bool = False
    """Arm where the joints are, without a ramp: a robot that lies is not moved before its policy
    gets it up."""
    stop_time: float = 1.0
    """From full stiffness to none in a controlled stop [s]."""
    hover_thrust: float = 0.5
    """Thrust that carries a drone, as a fraction of the largest."""
    landing_time: float = 5.0
    """After which the rotors stop where no height is measured, and within which the thrust of a
    drone that sinks no more fades to half: it rests on something, and the rotors stop [s]."""

    def __post_init__(self) -> None:
        for name in ("ramp_time", "stop_time", "landing_time"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} must be > 0 and finite, got {getattr(self, name)}")
        if not 0 < self.hover_thrust < 1:
            raise ConfigError(f"hover_thrust must lie in (0, 1), got {self.hover_thrust}")


MIN_JERK_PEAK = 1.875
"""Largest slope of `min_jerk`, in its middle."""


class JointStopping:
    """Damping, ramps and holding poses of a robot with joints.

    `held` is the setpoint followed last, within its limits.
    """

    kind = CommandKind.joint
    """Of the setpoints that it makes by itself."""

    def __init__(self, spec: RobotSpec, config: StopConfig | None = None) -> None:
        """Stop a robot by its own gains, and arm it in its default pose or the config's.

        Raises:
            ConfigError: The config's pose is none of this robot.
        """
        self._config = config or StopConfig()
        joints = spec.joints
        self._default = np.array([[joint.default_position for joint in joints]], float)
        self._armed = _within(spec, self._config.pose) if self._config.pose else self._default
        self._speed = np.array([[joint.velocity_limit for joint in joints]], float)
        self._kp = np.array([[joint.stiffness for joint in joints]], float)
        self._kd = np.array([[joint.damping for joint in joints]], float)
        self._zero = np.zeros_like(self._kd)
        self._held: RobotCommand = self._damping(self._default)
        self._from = self._still(self._default, self._zero, self._kd)
        self._since, self._duration = 0.0, self._config.ramp_time
        self._elapsed = 0.0
        self._left = self._kp  # of the stiffness, in a controlled stop

    def enter(
        self, safety: SafetyState, now: float, state: RobotState | None, held: RobotCommand | None
    ) -> None:
        """Remember where from."""
        measured = self._measured(state, self._default)
        self._since, self._elapsed = now, 0.0
        stiff = isinstance(held, JointCommand) and bool(np.any(held.kp > 0))
        if safety is SafetyState.ARMING:
            self._from = self._still(measured, self._kp, self._kd)
            if self._config.in_place:
                self._armed, self._duration = measured, 0.0
                self._left = self._kp
                return
            allowed = _RAMP_SPEED * self._speed
            times = MIN_JERK_PEAK * abs(self._armed - measured) / allowed
            self._duration = max(self._config.ramp_time, float(times.max(initial=0.0)))
        elif isinstance(held, JointCommand) and stiff:
            kd = np.maximum(held.kd, self._kd)
            self._held = self._from = replace(held, dq=self._zero, tau=self._zero, kd=kd)
        elif held is None or isinstance(held, JointCommand):
            self._held = self._from = self._still(measured, self._kp, self._kd)
        else:  # a pose, which another controller holds
            self._held = self.freeze(held, state)
            self._from = self._still(measured, self._kp, self._kd)
        self._left = self._from.kp

    def setpoint(self, safety: SafetyState, now: float, state: RobotState | None) -> RobotCommand:
        """Setpoint that holds the robot safe in a state. Real-time: never blocks.

        Stiffness that has faded in a controlled stop does not come back, whatever the clock does,
        nor does what a limit has taken of it.
        """
        elapsed = self._progress(safety, now)
        if safety is SafetyState.ARMING:
            done = _way(elapsed / self._duration) if self._duration else 1.0
            return replace(self._from, q=self._from.q + done * (self._armed - self._from.q))
        if safety is SafetyState.SAFE_STOP:
            left = 1.0 - _way(elapsed / self._config.stop_time)
            damping = np.maximum(self._from.kd, self._kd)
            kp = np.minimum(left * self._from.kp, self._left)
            return replace(self._from, kp=kp, kd=damping)
        if safety in (SafetyState.HOLD, SafetyState.READY):
            return self._held
        return self._damping(self._measured(state, self._default))

    def hear(self, sent: RobotCommand) -> None:
        """Take note of the command that came of the last `setpoint`."""
        if isinstance(sent, JointCommand):
            self._left = np.minimum(self._left, sent.kp)

    def freeze(self, command: RobotCommand, state: RobotState | None) -> RobotCommand:
        """A command without its motion, where a person in charge is not heard: the same pose."""
        if isinstance(command, JointCommand):
            return replace(command, dq=self._zero, tau=self._zero)
        return command

    def note(self, command: RobotCommand, now: float, state: RobotState) -> None:
        """A robot with joints is held by where it is told to be last, which `enter` gets."""

    def conditions(self, safety: SafetyState, now: float) -> frozenset[Condition]:
        """RAMPED once a ramp is complete, STOPPING while a stop is under way."""
        elapsed = self._progress(safety, now)
        if safety is SafetyState.ARMING and elapsed >= self._duration:
            return _RAMPED
        if safety is SafetyState.SAFE_STOP and elapsed < self._config.stop_time:
            return _STOPPING
        return _NOTHING

    def _progress(self, safety: SafetyState, now: float) -> float:
        """Time since the state was entered [s]; of a controlled stop the longest seen so far."""
        elapsed = now - self._since
        if safety is not SafetyState.SAFE_STOP:
            return elapsed
        if elapsed > self._elapsed:  # not where it is no number
            self._elapsed = elapsed
        return self._elapsed

    def _still(self, q: np.ndarray, kp: np.ndarray, kd: np.ndarray) -> JointCommand:
        return JointCommand(q=q, dq=self._zero, tau=self._zero, kp=kp, kd=kd)

    def _damping(self, q: np.ndarray) -> JointCommand:
        return self._still(q, self._zero, self._kd)

    def _measured(self, state: RobotState | None, absent: np.ndarray) -> np.ndarray:
        if state is None or "joint_position" not in state.fields:
            return absent
        return np.array(state.joint_position, dtype=np.float64)


class FlightStopping:
    """Levels and lands a drone by body rates and thrust; keeps rotors off that have not flown."""

    kind = CommandKind.body_rates

    def __init__(self, spec: RobotSpec, config: StopConfig | None = None) -> None:
        """Stop a drone; where its driver takes rotor speeds, off means these."""
        self._config = config or StopConfig()
        self._off: RobotCommand = BodyRateCommand(rates_b=np.zeros((1, 3)), thrust=np.zeros((1, 1)))
        if spec.command is CommandKind.rotors:  # no controller may turn rates into speeds then
            self._off = RotorCommand(speed=np.zeros((1, len(spec.rotors))))
        self._since = 0.0
        self._flying = False
        """True once it was told to lift, until it has landed or is disarmed."""
        self._off_since = math.inf
        """Since when a policy or a person lets its rotors rest [s]; infinite where they do not."""
        self._lowest = math.inf
        """Height of the landing drone when it last sank [m]."""
        self._sank = 0.0
        """Time at which it last sank [s]."""
        self._lift = 1.0
        """Share of the thrust that is left: less where the drone does not sink."""

    def enter(
        self, safety: SafetyState, now: float, state: RobotState | None, held: RobotCommand | None
    ) -> None:
        """A drone that was told to lift flies on, also where its last command had no thrust."""
        self._since = self._sank = now
        self._lowest, self._lift, self._off_since = math.inf, 1.0, math.inf
        self._flying = self._flying or (held is not None and _lifts(held))
        if safety in (SafetyState.PASSIVE, SafetyState.ESTOP):
            self._flying = False

    def setpoint(self, safety: SafetyState, now: float, state: RobotState | None) -> RobotCommand:
        """Setpoint that holds the robot safe in a state. Real-time: never blocks."""
        if safety is SafetyState.SAFE_STOP:
            self._flying = self._flying and not self._landed(now, state)
            sink = _DESCENT_SPEED
        else:
            sink = 0.0
        if not self._flying or safety in (SafetyState.PASSIVE, SafetyState.ESTOP):
            return self._off
        return self._level(state, sink)

    def hear(self, sent: RobotCommand) -> None:
        """Limits take nothing from this stop that could come back."""

    def freeze(self, command: RobotCommand, state: RobotState | None) -> RobotCommand:
        """Level, at the thrust that hovers, where a person is not heard; off stays off."""
        return self._level(state, 0.0) if self._flying or _lifts(command) else self._off

    def note(self, command: RobotCommand, now: float, state: RobotState) -> None:
        """Take note of a followed command of a policy or a person: whether the drone flies.

        Without thrust for a moment it still flies. It does not where it is measured on the ground,
        or where its rotors have rested for so long that it must lie on something.
        """
        if _lifts(command):
            self._flying, self._off_since = True, math.inf
            return
        self._off_since = min(self._off_since, now)
        rested = now - self._off_since >= self._config.landing_time
        self._flying = self._flying and not (rested or self._on_ground(state))

    def conditions(self, safety: SafetyState, now: float) -> frozenset[Condition]:
        """There is no ramp; a stop lasts until the drone has landed."""
        if safety is SafetyState.ARMING:
            return _RAMPED
        return _STOPPING if safety is SafetyState.SAFE_STOP and self._flying else _NOTHING

    def _level(self, state: RobotState | None, sink: float) -> BodyRateCommand:
        """Turn the body's z axis up by the shortest way; thrust for a vertical speed of -`sink`."""
        config, fields = self._config, {} if state is None else state.fields
        up = np.array([[0.0, 0.0, 1.0]])
        if "orientation_w" in fields:
            up = rotate_inverse(np.asarray(fields["orientation_w"], float), up)
        x, y, z = up[0]
        if z < 0:  # upside down: the sine of the lean shrinks again, its direction stays
            x, y = np.array([x, y]) / max(math.hypot(x, y), 1e-6)
        rates = _LEVEL_GAIN * np.array([[-y, x, 0.0]])
        thrust = config.hover_thrust * (1.0 if sink == 0 else 0.9)
        if "linear_velocity_w" in fields:
            climb = float(fields["linear_velocity_w"][0, 2])
            thrust = config.hover_thrust + _CLIMB_GAIN * (-sink - climb)
        # A leaning thrust carries less; beyond 60 degrees nothing makes up for it.
        thrust = self._lift * thrust / max(z, 0.5)
        return BodyRateCommand(rates_b=rates, thrust=np.clip([[thrust]], 0.0, 1.0))

    def _landed(self, now: float, state: RobotState | None) -> bool:
        """Say whether it is on the ground, or on something that is higher.

        One that does not sink may rest on a table, or have more thrust than its config says: so the
        thrust fades first, and whoever still flies sinks by that.
        """
        config = self._config
        if state is None or "position_w" not in state.fields:
            return now - self._since >= config.landing_time
        height = float(state.position_w[0, 2])
        if height < self._lowest - _SUNK:
            self._lowest, self._sank = height, now
        faded = (now - self._sank - _AT_REST) / config.landing_time
        self._lift = min(self._lift, max(1.0 - (1.0 - _LEAST_LIFT) * faded, _LEAST_LIFT))
        return self._on_ground(state) or self._lift <= _LEAST_LIFT

    def _on_ground(self, state: RobotState) -> bool:
        fields = state.fields
        return "position_w" in fields and fields["position_w"][0, 2] < _GROUND_HEIGHT


def _lifts(command: RobotCommand) -> bool:
    """True for thrust or turning rotors, and for a pose, whose controller lifts."""
    thrust = getattr(command, "thrust", getattr(command, "speed", None))
    return thrust is None or bool(np.any(thrust > 0))


def _within(spec: RobotSpec, pose: tuple[float, ...]) -> np.ndarray:
    """A pose that every joint can take, (1, J)."""
    if len(pose) != spec.num_joints:
        raise ConfigError(
            f"a pose to arm in has {len(pose)} numbers; expected {spec.num_joints}, one per joint "
            f"of {spec.name}"
        )
    for joint, position in zip(spec.joints, pose, strict=True):
        low, high = joint.position_limit
        if not low <= position <= high:
            raise ConfigError(
                f"a pose to arm in has {position:g} rad for {joint.name}; expected {low:g} to "
                f"{high:g}, its limits"
            )
    return np.array([pose], float)


def _way(share: float) -> float:
    return min_jerk(min(max(share, 0.0), 1.0))


Stopping: TypeAlias = JointStopping | FlightStopping
"""Makes the setpoints of every state but POLICY and HUMAN."""


def make_stopping(spec: RobotSpec, config: StopConfig | None = None) -> Stopping:
    """The stopping of a robot of this kind."""
    return FlightStopping(spec, config) if spec.rotors else JointStopping(spec, config)
