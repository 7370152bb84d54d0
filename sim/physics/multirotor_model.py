"""Parameters and sensors of one multirotor, and the column of each in an env's row of the engine.

The row is what randomisation changes: every physical constant, sensor noise and delay has its own
column, so that each of thousands of envs may fly another plant. The engine measures in every
control step and delays all fields alike; what a robot declares beyond that is refused.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec
from sim import checks

POSITION = slice(0, 3)
"""World position [m]; first columns of the packed state and of the measurement."""
ORIENTATION = slice(3, 7)
"""Unit quaternion wxyz, body to world."""
LINEAR_VELOCITY = slice(7, 10)
"""World velocity [m/s]."""
ANGULAR_VELOCITY = slice(10, 13)
"""Body rates [rad/s]."""
ROTOR_SPEED = slice(13, 17)
"""Fraction of the maximum rotor speed, in [0, 1]; not part of the measurement."""

STATE_WIDTH = 17
MEASURED_WIDTH = 13
NOISE_WIDTH = 12
"""Standard normals per measurement: position 3, attitude 3, velocity 3, gyro 3."""

_PARAM_WIDTHS = {
    "mass": 1,
    "inertia": 3,
    "thrust_curve": 3,
    "torque_per_thrust": 1,
    "rotor_rise_time": 1,
    "rotor_fall_time": 1,
    "rotor_position": 8,  # x y of rotor 0, x y of rotor 1, ...
    "rotor_yaw_sign": 4,
    "gravity": 1,
    "disturbance_force": 3,
    "disturbance_torque": 3,
    "noise_position": 1,
    "noise_attitude": 1,
    "noise_velocity": 1,
    "noise_gyro": 1,
    "action_delay": 1,
    "latency": 1,
}
PARAM_WIDTH = sum(_PARAM_WIDTHS.values())
PARAM_COLUMNS = {
    name: slice(stop - width, stop)
    for (name, width), stop in zip(
        _PARAM_WIDTHS.items(), accumulate(_PARAM_WIDTHS.values()), strict=True
    )
}
"""Columns of `MultirotorEngine.params` by the name of the `MultirotorModel` field they hold."""


@dataclass(kw_only=True)
class MultirotorModel:
    """One plant: rigid body, four rotors, disturbance, sensors. Thrust points along body +z."""

    mass: float
    """Take-off mass [kg]."""
    inertia: list[float]
    """Principal moments of inertia about body x, y, z [kg m^2]."""
    thrust_curve: list[float]
    """c0, c1, c2 [N] of one rotor's thrust c0 + c1 u + c2 u^2 at speed u in [0, 1]."""
    torque_per_thrust: float
    """Reaction torque about body z for each newton of rotor thrust [m]."""
    rotor_rise_time: float
    """Time constant of a rotor that speeds up (first order) [s]."""
    rotor_fall_time: float
    """Time constant of a rotor that slows down [s]."""
    rotor_position: list[list[float]]
    """Four pairs x, y of rotor axes in the body frame [m]."""
    rotor_yaw_sign: list[float]
    """+1 or -1 per rotor: sign of its reaction torque about body z."""
    gravity: float = 9.81
    """Downward acceleration of gravity [m/s^2]."""
    disturbance_force: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Constant external force, world frame [N]."""
    disturbance_torque: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Constant external torque, body frame [N m]."""
    noise_position: float = 0.0
    """Standard deviation of measured position, per axis [m]."""
    noise_attitude: float = 0.0
    """Standard deviation of measured attitude as a small body-frame rotation vector [rad]."""
    noise_velocity: float = 0.0
    """Standard deviation of measured velocity, per axis [m/s]."""
    noise_gyro: float = 0.0
    """Standard deviation of measured body rates, per axis [rad/s]."""
    action_delay: int = 0
    """Delay from setpoint to rotor controller [physics steps]."""
    latency: int = 0
    """Age of the measurement [control steps]."""

    def __post_init__(self) -> None:
        self._check_finite_and_sized()
        above = ("mass", "torque_per_thrust", "rotor_rise_time", "rotor_fall_time")
        checks.positive(self, *above, of="multirotor")
        checks.not_negative(self, "gravity", *_NOISE_COLUMNS.values(), of="multirotor")
        for name in ("action_delay", "latency"):
            value = getattr(self, name)
            if value != int(value) or value < 0:
                raise ConfigError(f"multirotor {name} is {value}; must be a whole number >= 0")
        largest, total = max(self.inertia), sum(self.inertia)
        if min(self.inertia) <= 0.0 or largest > (1.0 + 1e-6) * (total - largest):
            raise ConfigError(
                f"multirotor inertia is {self.inertia}; no rigid body has these moments: each must "
                "be positive and at most the sum of the other two"
            )
        if any(sign not in (-1.0, 1.0) for sign in self.rotor_yaw_sign):
            raise ConfigError(
                f"multirotor rotor_yaw_sign is {self.rotor_yaw_sign}; each must be -1 or +1"
            )
        least, weight = 4.0 * self.thrust_curve[0], self.mass * self.gravity
        if not least <= weight < self.max_thrust:
            raise ConfigError(
                f"multirotor cannot hover: it weighs {weight:.4g} N, four rotors lift {least:.4g} "
                f"to {self.max_thrust:.4g} N; check thrust_curve [N] and mass [kg]"
            )

    def _check_finite_and_sized(self) -> None:
        for name, width in _PARAM_WIDTHS.items():
            values = self._values(name)
            if len(values) != width:
                raise ConfigError(f"multirotor {name} has {len(values)} numbers; expected {width}")
            if not all(math.isfinite(value) for value in values):
                raise ConfigError(f"multirotor {name} is {values}; must be finite")

    def _values(self, name: str) -> list[float]:
        value = getattr(self, name)
        if name == "rotor_position":
            return [float(coordinate) for pair in value for coordinate in pair]
        return [float(v) for v in value] if _PARAM_WIDTHS[name] > 1 else [float(value)]

    @property
    def max_thrust(self) -> float:
        """Thrust of all four rotors at full speed [N]."""
        return 4.0 * sum(self.thrust_curve)

    @property
    def hover_thrust(self) -> float:
        """Share of the largest thrust that carries the weight."""
        return self.mass * self.gravity / self.max_thrust

    @property
    def hover_setpoint(self) -> float:
        """Rotor speed that carries the weight, in [0, 1]."""
        c0, c1, c2 = self.thrust_curve
        missing = self.mass * self.gravity / 4.0 - c0
        if abs(c2) < 1e-12:
            return missing / c1
        return (math.sqrt(c1 * c1 + 4.0 * c2 * missing) - c1) / (2.0 * c2)

    def row(self) -> Tensor:
        """This plant as a row of `MultirotorEngine.params`, (PARAM_WIDTH,)."""
        return torch.tensor([v for name in _PARAM_WIDTHS for v in self._values(name)])


STATE_COLUMNS = {
    "position_w": POSITION,
    "orientation_w": ORIENTATION,
    "linear_velocity_w": LINEAR_VELOCITY,
    "angular_velocity_b": ANGULAR_VELOCITY,
}
"""Fields of `RobotState` in the packed state and in the measurement."""

_NOISE_COLUMNS = {
    "position_w": "noise_position",
    "orientation_w": "noise_attitude",
    "linear_velocity_w": "noise_velocity",
    "angular_velocity_b": "noise_gyro",
}


_NOT_SIMULATED = ("jitter", "dropout", "bias", "bias_walk", "resolution")


def state_views(packed: Tensor, names: Sequence[str]) -> RobotState:
    """Live views of fields in the packed state or the measurement, each (N, width).

    Raises:
        SpecMismatchError: A field is not simulated.
    """
    unknown = [name for name in names if name not in STATE_COLUMNS]
    if unknown:
        raise SpecMismatchError(
            f"the robot declares sensors {unknown}, which the multirotor engine does not simulate; "
            f"it simulates {sorted(STATE_COLUMNS)}"
        )
    return RobotState({name: packed[:, STATE_COLUMNS[name]] for name in names})


def latency_steps(robot: RobotSpec, control_dt: float) -> int:
    """Latency of all sensors in control steps.

    Raises:
        ConfigError: Rates, latencies or errors are declared that the engine does not simulate.
    """
    for name, sensor in robot.sensors.items():
        more = [field for field in _NOT_SIMULATED if getattr(sensor, field) > 0]
        if more:
            raise ConfigError(
                f"sensor '{name}' of robot '{robot.name}' declares {', '.join(more)}, which the "
                "multirotor engine does not simulate; it simulates noise and latency: set "
                f"{', '.join(more)} to 0"
            )
        if sensor.rate_hz * control_dt < 1 - 1e-6:
            raise ConfigError(
                f"the multirotor engine measures in every control step, at {1 / control_dt:g} Hz; "
                f"sensor '{name}' of robot '{robot.name}' declares {sensor.rate_hz:g} Hz: raise "
                "its rate_hz, or robot.decimation"
            )
    steps = {name: round(sensor.latency / control_dt) for name, sensor in robot.sensors.items()}
    if len(set(steps.values())) > 1:
        raise ConfigError(
            "the multirotor engine delays all sensors alike; robot "
            f"'{robot.name}' declares latencies of {steps} control steps"
        )
    return max(steps.values(), default=0)


def sensing_row(model: MultirotorModel, robot: RobotSpec, latency: int) -> Tensor:
    """Parameter row of a plant with the noise of a robot's sensors, (PARAM_WIDTH,).

    Args:
        latency: From `latency_steps`.

    Raises:
        ConfigError: The plant has noise or latency of its own, which would not be simulated.
    """
    own = [name for name in (*_NOISE_COLUMNS.values(), "latency") if getattr(model, name) != 0]
    if own:
        raise ConfigError(
            f"the plant of robot '{robot.name}' sets {', '.join(own)}; noise and latency belong to "
            "the sensors: set robot.spec.sensors.<name>.noise and .latency"
        )
    row = model.row()
    for name, column in _NOISE_COLUMNS.items():
        sensor = robot.sensors.get(name)
        row[PARAM_COLUMNS[column]] = sensor.noise if sensor is not None else 0.0
    row[PARAM_COLUMNS["latency"]] = float(latency)
    return row
