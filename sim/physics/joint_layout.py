"""Columns of joints and sensors in MuJoCo's state, and what a mirror does to sensors."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import mujoco

from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import RobotMirror, SignedPermutation
from robot_rl.core.observation import Mirrored

_POSITION_SIZE = {
    mujoco.mjtJoint.mjJNT_FREE: 7,
    mujoco.mjtJoint.mjJNT_BALL: 4,
    mujoco.mjtJoint.mjJNT_SLIDE: 1,
    mujoco.mjtJoint.mjJNT_HINGE: 1,
}


@dataclass(frozen=True)
class JointLayout:
    """Columns of `qpos` and `qvel`: the robot's base where it floats, joints, fingers, the scene.

    A floating base takes the first columns: position (world, [m]) and quaternion wxyz, and linear
    velocity (world axes, [m/s]) and angular velocity (body axes, [rad/s]).
    """

    floating: bool
    """True if the robot's base moves freely."""
    position: slice
    """The robot's joints in `qpos`."""
    velocity: slice
    """The robot's joints in `qvel`."""
    fingers: slice
    """The gripper's joints in `qpos`; empty without a gripper."""
    scene: dict[str, slice]
    """Joints of the scene in `qpos`, by name: 7 columns for a free body, 1 for a hinge or slide."""
    fixtures: dict[str, int]
    """Bodies of the scene that are placed anew in every episode: name -> row of `mocap_pos`."""

    @classmethod
    def of(cls, model: mujoco.MjModel, num_joints: int, num_fingers: int = 0) -> "JointLayout":
        """Read it from a model whose first joints are the robot's, then its gripper's."""
        floating = model.njnt > 0 and model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE
        first, first_velocity = (7, 6) if floating else (0, 0)
        scene: dict[str, slice] = {}
        for i in range(num_joints + num_fingers + floating, model.njnt):
            kind = mujoco.mjtJoint(model.jnt_type[i])
            start = int(model.jnt_qposadr[i])
            scene[model.joint(i).name] = slice(start, start + _POSITION_SIZE[kind])
        return cls(
            floating=bool(floating),
            position=slice(first, first + num_joints),
            velocity=slice(first_velocity, first_velocity + num_joints),
            fingers=slice(first + num_joints, first + num_joints + num_fingers),
            scene=scene,
            fixtures={
                model.body(i).name: int(model.body_mocapid[i])
                for i in range(model.nbody)
                if model.body_mocapid[i] >= 0
            },
        )


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


@cache
def _mirrored_kinds() -> dict[int, Mirrored]:
    """Behaviour of each type of sensor in a mirror; older MuJoCo lacks some of these types."""
    kind = mujoco.mjtSensor
    kinds = {
        Mirrored.vector: (
            kind.mjSENS_ACCELEROMETER, kind.mjSENS_VELOCIMETER, kind.mjSENS_FORCE,
            kind.mjSENS_FRAMEPOS, kind.mjSENS_FRAMELINVEL, kind.mjSENS_FRAMELINACC,
        ),
        Mirrored.pseudovector: (
            kind.mjSENS_GYRO, kind.mjSENS_TORQUE, kind.mjSENS_FRAMEANGVEL, kind.mjSENS_FRAMEANGACC,
        ),
        Mirrored.quaternion: (kind.mjSENS_FRAMEQUAT,),
        Mirrored.same: (kind.mjSENS_TOUCH, kind.mjSENS_CONTACT),
    }  # fmt: skip
    return {int(each): mirrored for mirrored, listed in kinds.items() for each in listed}


def mirror_model_sensors(model: mujoco.MjModel, robot: RobotMirror) -> dict[str, SignedPermutation]:
    """Mirrors of all sensors whose type has one, by name.

    Sensors `field/part` are one sensor `field`, whose parts change places with their counterparts.
    A sensor's own frame is taken for the mirror image of its counterpart's.
    """
    kind_of = _mirrored_kinds()
    fields: dict[str, dict[str, tuple[int, int]]] = {}
    for i in range(model.nsensor):
        field, _, part = model.sensor(i).name.partition("/")
        fields.setdefault(field, {})[part] = (int(model.sensor_type[i]), int(model.sensor_dim[i]))
    found: dict[str, SignedPermutation] = {}
    for field, parts in fields.items():
        kinds = set(parts.values())
        number, width = next(iter(kinds))
        if len(kinds) > 1 or number not in kind_of:
            continue
        each = robot.kind(kind_of[number], width)
        try:
            found[field] = robot.unsigned(list(parts)).of_parts(each)
        except ConfigError:
            continue  # a part without a counterpart: whoever observes it is told
    return found
