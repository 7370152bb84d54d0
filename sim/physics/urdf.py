"""A robot's model as URDF: what `robot_state_publisher`, RViz and MoveIt read.

The root is `base_link` (REP-105), at the frame of the model's own base. Fixed links say where the
IMU (`imu_link`) and the tip of an arm (`end_effector`) are; messages name them in `frame_id`.
URDF has no capsules: one is a cylinder with two spheres; what it cannot say is its bounding box.
Inertias are about the centre of mass, in the axes of the link.
"""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree as Xml

import mujoco
import numpy as np

from robot_rl.core.robot import JointSpec, RobotSpec
from sim.physics.multirotor_model import MultirotorModel

BASE, IMU, TIP = "base_link", "imu_link", "end_effector"
_SITES = {
    IMU: ("linear_acceleration_b", "angular_velocity_b"),
    TIP: ("end_effector_position_b", "end_effector_orientation_b"),
}
"""Fixed links, and the sensors whose site each is at."""
_UNLIMITED = 1e3
"""Written where the robot names no limit of speed or effort: URDF demands one."""
_ZERO = np.zeros(3)


def joint_urdf(model: mujoco.MjModel, robot: RobotSpec) -> str:
    """The robot of a compiled model, without what stands around it.

    Args:
        model: From `load_model`.
        robot: Limits of speed and effort come from it; masses, frames and ranges from the model.
    """
    root = Xml.Element("robot", name=robot.name)
    first = int(model.body_rootid[model.jnt_bodyid[0]])
    anchors = {first: _ZERO}  # origin of a body's link in the frame of the body
    if model.jnt_bodyid[0] == first and model.jnt_type[0] != mujoco.mjtJoint.mjJNT_FREE:
        fixed = "world" if _name(model, first) == BASE else BASE  # what its first joint moves it in
        Xml.SubElement(root, "link", name=fixed)
        anchors[first] = _joints(root, model, robot, first, _ZERO, fixed)
    elif _name(model, first) != BASE:
        Xml.SubElement(root, "link", name=BASE)
        _fix(root, _name(model, first), BASE, _ZERO, np.eye(3))
    for body in range(first, model.nbody):
        if model.body_rootid[body] != first:
            continue
        if body != first:
            anchors[body] = _joints(
                root, model, robot, body, anchors[int(model.body_parentid[body])]
            )
        _link(root, model, body, anchors[body])
    sites = _sensor_sites(model)
    for name, site in ({IMU: -1} | sites).items():
        Xml.SubElement(root, "link", name=name)
        if site < 0:
            _fix(root, name, BASE, _ZERO, np.eye(3))
            continue
        body = int(model.site_bodyid[site])
        turn = _matrix(model.site_quat[site])
        _fix(root, name, _name(model, body), model.site_pos[site] - anchors[body], turn)
    return _text(root)


def multirotor_urdf(robot: RobotSpec, plant: MultirotorModel) -> str:
    """A drone as one link; its rotors are drawn and do not turn.

    Args:
        robot: Its name and rotors.
        plant: Mass, inertia and places of the rotors.
    """
    root = Xml.Element("robot", name=robot.name)
    link = Xml.SubElement(root, "link", name=BASE)
    _inertial(link, plant.mass, _ZERO, np.diag(plant.inertia))
    arms = [np.array([x, y, 0.0]) for x, y in plant.rotor_position]
    span = 2 * max(float(np.linalg.norm(arm)) for arm in arms)
    body: dict[str, dict[str, Any]] = {"box": {"size": [span / 3, span / 3, span / 8]}}
    disc = {"cylinder": {"radius": span / 5, "length": span / 50}}
    for kind in ("visual", "collision"):
        for shape, place in ((body, _ZERO), *((disc, arm) for arm in arms)):
            _shape(Xml.SubElement(link, kind), shape, place, np.eye(3))
    Xml.SubElement(root, "link", name=IMU)
    _fix(root, IMU, BASE, _ZERO, np.eye(3))
    return _text(root)


def _joints(
    root: Xml.Element, model: mujoco.MjModel, robot: RobotSpec, body: int, anchor: np.ndarray,
    parent: str = "",
) -> np.ndarray:  # fmt: skip
    """Joints between a body and its parent; returns where the link's origin is in the body.

    Args:
        anchor: Origin of the parent's link in the parent.
        parent: Link of the parent, where it is not called as its body.
    """
    parent, name = parent or _name(model, int(model.body_parentid[body])), _name(model, body)
    place, turn = model.body_pos[body] - anchor, _matrix(model.body_quat[body])
    count, start = int(model.body_jntnum[body]), int(model.body_jntadr[body])
    if count == 0:
        _fix(root, name, parent, place, turn)
        return _ZERO
    origin, specs = _ZERO, {joint.name: joint for joint in robot.joints}
    for j in range(start, start + count):
        called, axis = model.joint(j).name, model.jnt_axis[j]
        slides = model.jnt_type[j] == mujoco.mjtJoint.mjJNT_SLIDE
        limited, rest = bool(model.jnt_limited[j]), float(model.qpos0[model.jnt_qposadr[j]])
        place = place + turn @ (model.jnt_pos[j] - origin)
        if slides:
            place = place - turn @ axis * rest
        else:
            turn = turn @ _about(axis, -rest)
        last = j == start + count - 1
        child = name if last else f"{name}_{called}"
        if not last:
            Xml.SubElement(root, "link", name=child)
        kind = "prismatic" if slides else "revolute" if limited else "continuous"
        joint = Xml.SubElement(root, "joint", name=called, type=kind)
        Xml.SubElement(joint, "parent", link=parent)
        Xml.SubElement(joint, "child", link=child)
        _origin(joint, place, turn)
        Xml.SubElement(joint, "axis", xyz=_numbers(axis))
        known, limit = specs.get(called), {}
        if limited:
            limit = dict(zip(("lower", "upper"), map(_number, model.jnt_range[j]), strict=True))
        speed, effort = _limits(known, robot)
        Xml.SubElement(joint, "limit", effort=_number(effort), velocity=_number(speed), **limit)
        damping, friction = model.dof_damping[model.jnt_dofadr[j]], model.dof_frictionloss
        Xml.SubElement(
            joint, "dynamics", damping=_number(np.ravel(damping)[0]),
            friction=_number(friction[model.jnt_dofadr[j]]),
        )  # fmt: skip
        for leader, multiplier in _mimicked(model, j):
            Xml.SubElement(joint, "mimic", joint=leader, multiplier=_number(multiplier), offset="0")
        parent, place, turn, origin = child, _ZERO, np.eye(3), model.jnt_pos[j]
    return origin


def _limits(known: JointSpec | None, robot: RobotSpec) -> tuple[float, float]:
    """Largest speed and effort of a joint of the robot, or of a finger."""
    if known is not None:
        speed, effort = min(known.velocity_limit, known.no_load_speed), known.effort_limit
    elif robot.gripper is not None:
        speed, effort = robot.gripper.speed, robot.gripper.force_limit
    else:
        speed = effort = math.inf
    return min(speed, _UNLIMITED), min(effort, _UNLIMITED)


def _mimicked(model: mujoco.MjModel, joint: int) -> Iterator[tuple[str, float]]:
    """The joint that another one follows through a stiff tendon between just the two."""
    for tendon in range(model.ntendon):
        start = int(model.tendon_adr[tendon])
        joints = model.wrap_objid[start : start + model.tendon_num[tendon]]
        kinds = model.wrap_type[start : start + model.tendon_num[tendon]]
        if len(joints) == 2 and (kinds == mujoco.mjtWrap.mjWRAP_JOINT).all():
            leader, follower = model.wrap_prm[start : start + 2]
            if joints[1] == joint and np.ravel(model.tendon_stiffness[tendon])[0] > 0:
                yield model.joint(int(joints[0])).name, -leader / follower


def _link(root: Xml.Element, model: mujoco.MjModel, body: int, anchor: np.ndarray) -> None:
    link = Xml.SubElement(root, "link", name=_name(model, body))
    mass = float(model.body_mass[body])
    if mass > 0:
        axes = _matrix(model.body_iquat[body])
        inertia = axes @ np.diag(model.body_inertia[body]) @ axes.T
        _inertial(link, mass, model.body_ipos[body] - anchor, inertia)
    start = int(model.body_geomadr[body])
    for geom in range(start, start + int(model.body_geomnum[body])):
        place, turn = model.geom_pos[geom] - anchor, _matrix(model.geom_quat[geom])
        touches = model.geom_contype[geom] or model.geom_conaffinity[geom]
        kinds = ["visual"] * bool(model.geom_rgba[geom, 3] > 0) + ["collision"] * bool(touches)
        for kind in kinds:
            for shape, offset in _shapes(model, geom):
                element = Xml.SubElement(link, kind)
                _shape(element, shape, place + turn @ offset, turn)
                if kind == "visual":
                    material = Xml.SubElement(element, "material", name=f"geom_{geom}")
                    Xml.SubElement(material, "color", rgba=_numbers(model.geom_rgba[geom]))


def _shapes(
    model: mujoco.MjModel, geom: int
) -> list[tuple[Mapping[str, Mapping[str, Any]], np.ndarray]]:
    """Shapes of URDF for one of MuJoCo, each with its place in the frame of the geom."""
    kind, (radius, half, *_) = mujoco.mjtGeom(model.geom_type[geom]), model.geom_size[geom]
    ball = {"sphere": {"radius": radius}}
    rod = {"cylinder": {"radius": radius, "length": 2 * half}}
    if kind == mujoco.mjtGeom.mjGEOM_SPHERE:
        return [(ball, _ZERO)]
    if kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        return [(rod, _ZERO)]
    if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        end = np.array([0.0, 0.0, half])
        return [(rod, _ZERO), (ball, end), (ball, -end)]
    centre, extent = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
    return [({"box": {"size": 2 * extent}}, centre)]


def _sensor_sites(model: mujoco.MjModel) -> dict[str, int]:
    """Sites at which the robot's sensors measure, by the link that stands for each."""
    found: dict[str, int] = {}
    for sensor in range(model.nsensor):
        at_site = model.sensor_objtype[sensor] == mujoco.mjtObj.mjOBJ_SITE
        for link, fields in _SITES.items():
            if at_site and model.sensor(sensor).name in fields:
                found[link] = int(model.sensor_objid[sensor])
    return found


def _inertial(link: Xml.Element, mass: float, centre: np.ndarray, inertia: np.ndarray) -> None:
    element = Xml.SubElement(link, "inertial")
    _origin(element, centre, np.eye(3))
    Xml.SubElement(element, "mass", value=_number(mass))
    pairs = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
    named = {f"i{'xyz'[i]}{'xyz'[k]}": _number(inertia[i, k]) for i, k in pairs}
    Xml.SubElement(element, "inertia", named)


def _shape(
    element: Xml.Element, shape: Mapping[str, Mapping[str, Any]], place: np.ndarray,
    turn: np.ndarray,
) -> None:  # fmt: skip
    _origin(element, place, turn)
    geometry = Xml.SubElement(element, "geometry")
    for name, sizes in shape.items():
        Xml.SubElement(geometry, name, {key: _numbers(size) for key, size in sizes.items()})


def _fix(root: Xml.Element, link: str, parent: str, place: np.ndarray, turn: np.ndarray) -> None:
    joint = Xml.SubElement(root, "joint", name=f"{link}_fixed", type="fixed")
    Xml.SubElement(joint, "parent", link=parent)
    Xml.SubElement(joint, "child", link=link)
    _origin(joint, place, turn)


def _origin(element: Xml.Element, place: np.ndarray, turn: np.ndarray) -> None:
    """Place and attitude; roll, pitch, yaw about fixed axes x, y, z, as URDF has them."""
    pitch = math.atan2(-turn[2, 0], math.hypot(turn[0, 0], turn[1, 0]))
    if math.hypot(turn[0, 0], turn[1, 0]) > 1e-9:
        roll, yaw = math.atan2(turn[2, 1], turn[2, 2]), math.atan2(turn[1, 0], turn[0, 0])
    else:  # straight up or down: only a sum of both counts
        roll, yaw = math.atan2(-turn[1, 2], turn[1, 1]), 0.0
    Xml.SubElement(element, "origin", xyz=_numbers(place), rpy=_numbers([roll, pitch, yaw]))


def _matrix(wxyz: np.ndarray) -> np.ndarray:
    found = np.zeros(9)
    mujoco.mju_quat2Mat(found, np.asarray(wxyz, dtype=np.float64))
    return found.reshape(3, 3)


def _about(axis: np.ndarray, angle: float) -> np.ndarray:
    wxyz = np.zeros(4)
    mujoco.mju_axisAngle2Quat(wxyz, axis, angle)
    return _matrix(wxyz)


def _name(model: mujoco.MjModel, body: int) -> str:
    return model.body(body).name or f"body_{body}"


def _number(value: float) -> str:
    return f"{float(value) + 0.0:.12g}"


def _numbers(values: Sequence[float] | np.ndarray | float) -> str:
    return " ".join(_number(value) for value in np.ravel(values))


def _text(root: Xml.Element) -> str:
    Xml.indent(root)
    return '<?xml version="1.0"?>\n' + Xml.tostring(root, encoding="unicode") + "\n"
