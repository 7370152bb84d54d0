"""A walking robot's URDF as our MJCF: a free base, feet with their sensors, a pose to stand in.

Gains, armature and the default pose are estimates; `ImportedLegs.missing` says what should replace
them. Left and right are found by the names of joints and feet and checked by their axes.
"""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import RobotMirror
from robot_rl.core.robot import JointSpec, MirrorSpec, RobotSpec
from sim.physics.mujoco_model import held, load_model
from sim.physics.standing_pose import Leg, lowest, stand
from sim.physics.urdf_file import MOVING, Urdf, compiled, end, imported, open_urdf, posed

_BASE = "base"
"""Name of the free joint."""
_FULL_EFFORT = 0.6
"""Displacement at which an estimated gain asks for a motor's full effort [rad]: a Go2's 24 N m
become 40 N m/rad."""
_FULL_FORCE = 0.05
"""The same of a joint that slides [m]."""
_DAMPING = 0.04
"""Estimated damping per stiffness [s]."""
_ROTOR = 4e-4
"""Estimated armature per effort [kg m^2 / (N m)]: 0.01 at a Go2's 24 N m."""
_CROUCH = {2: 0.95}
"""Share of its legs' length that a robot stands at, by its number of feet."""
_CROUCH_MANY = 0.8
_OUT_OF_PLACE = 0.005
"""Distance up to which a joint or a foot is the mirror image of another [m]."""
_SETTLE, _UPRIGHT = 3.0, 0.9
"""A robot stands if after this time [s] its base's axis z points up by this cosine."""
_SIDES = (
    ("FL", "FR"), ("RL", "RR"), ("HL", "HR"), ("LF", "RF"), ("LH", "RH"), ("LM", "RM"),
    ("L", "R"), ("l", "r"), ("left", "right"), ("Left", "Right"), ("fl", "fr"), ("rl", "rr"),
    ("hl", "hr"), ("lf", "rf"), ("lh", "rh"), ("lm", "rm"), ("bl", "br"), ("BL", "BR"),
    ("LB", "RB"), ("lb", "rb"), ("LR", "RR"), ("lr", "rr"), ("ML", "MR"), ("ml", "mr"),
)  # fmt: skip
"""Parts of names that say left and right in published descriptions."""

Vector = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ImportedLegs:
    """A walking robot as its URDF gives it, and what that lacks."""

    mjcf: str
    """Mechanism and sensors; its meshes lie in the folder that `import_legs` was told of."""
    joints: list[JointSpec]
    """Limits, speeds and efforts of the URDF; default positions and gains are estimates."""
    meshes: Mapping[str, Path]
    """File name in the folder of meshes -> file that is to be copied there."""
    feet: list[str]
    """Links that it stands on."""
    mirror: MirrorSpec | None
    """Left and right; None where they were not found."""
    payload_body: str
    """Link with the largest mass."""
    mass: float
    """Of all links [kg]."""
    height: float
    """Of the base above the ground in the default pose [m]."""
    foot_height: float
    """Of the feet's centres above the ground in the default pose [m]."""
    offsets: list[float]
    """Share of a gait's cycle at which each foot begins: those beside and across take turns."""
    missing: Sequence[str]
    """Facts that a URDF does not say, each with what stands in its place, a line each."""


def import_legs(path: Path, *, name: str, feet: Sequence[str], mesh_folder: str) -> ImportedLegs:
    """Read a robot that walks.

    Args:
        path: The URDF.
        name: Name of the robot and its model.
        feet: Links that it stands on, two or more.
        mesh_folder: Folder of meshes, as the MJCF names it, relative to itself.

    Raises:
        ConfigError: There is no such file, it is no URDF of a robot with these feet, or something
            in it is missing that cannot be estimated.
    """
    urdf = open_urdf(path, walks=True)
    _check_feet(urdf, feet)
    tree, meshes = imported(urdf, feet, mesh_folder)
    imu = "imu" if "imu" not in feet else "imu_of_base"
    _free(tree, name, urdf.base, imu)
    _, bare = compiled(urdf, tree, meshes)
    _check_shapes(urdf, bare, feet)
    legs, pose, off = stand(bare, feet, share=_crouch(feet))
    _add_feet(tree, bare, legs, imu)
    mjcf, model = compiled(urdf, tree, meshes)
    data = posed(model, pose)
    data.qpos[2] -= min(lowest(model, data, geom) for leg in legs for geom in leg.soles)
    mujoco.mj_forward(model, data)
    height = float(data.body(urdf.base).xpos[2])
    if height <= 0:
        raise ConfigError(
            f"{path}: the origin of link '{urdf.base}', the body, lies {-height:.3g} m below the "
            "feet's soles; expected it above the ground"
        )
    joints = _joint_specs(model, urdf, pose)
    mirror, why = _mirror(model, joints, legs)
    masses = model.body_mass[1:]
    urdf.missing += [
        "gains (stiffness, damping): estimated from efforts; take your controller's",
        f"default pose: feet below the hips, legs at {_crouch(feet):.0%} of their length"
        + (f" ({off:.2f} m off, as limits allow)" if off > 0.02 else "")
        + "; take your robot's own",
        urdf.told_of_rotors,
        "sensors: an inertial sensor in the base's origin; rate, noise and latency are assumptions",
        "friction of the feet: 0.8",
        "collisions: with the ground, not between links",
        f"left and right: {why}; x is taken for forward, z for up",
    ]
    return ImportedLegs(
        mjcf=mjcf, joints=joints, meshes=meshes, feet=list(feet), mirror=mirror,
        payload_body=str(model.body(1 + int(masses.argmax())).name), mass=float(masses.sum()),
        height=height, foot_height=float(np.mean([data.site(foot).xpos[2] for foot in feet])),
        offsets=_offsets(np.array([data.site(foot).xpos for foot in feet])), missing=urdf.missing,
    )  # fmt: skip


def stands(file: str, robot: RobotSpec, *, physics_dt: float, height: float) -> float | None:
    """Height at which a robot comes to rest, held by its motors in its default pose [m].

    Args:
        file: Path of the model.
        robot: Its motors.
        physics_dt: Integration step [s].
        height: Of the base at the beginning [m].

    Returns:
        None if it falls.
    """
    model = load_model(file, robot, physics_dt=physics_dt)
    data = held(model, robot)
    data.qpos[2] = height
    while data.time < _SETTLE:
        mujoco.mj_step(model, data)
    upright = float(data.xmat[1, 8])  # NaN where the physics is unstable
    found = float(data.qpos[2])
    return found if upright > _UPRIGHT and found > 0.5 * height else None


def _crouch(feet: Sequence[str]) -> float:
    return _CROUCH.get(len(feet), _CROUCH_MANY)


def _check_feet(urdf: Urdf, feet: Sequence[str]) -> None:
    names = [link.get("name", "") for link in urdf.links]
    ends = ", ".join(urdf.ends)
    if unknown := [foot for foot in feet if foot not in names]:
        raise ConfigError(
            f"{urdf.path} has no link {unknown} for feet; links at an end are: {ends}"
        )
    if len(feet) < 2 or len(set(feet)) != len(feet):
        raise ConfigError(
            f"feet: expected two or more different links, got {list(feet)}; links at an end are: "
            f"{ends}"
        )
    for foot in feet:
        moving = [j for j in urdf.above(foot) if j.get("type") in MOVING]
        if len(moving) < 2:
            raise ConfigError(
                f"{urdf.path}: {len(moving)} joint(s) move foot '{foot}'; a leg needs two or more"
            )
        if (last := moving[0].get("name", "")) in urdf.turning:
            raise ConfigError(
                f"{urdf.path}: joint '{last}' of foot '{foot}' is continuous, as a wheel's is; "
                "robots on wheels are not imported"
            )


def _check_shapes(urdf: Urdf, model: mujoco.MjModel, feet: Sequence[str]) -> None:
    for foot in feet:
        if model.body(foot).geomnum[0]:
            continue
        above = [end(joint, "parent") for joint in urdf.above(foot)]
        shaped = [name for name in above if model.body(name).geomnum[0]]
        raise ConfigError(
            f"{urdf.path}: foot '{foot}' has no shape to stand on; give it one, or name the link "
            f"above it that has: {shaped[0] if shaped else 'none has'}"
        )


def _free(tree: mujoco.MjSpec, name: str, base: str, imu: str) -> None:
    """Let the base move, and let nothing collide but with the ground."""
    tree.modelname = name
    tree.option.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
    tree.option.impratio, tree.option.iterations, tree.option.ls_iterations = 3, 8, 10
    tree.body(base).add_freejoint(name=_BASE)
    for geom in tree.geoms:
        if geom.name != "floor":
            geom.contype, geom.conaffinity, geom.density = 1, 0, 0
    tree.body(base).add_site(name=imu, size=[0.008] * 3, rgba=[0.1, 0.6, 0.3, 1])


def _add_feet(tree: mujoco.MjSpec, model: mujoco.MjModel, legs: Sequence[Leg], imu: str) -> None:
    """Soles that grip, and the sensors that tasks for legged robots read."""
    feet = [leg.foot for leg in legs]
    for leg in legs:
        _add_sole(tree.body(leg.foot), model, leg)
    kinds = mujoco.mjtSensor
    body, site = mujoco.mjtObj.mjOBJ_BODY, mujoco.mjtObj.mjOBJ_SITE
    tree.add_sensor(
        name="linear_acceleration_b", type=kinds.mjSENS_ACCELEROMETER, objtype=site, objname=imu
    )
    for field, kind in (
        ("foot_force", kinds.mjSENS_TOUCH), ("foot_velocity_w", kinds.mjSENS_FRAMELINVEL),
        ("foot_position_w", kinds.mjSENS_FRAMEPOS),
    ):  # fmt: skip
        for foot in feet:
            tree.add_sensor(name=f"{field}/{foot}", type=kind, objtype=site, objname=foot)
    shaped = [model.body(int(i)).name for i in dict.fromkeys(model.geom_bodyid) if i > 0]
    for name in [name for name in shaped if name not in feet]:
        found = tree.add_sensor(
            name=f"body_contact/{name}", type=kinds.mjSENS_CONTACT, objtype=body, objname=name
        )
        found.intprm[:] = [1 << mujoco.mjtConDataField.mjCONDATA_FOUND.value, 0, 1]


def _add_sole(body: mujoco.MjsBody, model: mujoco.MjModel, leg: Leg) -> None:
    """Let shapes grip, and put a site around them, which feels what they touch."""
    first = int(model.body(leg.foot).geomadr[0])
    for geom in leg.soles:
        found = body.geoms[geom - first]
        found.condim, found.priority, found.friction = 3, 1, [0.8, 0.02, 0.01]
    kind = mujoco.mjtGeom.mjGEOM_SPHERE if leg.ball else mujoco.mjtGeom.mjGEOM_BOX
    size = 1.2 * leg.half if leg.ball else leg.half + 0.004
    body.add_site(name=leg.foot, rgba=[0, 0, 0, 0], type=kind, pos=leg.centre, size=size)


def _joint_specs(model: mujoco.MjModel, urdf: Urdf, pose: Vector) -> list[JointSpec]:
    specs: list[JointSpec] = []
    for j in range(1, model.njnt):
        effort = urdf.limit(model.joint(j).name, "effort")
        slides = model.jnt_type[j] == mujoco.mjtJoint.mjJNT_SLIDE
        stiffness = effort / (_FULL_FORCE if slides else _FULL_EFFORT)
        specs.append(
            urdf.joint_spec(
                model, j, float(pose[j - 1]), stiffness=stiffness, damping=_DAMPING * stiffness,
                armature=_ROTOR * effort,
            )
        )  # fmt: skip
    return specs


def _offsets(feet: Vector) -> list[float]:
    """Half a cycle for every second foot: of those on the left from the front, and across.

    Args:
        feet: Places of the feet, (F, 3), [m].
    """
    offsets = np.zeros(len(feet))
    for side, begun in ((feet[:, 1] >= 0, 0), (feet[:, 1] < 0, 1)):
        order = np.flatnonzero(side)[np.argsort(-feet[side, 0], kind="stable")]
        offsets[order] = [0.5 * ((k + begun) % 2) for k in range(len(order))]
    return offsets.tolist()


def _mirror(
    model: mujoco.MjModel, joints: list[JointSpec], legs: Sequence[Leg]
) -> tuple[MirrorSpec | None, str]:
    """Left and right by the names, and what was found, in words."""
    feet, names = [leg.foot for leg in legs], [joint.name for joint in joints]
    parts = {part for name in [*names, *feet] for part in name.split("_")}
    swap = {left: right for left, right in _SIDES if {left, right} <= parts}
    if not swap:
        return None, "not found in the names of the joints; training.symmetry needs spec.mirror"
    mirror = MirrorSpec(swap=swap)
    lonely = [one for one in [*names, *feet] if mirror.counterpart(one) not in [*names, *feet]]
    if lonely:
        return None, f"not found, nothing is opposite to {', '.join(lonely)}"
    if strange := _out_of_place(model, names, legs, mirror):
        return None, f"not found, {strange}"
    reversed_joints = list(_reversed(model, names, mirror))
    mirror.reversed = [name for name in reversed_joints if name]
    if None in reversed_joints:
        return None, "not found: axes of joints are not each other's mirror images"
    by_name = {joint.name: joint for joint in joints}
    for joint in joints:
        other = by_name[mirror.counterpart(joint.name)]
        sign = -1 if joint.name in mirror.reversed else 1
        limits = sorted(sign * value for value in other.position_limit)
        if not np.allclose(joint.position_limit, limits, atol=1e-6):
            return None, f"not found: '{joint.name}' and '{other.name}' have different limits"
        if joint.name < other.name:  # to the last digit
            other.default_position = sign * joint.default_position + 0.0
    try:
        RobotMirror(RobotSpec(name="imported", joints=joints, feet=feet, mirror=mirror))
    except ConfigError as error:
        return None, f"not found: {error}"
    words = ", ".join(f"{left} and {right}" for left, right in swap.items())
    return mirror, f"by the names ({words}), checked by the joints' places and axes"


def _out_of_place(
    model: mujoco.MjModel, names: Sequence[str], legs: Sequence[Leg], mirror: MirrorSpec
) -> str:
    """Joints or feet that do not lie where their counterparts say, in words; none if empty."""
    data = posed(model, np.zeros(model.njnt - 1))
    places = {name: data.xanchor[model.joint(name).id] for name in names}
    places |= {leg.foot: leg.place(data) for leg in legs}
    for name, place in places.items():
        other = mirror.counterpart(name)
        off = float(np.linalg.norm(places[other] * [1, -1, 1] - place))
        if off > _OUT_OF_PLACE:
            return f"'{name}' and '{other}' lie {off:.2g} m from being each other's mirror images"
    if middle := [leg.foot for leg in legs if mirror.counterpart(leg.foot) == leg.foot]:
        return f"foot '{middle[0]}' has nothing opposite"  # and its gait would have no mirror
    return ""


def _reversed(
    model: mujoco.MjModel, names: Sequence[str], mirror: MirrorSpec
) -> Iterator[str | None]:
    """Joints that turn the other way in the mirror; None for one whose axis is no image."""
    data = posed(model, np.zeros(model.njnt - 1))
    slide = mujoco.mjtJoint.mjJNT_SLIDE
    for name in names:
        joint, other = model.joint(name).id, model.joint(mirror.counterpart(name)).id
        flip = np.array([1, -1, 1]) if model.jnt_type[joint] == slide else np.array([-1, 1, -1])
        image = flip * data.xaxis[joint]
        if np.allclose(image, -data.xaxis[other], atol=1e-3):
            yield name
        elif not np.allclose(image, data.xaxis[other], atol=1e-3):
            yield None
