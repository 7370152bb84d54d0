"""Limits of commands that are not for joints: rotors, body rates, and end-effector poses."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hardware.control.limits.limiter import JointLimiter, JointLimits, Limited
from robot_rl.core.errors import ConfigError, ShapeError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import (
    BodyRateCommand,
    CommandKind,
    PoseCommand,
    RobotCommand,
    RotorCommand,
)
from robot_rl.core.robot_state import RobotState


class Limiter(Protocol):
    """The last thing that a command passes."""

    def start(self, state: RobotState) -> None:
        """Begin at the measured state."""
        ...

    def limit(self, command: RobotCommand, state: RobotState, dt: float) -> Limited:
        """The nearest allowed command. Real-time: never blocks."""
        ...


class RotorLimiter:
    """Rotor speeds in [0, 1]; an entry that is no number stays as it was."""

    def __init__(self, num_rotors: int) -> None:
        """Limit commands (1, num_rotors)."""
        self._last = np.zeros((1, num_rotors))

    def start(self, state: RobotState) -> None:
        """Rotors at rest."""
        self._last = np.zeros_like(self._last)

    def limit(self, command: RobotCommand, state: RobotState, dt: float) -> Limited:
        """The nearest allowed command."""
        if not isinstance(command, RotorCommand):
            raise ShapeError(f"a rotor limiter takes RotorCommand, got {type(command).__name__}")
        asked, replaced = _finite(command.speed, self._last, "speed")
        self._last = np.clip(asked, 0.0, 1.0)
        clamped = not np.array_equal(self._last, asked)
        return Limited(RotorCommand(speed=self._last), clamped, replaced)


@dataclass(frozen=True, kw_only=True)
class BodyRateLimits:
    """Limits of a command to an inner loop."""

    rates: tuple[float, float, float] = (10.0, 10.0, 6.0)
    """Largest body rates about x, y and z [rad/s]; a choice, to be narrowed per vehicle."""
    thrust: float = 1.0
    """Largest collective thrust, in (0, 1]."""


class BodyRateLimiter:
    """Body rates and thrust within limits; an entry that is no number stays as it was."""

    def __init__(self, limits: BodyRateLimits | None = None) -> None:
        """Limit by `limits`."""
        limits = limits or BodyRateLimits()
        self._high = np.array([[*limits.rates, limits.thrust]], float)
        self._low = np.array([[*(-rate for rate in limits.rates), 0.0]])
        self._last = np.zeros((1, 4))

    def start(self, state: RobotState) -> None:
        """No rates and no thrust."""
        self._last = np.zeros((1, 4))

    def limit(self, command: RobotCommand, state: RobotState, dt: float) -> Limited:
        """The nearest allowed command."""
        if not isinstance(command, BodyRateCommand):
            raise ShapeError(
                f"a body-rate limiter takes BodyRateCommand, got {type(command).__name__}"
            )
        rates, no_rates = _finite(command.rates_b, self._last[:, :3], "rates_b")
        thrust, no_thrust = _finite(command.thrust, self._last[:, 3:], "thrust")
        asked = np.concatenate([rates, thrust], axis=1)  # 3 rates, 1 thrust
        self._last = np.clip(asked, self._low, self._high)
        sent = BodyRateCommand(rates_b=self._last[:, :3], thrust=self._last[:, 3:])
        return Limited(sent, not np.array_equal(self._last, asked), no_rates or no_thrust)


@dataclass(frozen=True, kw_only=True)
class PoseLimits:
    """Where and how fast an end effector may be sent."""

    lower: tuple[float, float, float] = (-math.inf, -math.inf, -math.inf)
    """Corner of the workspace box [m], axes of the command."""
    upper: tuple[float, float, float] = (math.inf, math.inf, math.inf)
    speed: float = 0.25
    """Largest speed of the target [m/s]: that of manual operation in ISO 10218 as commonly told."""


class PoseLimiter:
    """Clamps a pose target, before a controller follows it: to a box, and in speed."""

    def __init__(self, limits: PoseLimits) -> None:
        """Limit by `limits`."""
        self._limits = limits
        self._last: PoseCommand | None = None

    def start(self, state: RobotState) -> None:
        """Forget the previous target: the next one is where the speed limit starts from."""
        self._last = None

    def limit(self, command: RobotCommand, state: RobotState, dt: float) -> Limited:
        """The nearest allowed target; raises ShapeError where the first one is no number."""
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
                1.0, self._limits.speed * dt / max(distance, 1e-12)
            )
        self._last = PoseCommand(position_w=boxed, orientation_w=turn, gripper=command.gripper)
        clamped = not np.array_equal(boxed, position)
        return Limited(self._last, clamped, no_position or no_turn)


def make_limiter(
    spec: RobotSpec, *, joints: JointLimits | None = None, rates: BodyRateLimits | None = None
) -> Limiter:
    """The limiter of the command that a robot's driver accepts."""
    if spec.command is CommandKind.joint:
        return JointLimiter(joints or JointLimits.of(spec))
    if spec.command is CommandKind.rotors:
        return RotorLimiter(len(spec.rotors))
    if spec.command is CommandKind.body_rates:
        return BodyRateLimiter(rates)
    raise ConfigError(
        f"robot '{spec.name}' accepts '{spec.command.value}' commands, which nothing limits yet; "
        "known: joint, rotors, body_rates"
    )


def _finite(
    value: object, last: NDArray[np.float64], name: str
) -> tuple[NDArray[np.float64], bool]:
    """The value with the previous one wherever it is no number, and whether it was replaced."""
    asked = np.asarray(value, dtype=np.float64)
    if asked.shape != last.shape:
        raise ShapeError(f"'{name}' must be {last.shape} for this robot, got {asked.shape}")
    good = np.isfinite(asked)
    return np.where(good, asked, last), not bool(good.all())
