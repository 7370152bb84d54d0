"""Mixing: from collective thrust and torques to rotors, keeping what matters most.

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
from dataclasses import dataclass

import numpy as np

from hardware.controllers.turns import Vector
from robot_rl.core.errors import ConfigError

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
        """Refuse rotors that cannot turn the body about every axis, and curves that fall."""
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
    """What the rotors are told, and what they will give of it."""

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
        """Thrusts with as much yaw as their bounds allow."""
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
        """Speeds of thrusts, and what they add up to."""
        thrust, roll, pitch, yaw = (
            sum(entry * force for entry, force in zip(row, forces, strict=True))
            for row in self._mix
        )
        return Mixed([self.layout.speed(force) for force in forces], thrust, (roll, pitch, yaw))
