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
"""

import math
from dataclasses import dataclass, field

import numpy as np

from hardware.controllers import turns
from hardware.controllers.controller import expect, finite
from hardware.controllers.flight.mixer import Mixer, RotorLayout
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot_command import BodyRateCommand, CommandKind, RobotCommand, RotorCommand
from robot_rl.core.robot_state import RobotState


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
        """Refuse wrong counts and signs."""
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

        Args:
            layout: Its rotors.
            config: Inertia and gains.

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
        mixed = self._mixer.mix(thrust, turns.vector(torque))
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
        spin = turns.cross(turns.vector(rates), turns.vector(self._inertia * rates))
        return self._inertia * push + spin

    def _integrate(self, error: np.ndarray, unmet: np.ndarray, dt: float) -> None:
        """Conditional integration with attenuation.

        Args:
            error: Wanted less measured rates, (3,), [rad/s].
            unmet: Torque that was wanted and is not given, (3,), [N m].
            dt: Time since the tick before [s].
        """
        full = unmet * error > 1e-6 * self._inertia * self._proportional * error**2
        heard = np.maximum(1 - (error / self._attenuation_rate) ** 2, 0.0)
        step = np.where(full, 0.0, self._gain * heard * error * dt)
        self._integral = np.clip(self._integral + step, -self._limit, self._limit)
