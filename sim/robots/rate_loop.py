"""Inner loop and rotor mixing of multirotors that get body rates and a thrust, for N envs at once.

They are the laws of `hardware/controllers/body_rates.py`, equations, sources and all; there they
run in the robot's own process, here between policy and rotors in every physics step. Roll and pitch
come first, then the collective thrust, and yaw with what is left. Numbers are float64 as there:
what the rotors cannot give differs from rounding by less than float32 tells.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot_command import BodyRateCommand
from sim import checks
from sim.physics.multirotor_model import MultirotorModel

_TINY = 1e-12
"""Thrust differences below it are none [N]."""


class RotorMixing:
    """Allocation for bodies with the rotors of one plant."""

    def __init__(self, plant: MultirotorModel, device: torch.device) -> None:
        x, y = torch.tensor(plant.rotor_position, dtype=torch.float64).T
        yaw = plant.torque_per_thrust * torch.tensor(plant.rotor_yaw_sign, dtype=torch.float64)
        mix = torch.stack([torch.ones_like(x), y, -x, yaw])  # (4, R), as the mixer's B
        part, *turns = torch.linalg.pinv(mix).T
        self._part = part.to(device)  # (R,)
        self._tilt = (torch.stack(turns[:2]) / part).to(device)  # (2, R)
        self._yaw = turns[2].to(device)  # (R,)
        self._arms = mix[1:].T.contiguous().to(device)  # (R, 3)
        least, most = plant.thrust_curve[0], sum(plant.thrust_curve)
        self._bounds = least, most  # of a rotor's thrust [N]
        self._low, self._high = least / self._part, most / self._part  # of the sum, by each rotor
        self._room = self._high[:, None] - self._low  # (R, R)
        self._curve = plant.thrust_curve

    def mix(self, thrust: Tensor, torque: Tensor) -> tuple[Tensor, Tensor]:
        """Rotor speeds, (N, 4), fractions of the largest, and the torques that they give, (N, 3).

        Args:
            thrust: Wanted collective thrust, (N, 1), [N]; 0 or less stops all rotors.
            torque: Wanted torques, (N, 3), [N m], body axes.
        """
        tilt = torque[:, :2] @ self._tilt  # (N, R), newtons of the sum
        apart = tilt[:, :, None] - tilt[:, None]
        share = torch.where(apart > _TINY, self._room / apart, 1.0).amin((1, 2))
        tilt = share.clamp(0.0, 1.0)[:, None] * tilt
        low = (self._low - tilt).amax(1, keepdim=True)
        high = (self._high - tilt).amin(1, keepdim=True)
        force = (tilt + torch.minimum(torch.maximum(thrust, low), high)) * self._part
        force = self._with_yaw(force, torque[:, 2:])
        force = torch.where(thrust > 0, force, self._bounds[0])
        return self._speed(force), force @ self._arms

    def _with_yaw(self, force: Tensor, torque: Tensor) -> Tensor:
        """Thrusts with as much yaw as their bounds allow, (N, R)."""
        least, most = self._bounds
        turn = self._yaw * torque
        space = torch.where(turn > 0, most - force, force - least)
        share = torch.where(turn.abs() > _TINY, space / turn.abs(), 1.0).amin(1, keepdim=True)
        return (force + share.clamp(0.0, 1.0) * turn).clamp(least, most)

    def _speed(self, force: Tensor) -> Tensor:
        """Speeds at which rotors give these thrusts, in [0, 1]."""
        least, linear, square = self._curve
        lift = force - least
        root = (linear * linear + 4 * square * lift.clamp_min(0.0)).sqrt()
        speed = (2 * lift / (linear + root)).clamp_max(1.0)
        return torch.where(lift > 0, speed, 0.0)


@dataclass(kw_only=True)
class RateLoopConfig:
    """Range and gains of an inner loop; lists are for roll, pitch and yaw.

    Gains have the names of `BodyRatesConfig` in hardware/controllers/body_rates.py, which
    explains them.
    """

    rates: list[float] = field(default_factory=lambda: [10.0, 10.0, 5.0])
    """Body rates that an action of 1 asks for [rad/s]; a choice: half of the 1200 and 600 deg/s
    that PX4's airframes for racing allow (MC_ROLLRATE_MAX, MC_YAWRATE_MAX)."""
    proportional: list[float] = field(default_factory=lambda: [20.0, 20.0, 4.0])
    """Angular acceleration per rate error [1/s]."""
    integral: list[float] = field(default_factory=lambda: [20.0, 20.0, 1.0])
    """Growth of the integrator's angular acceleration per rate error [1/s^2]."""
    derivative: list[float] = field(default_factory=list)
    """Angular acceleration against each measured angular acceleration; empty for roll and pitch
    with twice the damping that makes a loop around the plant's slower rotors critical."""
    derivative_time: float = 0.01
    """Time constant of the low-pass on the derivative [s]."""
    integral_limit: list[float] = field(default_factory=lambda: [50.0, 50.0, 10.0])
    """Largest angular acceleration of the integrator [rad/s^2]."""
    attenuation_rate: float = math.radians(400)
    """Rate error from which on nothing is integrated [rad/s]."""

    def __post_init__(self) -> None:
        for name in ("rates", "proportional", "integral", "derivative", "integral_limit"):
            values = getattr(self, name)
            if name == "derivative" and not values:
                continue
            if len(values) != 3 or not all(0 <= value < math.inf for value in values):
                raise ConfigError(f"rate_loop.{name} needs three numbers >= 0, got {values}")
        if not all(rate > 0 for rate in self.rates):
            raise ConfigError(f"rate_loop.rates must be > 0, got {self.rates}")
        checks.not_negative(self, "derivative_time", of="rate_loop")
        checks.positive(self, "attenuation_rate", of="rate_loop")

    def gains(self, plant: MultirotorModel) -> dict[str, Any]:
        """Gains for a plant by name, the derivative's worked out."""
        lag = max(plant.rotor_rise_time, plant.rotor_fall_time)
        # Its damping ratio is (1 + D) / (2 sqrt(P T)) with rotors that lag by T.
        damping = [max(0.2, 2.0 * math.sqrt(p * lag) - 1.0) for p in self.proportional[:2]]
        return {
            "proportional": self.proportional, "integral": self.integral,
            "derivative": self.derivative or [*damping, 0.0],
            "derivative_time": self.derivative_time, "integral_limit": self.integral_limit,
            "attenuation_rate": self.attenuation_rate,
        }  # fmt: skip


class RateLoop:
    """Brings N multirotors to body rates and thrusts; knows the nominal plant only."""

    def __init__(
        self,
        plant: MultirotorModel,
        config: RateLoopConfig,
        *,
        num_worlds: int,
        dt: float,
        device: torch.device,
    ) -> None:
        def row(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float64, device=device)

        gains = config.gains(plant)
        self._mixing = RotorMixing(plant, device)
        self._max_thrust = plant.max_thrust
        self._inertia = row(plant.inertia)
        self._proportional, self._derivative = row(gains["proportional"]), row(gains["derivative"])
        self._gain, self._limit = row(gains["integral"]), row(gains["integral_limit"])
        self._attenuation_rate, self._dt = config.attenuation_rate, dt
        lag = config.derivative_time
        self._heard = -math.expm1(-dt / lag) if lag > 0 else 1.0
        zero = torch.zeros(num_worlds, 3, dtype=torch.float64, device=device)
        self._integral, self._before, self._slope = zero, zero.clone(), zero.clone()

    def begin(self, rows: EnvSelection, rates: Tensor) -> None:
        """Empty the integrators of the picked worlds, which turn with rates (N, 3), [rad/s]."""
        rows.put(self._integral, 0.0)
        rows.put(self._slope, 0.0)
        rows.put(self._before, rows.take(rates).double())

    def update(self, command: BodyRateCommand, measured: Tensor) -> Tensor:
        """Rotor speeds of one physics step, (N, 4).

        Args:
            measured: Body rates, (N, 3), [rad/s].
        """
        rates = measured.to(torch.float64, copy=True)
        error = command.rates_b - rates
        self._slope += self._heard * ((rates - self._before) / self._dt - self._slope)
        self._before = rates
        push = self._proportional * error + self._integral - self._derivative * self._slope
        spin = torch.linalg.cross(rates, self._inertia * rates)
        torque = self._inertia * push + spin
        speed, given = self._mixing.mix(command.thrust.double() * self._max_thrust, torque)
        self._integrate(error, torque - given)
        return speed.float()

    def state_dict(self) -> dict[str, Any]:
        """Integrators and derivatives, copied."""
        return {name: value.clone() for name, value in self._state().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        for name, value in self._state().items():
            value.copy_(state[name])

    def _integrate(self, error: Tensor, unmet: Tensor) -> None:
        """Conditional integration with attenuation; `unmet` is wanted torque that is not given."""
        small = 1e-6 * self._inertia * self._proportional
        heard = (1 - (error / self._attenuation_rate) ** 2).clamp_min(0.0)
        step = torch.where(unmet * error > small * error**2, 0.0, self._gain * heard * error)
        self._integral += step * self._dt
        self._integral.clamp_(-self._limit, self._limit)

    def _state(self) -> dict[str, Tensor]:
        return {"integral": self._integral, "before": self._before, "slope": self._slope}
