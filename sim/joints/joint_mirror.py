"""What a mirror does to sensors and drawn parameters of a MuJoCo model, by types and names."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping

import mujoco

from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import RobotMirror, SignedPermutation
from robot_rl.core.robot_state import Mirrored

_SENSOR = mujoco.mjtSensor
_KINDS = {
    Mirrored.vector: (
        _SENSOR.mjSENS_ACCELEROMETER, _SENSOR.mjSENS_VELOCIMETER, _SENSOR.mjSENS_FORCE,
        _SENSOR.mjSENS_FRAMEPOS, _SENSOR.mjSENS_FRAMELINVEL, _SENSOR.mjSENS_FRAMELINACC,
    ),
    Mirrored.pseudovector: (
        _SENSOR.mjSENS_GYRO, _SENSOR.mjSENS_TORQUE, _SENSOR.mjSENS_FRAMEANGVEL,
        _SENSOR.mjSENS_FRAMEANGACC,
    ),
    Mirrored.quaternion: (_SENSOR.mjSENS_FRAMEQUAT,),
    Mirrored.same: (_SENSOR.mjSENS_TOUCH, _SENSOR.mjSENS_CONTACT),
}  # fmt: skip
_KIND_OF = {int(kind): mirrored for mirrored, kinds in _KINDS.items() for kind in kinds}


def mirror_model_sensors(model: mujoco.MjModel, robot: RobotMirror) -> dict[str, SignedPermutation]:
    """Mirrors of all sensors whose type has one, by name.

    Sensors `field/part` are one sensor `field`, whose parts change places with their counterparts.
    A sensor's own frame is taken for the mirror image of its counterpart's.
    """
    fields: dict[str, dict[str, tuple[int, int]]] = {}
    for i in range(model.nsensor):
        field, _, part = model.sensor(i).name.partition("/")
        fields.setdefault(field, {})[part] = (int(model.sensor_type[i]), int(model.sensor_dim[i]))
    found: dict[str, SignedPermutation] = {}
    for field, parts in fields.items():
        kinds = set(parts.values())
        number, width = next(iter(kinds))
        if len(kinds) > 1 or number not in _KIND_OF:
            continue
        each = robot.kind(_KIND_OF[number], width)
        try:
            found[field] = robot.unsigned(list(parts)).of_parts(each)
        except ConfigError:
            continue  # a part without a counterpart: whoever observes it is told
    return found


def mirror_drawn(
    widths: Mapping[str, int],
    bodies: list[str],
    centre_of_mass: list[float],
    robot: RobotMirror,
) -> SignedPermutation:
    """Of drawn parameters, each column in [-1, 1] over its range.

    Args:
        widths: Of each parameter that is drawn, in order.
        bodies: Links whose mass is drawn, in order.
        centre_of_mass: Range of its shift [m].
        robot: Its left and right.

    Raises:
        ConfigError: Shifts to the left are drawn from another range than those to the right.
    """
    parts: list[SignedPermutation] = []
    for name, width in widths.items():
        if name == "centre_of_mass":
            if abs(sum(centre_of_mass)) > 1e-9:
                raise ConfigError(
                    f"randomization.centre_of_mass {centre_of_mass} has no mirror; expected a "
                    "range that is symmetric about 0"
                )
            parts.append(robot.kind(Mirrored.vector, width))
        elif name == "link_mass":
            parts.append(robot.unsigned(bodies))
        elif width > 1:  # one for each joint, without a direction
            parts.append(robot.unsigned(robot.robot.joint_names))
        else:
            parts.append(robot.kind(Mirrored.same, width))
    return SignedPermutation.joined(parts)
