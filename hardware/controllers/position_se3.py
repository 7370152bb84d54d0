"""Geometric position control on SE(3): a pose becomes body rates and thrust.

    F = m (k_x (x_d - x) - k_v v + g e_3)          wanted force, world axes
    thrust = F . R e_3,      R_d = [b_2 x b_3, b_2, b_3],  b_3 = F / |F|,  b_2 along b_3 x heading

x [m], v [m/s], F [N], k_x [1/s^2], k_v [1/s], m [kg]. The thrust is the part of F along the body's
own axis: while it leans elsewhere, it pushes less. R_d goes to the attitude law of
`attitude` for body rates. Height comes first: F stays in a cone about the vertical and below the
largest thrust, and what is cut is the push sideways.

Source: Lee, Leok and McClamroch, "Geometric tracking control of a quadrotor UAV on SE(3)", CDC
2010, eqs. 12 and 15 (its torque law is replaced by attitude and body rates). Deviations: gains per
mass; the position error is clipped by length, which bounds the speed by k_x / k_v times the clip.

Quaternion attitude control with reduced attitude: the thrust axis first, the heading weighted.

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

import numpy as np

from hardware.controllers import rotations
from hardware.controllers.controller import expect
from hardware.controllers.rotations import Quaternion, Vector
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import BodyRateCommand, CommandKind, PoseCommand, RobotCommand

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
        self.config = config or QuaternionAttitudeConfig()

    def rates(self, wanted: Quaternion, measured: Quaternion, yaw_rate: float = 0.0) -> Vector:
        """Body rates that turn the measured attitude towards the wanted one, [rad/s].

        Args:
            wanted: Unit quaternion wxyz, body to world.
            measured: Unit quaternion wxyz, body to world.
            yaw_rate: Feed-forward about the world's vertical [rad/s].
        """
        config = self.config
        error = rotations.multiply(rotations.conjugate(measured), wanted)
        lean = thrust_axis_turn(error)
        yaw = rotations.rotation_vector(rotations.multiply(rotations.conjugate(lean), error))[2]
        half = 0.5 * config.yaw_weight * yaw
        w, x, y, z = rotations.multiply(lean, (math.cos(half), 0.0, 0.0, math.sin(half)))
        sign = 2.0 if w >= 0 else -2.0
        up = rotations.rotate(rotations.conjugate(measured), (0.0, 0.0, yaw_rate))
        roll = sign * config.lean_gain * x + up[0]
        pitch = sign * config.lean_gain * y + up[1]
        turn = sign * config.yaw_gain / config.yaw_weight * z + up[2]
        length = math.hypot(roll, pitch)
        share = min(1.0, config.lean_rate_limit / length) if length > 0 else 1.0
        limit = config.yaw_rate_limit
        return share * roll, share * pitch, min(max(turn, -limit), limit)


def thrust_axis_turn(error: Quaternion) -> Quaternion:
    """Shortest turn, in body axes, that brings body z to the body z of an attitude error."""
    x, y, z = rotations.vertical(error)
    if 1 + z < _TINY:
        return 0.0, 1.0, 0.0, 0.0
    return rotations.unit((1 + z, -y, x, 0.0))


GRAVITY = 9.81
"""[m/s^2]"""


@dataclass(kw_only=True)
class PositionSe3Config:
    """Body, gains and bounds."""

    mass: float
    """Take-off mass [kg]."""
    max_thrust: float
    """Thrust of all rotors at full speed [N]."""
    position_gain: float = 3.0
    """Acceleration per position error [1/s^2]."""
    velocity_gain: float = 3.0
    """Acceleration per velocity [1/s]."""
    position_clip: float = 1.0
    """Longest position error that pulls [m]."""
    max_lean: float = math.radians(35)
    """Largest lean of the wanted thrust [rad]."""
    min_lift: float = 0.4
    """Least wanted vertical thrust, fraction of the weight."""
    min_thrust: float = 0.1
    """Least thrust, fraction of the largest: rotors that stand still turn nothing upright."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise ConfigError(f"position control: {name} must be > 0, got {value}")
        if not self.max_lean < math.pi / 2:
            raise ConfigError(f"position control: max_lean must be < pi/2, got {self.max_lean}")
        if self.max_thrust <= self.mass * GRAVITY:
            raise ConfigError(f"position control: {self.max_thrust} N do not lift {self.mass} kg")


class PositionSe3:
    """Flies a multirotor to a position and a heading. It has no memory.

    Of the wanted orientation only the heading counts.
    """

    setpoint: CommandKind = CommandKind.pose
    command: CommandKind = CommandKind.body_rates

    def __init__(
        self, config: PositionSe3Config, attitude: QuaternionAttitudeConfig | None = None
    ) -> None:
        self.config = config
        self._attitude = QuaternionAttitude(attitude)

    def start(self, state: RobotState, last: RobotCommand | None) -> None:
        """Nothing: the law has no memory."""

    def update(self, setpoint: RobotCommand, state: RobotState, dt: float) -> BodyRateCommand:
        """Body rates and thrust of this tick, (1, 3) and (1, 1)."""
        target = expect(setpoint, PoseCommand)
        measured = rotations.quaternion(state.orientation_w)
        force = self.force(target, state)
        wanted = attitude_of(force, heading_of(rotations.quaternion(target.orientation_w)))
        rates = self._attitude.rates(wanted, measured)
        axis = rotations.vertical(measured)
        along = force[0] * axis[0] + force[1] * axis[1] + force[2] * axis[2]
        share = min(max(along / self.config.max_thrust, self.config.min_thrust), 1.0)
        return BodyRateCommand(rates_b=np.array([rates]), thrust=np.array([[share]]))

    def force(self, target: PoseCommand, state: RobotState) -> Vector:
        """Wanted force of the rotors within its bounds, [N], world axes."""
        config = self.config
        error = rotations.vector(target.position_w[0] - state.position_w[0])
        velocity = rotations.vector(state.linear_velocity_w)
        length = math.hypot(*error)
        pull = config.position_gain
        if length > config.position_clip:
            pull *= config.position_clip / length
        x, y, z = (
            config.mass * (pull * e - config.velocity_gain * v)
            for e, v in zip(error, velocity, strict=True)
        )
        weight = config.mass * GRAVITY
        up = min(max(z + weight, config.min_lift * weight), config.max_thrust)
        spare = math.sqrt(max(config.max_thrust**2 - up * up, 0.0))
        sideways = min(spare, math.tan(config.max_lean) * up)
        length = math.hypot(x, y)
        share = sideways / length if length > sideways else 1.0
        return share * x, share * y, up


def heading_of(q: Quaternion) -> float:
    """Heading of the body's x axis on the ground [rad]."""
    w, x, y, z = q
    return math.atan2(2 * (x * y + w * z), 1 - 2 * (y * y + z * z))


def attitude_of(force: Vector, heading: float) -> Quaternion:
    """Attitude whose z axis is along a force [N] that rises, and whose x axis looks to a heading.

    Args:
        force: World axes; its vertical part is above 0.
        heading: [rad]
    """
    size = math.hypot(*force)
    up = (force[0] / size, force[1] / size, force[2] / size)
    x, y, z = rotations.cross(up, (math.cos(heading), math.sin(heading), 0.0))
    size = math.hypot(x, y, z)
    left = (x / size, y / size, z / size)
    return rotations.from_axes(rotations.cross(left, up), left, up)
