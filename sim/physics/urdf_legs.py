"""A walking robot's URDF as our MJCF: a free base, feet with their sensors, a pose to stand in.

Gains, armature and the default pose are estimates; `ImportedLegs.missing` says what should replace
them. Left and right are found by the names of joints and feet and checked by their axes.
"""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import JointSpec, MirrorSpec, RobotSpec
from sim.physics.mujoco_model import held, load_model
from sim.physics.urdf_file import MOVING, Urdf, compiled, imported, open_urdf, posed

_BASE = "base"
"""Name of the free joint."""
_FULL_EFFORT = 0.6
"""Displacement at which an estimated gain asks for a motor's full effort [rad]: a Go2's 24 N m
become 40 N m/rad."""
_DAMPING = 0.04
"""Estimated damping per stiffness [s]."""
_ROTOR = 4e-4
"""Estimated armature per effort [kg m^2 / (N m)]: 0.01 at a Go2's 24 N m."""
_CROUCH = {2: 0.95}
"""Share of its legs' length that a robot stands at, by its number of feet."""
_CROUCH_MANY = 0.8
_SOLE = 0.01
"""Shapes this near to a foot's lowest point are its sole [m]."""
_TURNS = 5
"""Joints of a leg from which on a foot can be kept level."""
_SETTLE, _UPRIGHT = 3.0, 0.9
"""A robot stands if after this time [s] its base's axis z points up by this cosine."""
_SIDES = (
    ("FL", "FR"), ("RL", "RR"), ("HL", "HR"), ("LF", "RF"), ("LH", "RH"), ("LM", "RM"),
    ("L", "R"), ("l", "r"), ("left", "right"), ("Left", "Right"), ("fl", "fr"), ("rl", "rr"),
    ("hl", "hr"), ("lf", "rf"), ("lh", "rh"), ("lm", "rm"), ("bl", "br"), ("BL", "BR"),
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
    _add_feet(tree, bare, urdf, feet, imu)
    mjcf, model = compiled(urdf, tree, meshes)
    legs = {foot: _leg(model, foot) for foot in feet}
    pose, off = _standing_pose(model, legs)
    data = posed(model, pose)
    ground = min(_lowest(model, data, geom) for foot in feet for geom in _soles(model, data, foot))
    data.qpos[2] -= ground
    mujoco.mj_forward(model, data)
    height = float(data.body(urdf.base).xpos[2])
    joints = _joint_specs(model, urdf, pose)
    mirror, why = _mirror(model, joints, feet)
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
        f"left and right: {why}",
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


def _add_feet(
    tree: mujoco.MjSpec, model: mujoco.MjModel, urdf: Urdf, feet: Sequence[str], imu: str
) -> None:
    """Soles that grip, and the sensors that tasks for legged robots read."""
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    for foot in feet:
        soles = _soles(model, data, foot)
        if not soles:
            raise ConfigError(f"{urdf.path}: foot '{foot}' has no shape to stand on")
        _add_sole(tree.body(foot), model, soles)
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


def _add_sole(body: mujoco.MjsBody, model: mujoco.MjModel, soles: Sequence[int]) -> None:
    """Let shapes grip, and put a site around them, which feels what they touch."""
    first = int(model.body(body.name).geomadr[0])
    for geom in soles:
        found = body.geoms[geom - first]
        found.condim, found.priority, found.friction = 3, 1, [0.8, 0.02, 0.01]
    place: dict[str, Any]
    if len(soles) == 1 and model.geom_type[soles[0]] == mujoco.mjtGeom.mjGEOM_SPHERE:
        place = {
            "type": mujoco.mjtGeom.mjGEOM_SPHERE, "pos": model.geom_pos[soles[0]],
            "size": [1.2 * model.geom_size[soles[0], 0]] * 3,
        }  # fmt: skip
    else:
        corners = np.concatenate([_corners(model, geom) for geom in soles])
        low, high = corners.min(0), corners.max(0)
        place = {
            "type": mujoco.mjtGeom.mjGEOM_BOX, "pos": (low + high) / 2,
            "size": (high - low) / 2 + 0.004,
        }  # fmt: skip
    body.add_site(name=body.name, rgba=[0, 0, 0, 0], **place)


def _corners(model: mujoco.MjModel, geom: int) -> Vector:
    """Corners of a shape's bounding box in its body's axes, (8, 3), [m]."""
    centre, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
    signs = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, 8).T
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, model.geom_quat[geom])
    return model.geom_pos[geom] + (centre + signs * half) @ turn.reshape(3, 3).T


def _lowest(model: mujoco.MjModel, data: mujoco.MjData, geom: int) -> float:
    """Height of a shape's lowest point [m]; of its bounding box where it is no ball or capsule."""
    kind, size = model.geom_type[geom], model.geom_size[geom]
    height, axis = data.geom_xpos[geom, 2], data.geom_xmat[geom, 8]
    if kind == mujoco.mjtGeom.mjGEOM_SPHERE:
        return float(height - size[0])
    if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        return float(height - size[0] - abs(axis) * size[1])
    if kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        return float(height - abs(axis) * size[1] - math.sqrt(max(0.0, 1 - axis**2)) * size[0])
    body = model.geom_bodyid[geom]
    turn = data.xmat[body].reshape(3, 3)
    return float((data.xpos[body] + _corners(model, geom) @ turn.T)[:, 2].min())


def _soles(model: mujoco.MjModel, data: mujoco.MjData, foot: str) -> list[int]:
    """A foot's shapes that are nearest to the ground."""
    body = model.body(foot)
    geoms = list(range(int(body.geomadr[0]), int(body.geomadr[0]) + int(body.geomnum[0])))
    heights = [_lowest(model, data, geom) for geom in geoms]
    return [g for g, height in zip(geoms, heights, strict=True) if height < min(heights) + _SOLE]


def _leg(model: mujoco.MjModel, foot: str) -> list[int]:
    """Joints that move a foot, from the base on, the free one not counted."""
    found: list[int] = []
    body = int(model.body(foot).id)
    while body:
        first = int(model.body_jntadr[body])
        found += [first + k for k in reversed(range(int(model.body_jntnum[body])))]
        body = int(model.body_parentid[body])
    return [joint for joint in reversed(found) if joint > 0]


_STARTS, _STEPS = 40, 60
"""Poses that a leg is bent from, and steps of bending."""


def _standing_pose(
    model: mujoco.MjModel, legs: Mapping[str, Sequence[int]]
) -> tuple[Vector, float]:
    """Pose (J,) with the feet below the hips: where they are with all joints at 0, but higher.

    Returns:
        The pose, and the largest distance of a foot from where it should be [m].
    """
    low, high = model.jnt_range[1:].T
    pose = np.clip(np.zeros(model.njnt - 1), low, high)
    straight = posed(model, np.zeros(model.njnt - 1))  # as built, within the limits or not
    generator = np.random.default_rng(0)
    drawn = generator.uniform(-1, 1, (_STARTS, max(map(len, legs.values()))))
    lengths = {foot: _length(model, foot, joints, generator) for foot, joints in legs.items()}
    share = _crouch(list(legs))
    hips = {foot: straight.xanchor[joints[0]] for foot, joints in legs.items()}
    depth = float(np.mean([hips[foot][2] - share * lengths[foot] for foot in legs]))
    farthest = 0.0
    for foot, joints in legs.items():
        target = straight.site(foot).xpos.copy()
        if hips[foot][2] - target[2] < 0.9 * lengths[foot]:  # built with its legs bent
            target[:2] = straight.xanchor[joints[1]][:2]
        target[2] = depth
        level = straight.site(foot).xmat.reshape(3, 3) if len(joints) >= _TURNS else None
        found = [
            _bend(model, pose, foot, joints, start[: len(joints)], target, level) for start in drawn
        ]
        least = min(cost for cost, _ in found)
        # The first of those that are as good: both sides bend the same way.
        pose = next(q for cost, q in found if cost < 1.05 * least + 1e-5)
        reached = posed(model, pose).site(foot).xpos
        farthest = max(farthest, float(np.linalg.norm(reached - target)))
    return pose.round(3) + 0.0, farthest


def _length(
    model: mujoco.MjModel, foot: str, joints: Sequence[int], generator: np.random.Generator
) -> float:
    """Largest distance at which a foot hangs below its leg's first joint, among many poses [m]."""
    low, high = model.jnt_range[list(joints)].T
    data, columns = mujoco.MjData(model), model.jnt_qposadr[list(joints)]
    longest = 0.0
    for unit in generator.uniform(0, 1, (2000, len(joints))):
        data.qpos[columns] = low + (high - low) * unit
        mujoco.mj_kinematics(model, data)
        longest = max(longest, float(data.xanchor[joints[0], 2] - data.site(foot).xpos[2]))
    return longest


def _bend(
    model: mujoco.MjModel, pose: Vector, foot: str, joints: Sequence[int], start: Vector,
    target: Vector, level: Vector | None,
) -> tuple[float, Vector]:  # fmt: skip
    """Move a leg until its foot is at a place, by Levenberg and Marquardt's steps.

    Returns:
        Squared distance [m^2], with a little for joints away from 0, and the pose.
    """
    columns = np.array(joints) - 1
    low, high = model.jnt_range[1:].T
    dofs = model.jnt_dofadr[list(joints)]
    data, site = mujoco.MjData(model), int(model.site(foot).id)
    place, turn = np.zeros((3, model.nv)), np.zeros((3, model.nv))

    def at(q: Vector) -> tuple[Vector, Vector]:
        """Way to the place, and turn to level, with their derivatives."""
        data.qpos[7:] = q
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_jacSite(model, data, place, turn, site)
        if level is None:
            return target - data.site_xpos[site], place[:, dofs].copy()
        tilt = _rotation(data.site_xmat[site].reshape(3, 3), level)
        off = np.concatenate([target - data.site_xpos[site], tilt])
        return off, np.concatenate([place[:, dofs], turn[:, dofs]])

    q = pose.copy()
    q[columns] = np.clip(start, low[columns], high[columns])
    (off, rows), damping = at(q), 1e-3
    for _ in range(_STEPS):
        step = rows.T @ np.linalg.solve(rows @ rows.T + damping * np.eye(len(rows)), off)
        tried = q.copy()
        tried[columns] = np.clip(q[columns] + step.clip(-0.3, 0.3), low[columns], high[columns])
        new_off, new_rows = at(tried)
        if new_off @ new_off < off @ off:
            q, off, rows, damping = tried, new_off, new_rows, 0.5 * damping
        else:
            damping *= 4
    return float(off @ off + 1e-4 * (q[columns] @ q[columns])), q


def _rotation(now: Vector, wanted: Vector) -> Vector:
    """Small turn from an attitude to another, world axes [rad], (3,)."""
    return 0.5 * np.cross(now.T, wanted.T).sum(0)


def _joint_specs(model: mujoco.MjModel, urdf: Urdf, pose: Vector) -> list[JointSpec]:
    specs: list[JointSpec] = []
    for j in range(1, model.njnt):
        effort = urdf.limit(model.joint(j).name, "effort")
        stiffness = effort / _FULL_EFFORT
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
    model: mujoco.MjModel, joints: list[JointSpec], feet: Sequence[str]
) -> tuple[MirrorSpec | None, str]:
    """Left and right by the names, and what was found, in words."""
    names = [joint.name for joint in joints]
    parts = {part for name in [*names, *feet] for part in name.split("_")}
    swap = {left: right for left, right in _SIDES if {left, right} <= parts}
    if not swap:
        return None, "not found in the names of the joints; training.symmetry needs spec.mirror"
    mirror = MirrorSpec(swap=swap)
    lonely = [one for one in [*names, *feet] if mirror.counterpart(one) not in [*names, *feet]]
    if lonely:
        return None, f"not found, nothing is opposite to {', '.join(lonely)}"
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
    words = ", ".join(f"{left} and {right}" for left, right in swap.items())
    return mirror, f"by the names ({words}), checked by the joints' axes"


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
