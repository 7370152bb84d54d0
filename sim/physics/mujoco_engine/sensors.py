"""The sensors of a MuJoCo model: where each stands, and what must be computed for them."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping

import mujoco
from torch import Tensor

from robot_rl.core.errors import ConfigError, unknown_name

_CURRENT = mujoco.mjtStage.mjSTAGE_VEL.value


def sensor_columns(model: mujoco.MjModel) -> dict[str, slice]:
    """Columns of every sensor by name; `field/part`, one after another, are one `field` too.

    Raises:
        ConfigError: Parts of a field stand apart.
    """
    columns: dict[str, slice] = {}
    for i in range(model.nsensor):
        start = int(model.sensor_adr[i])
        stop = start + int(model.sensor_dim[i])
        name = model.sensor(i).name
        columns[name] = slice(start, stop)
        field, _, part = name.partition("/")
        if part:
            begun = columns.get(field, slice(start, start))
            if begun.stop != start:
                raise ConfigError(
                    f"sensors '{field}/...' must be declared one after another; '{name}' stands "
                    "apart from the others"
                )
            columns[field] = slice(begun.start, stop)
    return columns


def named_sensor(sensors: Mapping[str, Tensor], name: str) -> Tensor:
    """A sensor of the model, (N, width).

    Raises:
        ConfigError: The model declares none of this name.
    """
    if name not in sensors:
        raise ConfigError(unknown_name("sensor of the model", name, sensors))
    return sensors[name]


def quaternions(model: mujoco.MjModel, columns: Mapping[str, slice]) -> dict[str, list[int]]:
    """First entries of the unit quaternions in each sensor, by name."""
    kinds = (int(mujoco.mjtSensor.mjSENS_FRAMEQUAT), int(mujoco.mjtSensor.mjSENS_BALLQUAT))
    starts = [
        int(model.sensor_adr[i]) for i in range(model.nsensor) if model.sensor_type[i] in kinds
    ]
    return {
        name: [start - c.start for start in starts if c.start <= start < c.stop]
        for name, c in columns.items()
    }


def stage_of_sensors(model: mujoco.MjModel) -> int:
    """The stage (`mjtStage`) to compute of a new state, so that no sensor tells of an older one.

    Sensors of forces and accelerations are left out: a step knows them of its last substep only.
    Positions alone take a twentieth of a step of the Panda, velocities as much again.
    """
    needed = model.sensor_needstage[model.sensor_needstage <= _CURRENT]
    return max(needed.tolist(), default=mujoco.mjtStage.mjSTAGE_NONE.value)
