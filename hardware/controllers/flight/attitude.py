"""Quaternion attitude control with reduced attitude: the thrust axis first, the heading weighted.

    rates = 2 P sgn(e_w) e_xyz,      e = q* q_d, its turn about body z shrunk by a weight

rates [rad/s] in body axes, P [1/s]; q_d the wanted attitude, q the measured one. The error is split
into the shortest turn that brings the thrust axis (body z) where it shall be, and the turn about it
that is left; the second counts only in part, so that a large heading error does not bend the way on
which the thrust gets up. Both quaternions of an attitude give the same rates.

Source: Brescianini, Hehn and D'Andrea, "Nonlinear quadrocopter attitude control", ETH Zurich 2013;
weight and rate limits: PX4's multicopter attitude control. Deviations: the rate limit of roll and
pitch holds for their length, not for each axis, so that it does not bend the way either; gains are
smaller than PX4's 6.5 and 2.8, for the slow rotors of small multirotors (see `body_rates`).
"""

import math
from dataclasses import asdict, dataclass

from hardware.controllers import turns
from hardware.controllers.turns import Quaternion, Vector
from robot_rl.core.errors import ConfigError

_TINY = 1e-9
"""Of 1 + the cosine of the lean: below it the wanted thrust axis is opposite, any way is short."""


@dataclass(kw_only=True)
class QuaternionAttitudeConfig:
    """Gains and limits."""

    lean_gain: float = 5.0
    """Rate per angle of roll and pitch [1/s]."""
    yaw_gain: float = 2.0
    """Rate per small angle of heading [1/s]."""
    yaw_weight: float = 0.4
    """Part of a heading error that counts in its quaternion, in (0, 1]; PX4's MC_YAW_WEIGHT."""
    lean_rate_limit: float = math.radians(220)
    """Largest rate of roll and pitch together [rad/s]; PX4's MC_ROLLRATE_MAX."""
    yaw_rate_limit: float = math.radians(200)
    """Largest rate of yaw [rad/s]; PX4's MC_YAWRATE_MAX."""

    def __post_init__(self) -> None:
        """Refuse gains that turn away."""
        for name, value in asdict(self).items():
            if not value > 0:
                raise ConfigError(f"attitude control: {name} must be > 0, got {value}")
        if self.yaw_weight > 1:
            raise ConfigError(f"attitude control: yaw_weight must be <= 1, got {self.yaw_weight}")


class QuaternionAttitude:
    """From a wanted attitude to body rates. It has no memory.

    No command of a robot is an attitude; `position_se3` asks this law for its body rates.
    """

    def __init__(self, config: QuaternionAttitudeConfig | None = None) -> None:
        """Take gains and limits."""
        self.config = config or QuaternionAttitudeConfig()

    def rates(self, wanted: Quaternion, measured: Quaternion, yaw_rate: float = 0.0) -> Vector:
        """Body rates that turn the measured attitude towards the wanted one, [rad/s].

        Args:
            wanted: Unit quaternion wxyz, body to world.
            measured: Unit quaternion wxyz, body to world.
            yaw_rate: Feed-forward about the world's vertical [rad/s].
        """
        config = self.config
        error = turns.multiply(turns.conjugate(measured), wanted)
        lean = thrust_axis_turn(error)
        yaw = turns.rotation_vector(turns.multiply(turns.conjugate(lean), error))[2]
        half = 0.5 * config.yaw_weight * yaw
        w, x, y, z = turns.multiply(lean, (math.cos(half), 0.0, 0.0, math.sin(half)))
        sign = 2.0 if w >= 0 else -2.0
        up = turns.rotate(turns.conjugate(measured), (0.0, 0.0, yaw_rate))
        roll = sign * config.lean_gain * x + up[0]
        pitch = sign * config.lean_gain * y + up[1]
        turn = sign * config.yaw_gain / config.yaw_weight * z + up[2]
        length = math.hypot(roll, pitch)
        share = min(1.0, config.lean_rate_limit / length) if length > 0 else 1.0
        limit = config.yaw_rate_limit
        return share * roll, share * pitch, min(max(turn, -limit), limit)


def thrust_axis_turn(error: Quaternion) -> Quaternion:
    """Shortest turn, in body axes, that brings body z to the body z of an attitude error."""
    x, y, z = turns.vertical(error)
    if 1 + z < _TINY:
        return 0.0, 1.0, 0.0, 0.0
    return turns.unit((1 + z, -y, x, 0.0))
