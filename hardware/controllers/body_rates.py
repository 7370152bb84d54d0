"""Body-rate control of a multirotor: PID on the gyroscope, then mixing to the rotors.

    torque = J (P e + I - D d(rates)/dt) + rates x J rates,      e = rates_d - rates
    dI/dt  = K_i e (1 - (e / e_max)^2)   where positive, and 0 where it would push a full rotor on

torque [N m], rates [rad/s], body axes; J (3,) [kg m^2]; P [1/s], K_i [1/s^2], D [1]. The derivative
is of the measured rates, low-passed: a step of the setpoint does not kick. The integrator stops on
an axis whose torque the rotors cannot give while the error asks for more of it (conditional
integration), and hardly listens to errors as large as those of a flip.

Source: PX4's multicopter rate control (derivative on measurement, conditional integration, the
attenuation with e_max = 400 deg/s). Default gains: tried on both simulated plants of the Crazyflie,
whose rotors lag by 0.06 to 0.25 s, and on rotors that lag by 0.02 s, with ticks of 2 and 10 ms. A
rotor lag of T makes a rate loop with the damping ratio (1 + D) / (2 sqrt(P T)).

Mixing: from collective thrust and torques to rotors, keeping what matters most.

    [F, tx, ty, tz] = B f,   B = [1; y; -x; s c],   f = B^+ [F, tx, ty, tz]

f (R,) thrusts [N] along body z, x, y [m] the rotors' places, s = +/-1 the signs of their reaction
torques, c [m] torque per thrust. Where the rotors cannot do it all: roll and pitch first, then the
collective thrust as near as roll and pitch leave it, and yaw with what is left. A body that leans
the wrong way falls at any thrust, a heading can wait.
Source: Faessler, Falanga and Scaramuzza, "Thrust mixing, saturation, and body-rate control for
accurate aggressive quadrotor flight", RA-L 2017.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hardware.controllers import rotations
from hardware.controllers.controller import expect, finite
from hardware.controllers.rotations import Vector
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import BodyRateCommand, CommandKind, RobotCommand, RotorCommand

_TINY = 1e-12
"""Thrust differences below it are none [N]."""


@dataclass(kw_only=True)
class RotorLayout:
    """Rotors of a multirotor, all along body z; names as in `configs/robot/crazyflie.yaml`."""

    rotor_position: list[list[float]]
    """Pairs x, y of rotor axes in the body frame, (R, 2), [m]."""
    rotor_yaw_sign: list[float]
    """+1 or -1: sign of each rotor's reaction torque about body z, (R,)."""
    thrust_curve: list[float]
    """c0, c1, c2 [N] of a rotor's thrust c0 + c1 u + c2 u^2 at speed u in [0, 1]."""
    torque_per_thrust: float
    """Reaction torque about body z for each newton of thrust [m]."""

    def __post_init__(self) -> None:
        if len(self.rotor_position) != len(self.rotor_yaw_sign):
            raise ConfigError(
                f"rotors: got {len(self.rotor_position)} places for "
                f"{len(self.rotor_yaw_sign)} signs of yaw"
            )
        if np.linalg.matrix_rank(self.matrix()) < 4:
            raise ConfigError(
                f"rotors at {self.rotor_position} with signs {self.rotor_yaw_sign} cannot turn the "
                "body about every axis; check places, signs and torque_per_thrust"
            )
        least, linear, square = self.thrust_curve
        if least < 0 or linear < 0 or square < 0 or linear + square <= 0:
            raise ConfigError(
                f"thrust_curve {self.thrust_curve} must have no negative part and must rise"
            )

    @property
    def max_thrust(self) -> float:
        """Thrust of all rotors at full speed [N]."""
        return len(self.rotor_position) * sum(self.thrust_curve)

    def matrix(self) -> np.ndarray:
        """B: collective thrust and torques of one newton of each rotor, (4, R)."""
        x, y = np.array(self.rotor_position, dtype=np.float64).T
        yaw = self.torque_per_thrust * np.array(self.rotor_yaw_sign)
        return np.stack([np.ones_like(x), y, -x, yaw])

    def speed(self, thrust: float) -> float:
        """Speed at which a rotor gives a thrust [N], in [0, 1]."""
        least, linear, square = self.thrust_curve
        lift = thrust - least
        if lift <= 0:
            return 0.0
        root = math.sqrt(linear * linear + 4 * square * lift)
        return min(
            2 * lift / (linear + root), 1.0
        )  # the quadratic formula without its quotient 0/0

    def thrust(self, speed: float) -> float:
        """Thrust of a rotor at a speed in [0, 1], [N]."""
        least, linear, square = self.thrust_curve
        return least + speed * (linear + square * speed)


@dataclass(frozen=True)
class Mixed:
    """Commands of the rotors, and what they will give of it."""

    speed: list[float]
    """Fraction of the largest speed of each rotor, (R,), in [0, 1]."""
    thrust: float
    """Collective thrust [N]."""
    torque: Vector
    """Torques about body x, y, z, [N m]."""


class Mixer:
    """Allocation of thrust and torques to the rotors of one body."""

    def __init__(self, layout: RotorLayout) -> None:
        """Invert the layout.

        Raises:
            ConfigError: A rotor would have to push down for the body to rise.
        """
        self.layout = layout
        mix = layout.matrix()
        unmix = np.linalg.pinv(mix)  # (R, 4)
        if not (unmix[:, 0] > 0).all():
            raise ConfigError(
                f"rotors at {layout.rotor_position}: lifting straight up takes shares "
                f"{unmix[:, 0].tolist()} of the thrust; each must be > 0"
            )
        self._mix: list[list[float]] = mix.tolist()
        self._part, self._roll, self._pitch, self._yaw = (list(c) for c in unmix.T.tolist())
        # Thrusts of each rotor in newtons of the sum, when all others do their part.
        self._least = [layout.thrust_curve[0] / part for part in self._part]
        self._most = [sum(layout.thrust_curve) / part for part in self._part]

    def mix(self, thrust: float, torque: Vector) -> Mixed:
        """Rotor speeds. Real-time: Python floats, no arrays.

        Args:
            thrust: Wanted collective thrust [N]; 0 or less stops all rotors, torques or not.
            torque: Wanted torques about body x, y, z, [N m].
        """
        if thrust <= 0:
            return self._told([self.layout.thrust_curve[0]] * len(self._part))
        lean = self._lean(torque)
        low = max(least - own for least, own in zip(self._least, lean, strict=True))
        high = min(most - own for most, own in zip(self._most, lean, strict=True))
        total = min(max(thrust, low), high)
        forces = [(own + total) * part for own, part in zip(lean, self._part, strict=True)]
        return self._told(self._with_yaw(forces, torque[2]))

    def _lean(self, torque: Vector) -> list[float]:
        """Roll and pitch, by newtons of the sum, shrunk until some sum of thrust fits them all."""
        parts = zip(self._roll, self._pitch, self._part, strict=True)
        lean = [(roll * torque[0] + pitch * torque[1]) / part for roll, pitch, part in parts]
        share = 1.0
        for upper, most in zip(lean, self._most, strict=True):
            for lower, least in zip(lean, self._least, strict=True):
                if upper - lower > _TINY:
                    share = min(share, (most - least) / (upper - lower))
        share = max(share, 0.0)
        return [share * own for own in lean]

    def _with_yaw(self, forces: list[float], torque: float) -> list[float]:
        least, most = self.layout.thrust_curve[0], sum(self.layout.thrust_curve)
        turn = [yaw * torque for yaw in self._yaw]
        share = 1.0
        for force, step in zip(forces, turn, strict=True):
            space = most - force if step > 0 else force - least
            if abs(step) > _TINY:
                share = min(share, space / abs(step))
        share = max(share, 0.0)
        mixed = (f + share * step for f, step in zip(forces, turn, strict=True))
        return [min(max(force, least), most) for force in mixed]  # rounding alone is clipped

    def _told(self, forces: Sequence[float]) -> Mixed:
        thrust, roll, pitch, yaw = (
            sum(entry * force for entry, force in zip(row, forces, strict=True))
            for row in self._mix
        )
        return Mixed([self.layout.speed(force) for force in forces], thrust, (roll, pitch, yaw))


@dataclass(kw_only=True)
class BodyRatesConfig:
    """Body and gains; lists are for roll, pitch and yaw."""

    inertia: list[float]
    """Principal moments of inertia about body x, y, z [kg m^2]."""
    proportional: list[float] = field(default_factory=lambda: [20.0, 20.0, 4.0])
    """Angular acceleration per rate error [1/s]."""
    integral: list[float] = field(default_factory=lambda: [20.0, 20.0, 1.0])
    """Growth of the integrator's angular acceleration per rate error [1/s^2]."""
    derivative: list[float] = field(default_factory=lambda: [1.0, 1.0, 0.5])
    """Angular acceleration against each measured angular acceleration, without unit."""
    derivative_time: float = 0.01
    """Time constant of the low-pass on the derivative [s]."""
    integral_limit: list[float] = field(default_factory=lambda: [50.0, 50.0, 10.0])
    """Largest angular acceleration of the integrator [rad/s^2]."""
    attenuation_rate: float = math.radians(400)
    """Rate error from which on nothing is integrated [rad/s]."""

    def __post_init__(self) -> None:
        for name in ("inertia", "proportional", "integral", "derivative", "integral_limit"):
            values = getattr(self, name)
            if len(values) != 3 or not all(value >= 0 for value in values):
                raise ConfigError(f"body rates: {name} needs three numbers >= 0, got {values}")
        if not all(value > 0 for value in self.inertia):
            raise ConfigError(f"body rates: inertia must be > 0, got {self.inertia}")
        if not (self.derivative_time >= 0 and self.attenuation_rate > 0):
            raise ConfigError(
                f"body rates: derivative_time must be >= 0 and attenuation_rate > 0, got "
                f"{self.derivative_time} and {self.attenuation_rate}"
            )


class BodyRates:
    """Brings a multirotor to body rates and a thrust through its rotors' speeds."""

    setpoint: CommandKind = CommandKind.body_rates
    command: CommandKind = CommandKind.rotors

    def __init__(self, layout: RotorLayout, config: BodyRatesConfig) -> None:
        """Describe the body.

        Raises:
            ConfigError: The rotors cannot carry the body.
        """
        self._mixer = Mixer(layout)
        self._inertia = np.array(config.inertia)
        self._proportional = np.array(config.proportional)
        self._gain = np.array(config.integral)
        self._derivative = np.array(config.derivative)
        self._derivative_time = config.derivative_time
        self._limit = np.array(config.integral_limit)
        self._attenuation_rate = config.attenuation_rate
        self._integral = np.zeros(3)  # [rad/s^2]
        self._before = np.zeros(3)  # measured rates of the tick before [rad/s]
        self._slope = np.zeros(3)  # their low-passed derivative [rad/s^2]

    def start(self, state: RobotState, last: RobotCommand | None) -> None:
        """Empty the integrator; the derivative begins with the rates of now."""
        self._integral = np.zeros(3)
        self._slope = np.zeros(3)
        self._before = np.array(state.angular_velocity_b[0], dtype=np.float64)

    def update(self, setpoint: RobotCommand, state: RobotState, dt: float) -> RotorCommand:
        """Rotor speeds of this tick, (1, R)."""
        wanted = expect(setpoint, BodyRateCommand)
        rates = np.array(state.angular_velocity_b[0], dtype=np.float64)
        error = wanted.rates_b[0] - rates
        if not finite(error, wanted.thrust):
            return RotorCommand(speed=np.full((1, len(self._mixer.layout.rotor_position)), np.nan))
        torque = self._torque(error, rates, self._derived(rates, dt))
        thrust = float(wanted.thrust[0, 0]) * self._mixer.layout.max_thrust
        mixed = self._mixer.mix(thrust, rotations.vector(torque))
        self._integrate(error, torque - mixed.torque, dt)
        return RotorCommand(speed=np.array([mixed.speed]))

    def _derived(self, rates: np.ndarray, dt: float) -> np.ndarray:
        """Low-passed derivative of the measured rates, (3,), [rad/s^2]."""
        lag = self._derivative_time
        share = -math.expm1(-dt / lag) if lag > 0 else 1.0
        if dt > 0:
            self._slope = self._slope + share * ((rates - self._before) / dt - self._slope)
        self._before = rates
        return self._slope

    def _torque(self, error: np.ndarray, rates: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """PID and the gyroscopic torque, (3,), [N m], body axes."""
        push = self._proportional * error + self._integral - self._derivative * slope
        spin = rotations.cross(rotations.vector(rates), rotations.vector(self._inertia * rates))
        return self._inertia * push + spin

    def _integrate(self, error: np.ndarray, unmet: np.ndarray, dt: float) -> None:
        """Conditional integration with attenuation.

        Args:
            error: Wanted less measured rates, (3,), [rad/s].
            unmet: Torque that was wanted and is not given, (3,), [N m].
        """
        full = unmet * error > 1e-6 * self._inertia * self._proportional * error**2
        heard = np.maximum(1 - (error / self._attenuation_rate) ** 2, 0.0)
        step = np.where(full, 0.0, self._gain * heard * error * dt)
        self._integral = np.clip(self._integral + step, -self._limit, self._limit)
