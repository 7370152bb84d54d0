"""A robot's declared sensors as the multirotor engine simulates them: fields, noise and latency.

The engine measures in every control step and delays all fields alike. What a robot declares beyond
that is refused, not ignored.
"""

from collections.abc import Sequence

from torch import Tensor

from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_state import RobotState
from sim.physics.multirotor_engine import model as multirotor_model
from sim.physics.multirotor_engine.model import PARAM_COLUMNS, MultirotorModel

STATE_COLUMNS = {
    "position_w": multirotor_model.POSITION,
    "orientation_w": multirotor_model.ORIENTATION,
    "linear_velocity_w": multirotor_model.LINEAR_VELOCITY,
    "angular_velocity_b": multirotor_model.ANGULAR_VELOCITY,
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
        model: The plant.
        robot: Whose sensors measure.
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
