"""An arm's URDF as our MJCF with its joints' limits, and what a URDF does not say.

MuJoCo's own importer reads links, joints and shapes. What is added is what every arm here has: an
integrator, a floor, gravity that is compensated at the joints, links that do not collide with each
other, and the end effector with the sensors of its pose. Gains and a default pose are estimates,
so that the arm can be simulated at once; `ImportedArm.missing` says what should replace them.
"""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as Xml

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot import JointSpec

SITE = "end_effector"
MESHES = (".stl", ".obj", ".msh")
"""Formats of meshes that MuJoCo reads."""
_TIPS = ("tool0", "tcp", "ee_link", "ee", "end_effector", "tool", "flange", "hand_tcp", "tip")
"""Names that end effectors have in published descriptions, the likeliest first."""
_MOVING = ("revolute", "prismatic")
_TURN = 2 * math.pi
_FULL_EFFORT = 0.1
"""Smallest displacement at which an estimated gain asks for a motor's full effort [rad] or [m]."""
_ROTOR = 0.002
"""Estimated armature per effort [kg m^2 / (N m)]: 0.3 at 150 N m, 0.02 at 12 N m."""
_BANDWIDTH = 30.0
"""Natural frequency of an estimated position loop [rad/s], critically damped."""
_POSES = 4000
"""Poses that the default pose is chosen from."""


@dataclass(frozen=True, kw_only=True)
class ImportedArm:
    """An arm as its URDF gives it, and what that lacks."""

    mjcf: str
    """Mechanism and sensors; its meshes lie in the folder that `import_urdf` was told of."""
    joints: list[JointSpec]
    """Limits, speeds and efforts of the URDF; default positions and gains are estimates."""
    meshes: Mapping[str, Path]
    """File name in the folder of meshes -> file that is to be copied there."""
    end_effector: str
    """Link whose frame is the end effector."""
    payload_body: str
    """Last link of the arm that has a mass."""
    tip: NDArray[np.float64]
    """End effector in the default pose, base axes [m], (3,)."""
    reach: float
    """Largest distance of the end effector from the base among many poses [m]."""
    mass: float
    """Mass of the links that move [kg]."""
    missing: Sequence[str]
    """Facts that a URDF does not say, each with what stands in its place, a line each."""


def import_urdf(path: Path, *, name: str, end_effector: str = "", mesh_folder: str) -> ImportedArm:
    """Read an arm.

    Args:
        path: The URDF.
        name: Name of the robot and its model.
        end_effector: Link whose frame is the end effector; empty finds it where only one can be.
        mesh_folder: Folder of meshes, as the MJCF names it, relative to itself.

    Raises:
        ConfigError: There is no such file, it is no URDF of an arm on a fixed base, or something in
            it is missing that cannot be estimated.
    """
    root = read_urdf(path)
    links, joints = root.findall("link"), root.findall("joint")
    base = _base(path, links, joints)
    missing = _limit_continuous(joints)
    _check_joints(path, joints)
    if all(joint.get("type") not in _MOVING for joint in joints):
        raise ConfigError(f"{path} has no joint that moves; expected an arm with revolute joints")
    tip = _tip(path, links, joints, end_effector)
    missing += _fix_mimics(path, joints, tip)
    moving = [joint for joint in joints if joint.get("type") in _MOVING]
    _check_masses(path, links, joints)
    meshes = _shapes(path, links, mesh_folder, missing)
    tree = _imported(path, root, {file: source.read_bytes() for file, source in meshes.items()})
    _complete(tree, name, base, tip)
    tree.meshdir = mesh_folder
    assets = {f"{mesh_folder}/{file}": source.read_bytes() for file, source in meshes.items()}
    try:
        tree.assets = assets
        tree.compile()
        mjcf = tree.to_xml()
        model = mujoco.MjModel.from_xml_string(mjcf, assets)  # with numbers as they are written
    except ValueError as error:
        raise ConfigError(f"MuJoCo refuses {path}: {' '.join(str(error).split())}") from error
    pose, reach = _default_pose(model)
    specs = _joint_specs(model, {joint.get("name", ""): joint for joint in moving}, pose)
    data = _at(model, pose)
    place = data.sensor("end_effector_position_b").data.copy()
    payload = _last_with_mass(model)
    missing += [
        "gains (stiffness, damping): estimated from efforts and masses; take your controller's",
        "default pose: chosen by how well the end effector can move there; take your arm's own",
        "armature (the rotors' inertia): estimated from efforts; friction: "
        + ("as <dynamics> says" if root.find(".//dynamics") is not None else "none"),
        "sensors: rate, noise and latency are assumptions",
        "feet, an inertial sensor and a gripper: none; the base stands fixed in the origin",
        "gravity: compensated at the joints, as most arms' own controllers do (gravcomp)",
        "collisions: with floor and objects, not between links",
    ]
    return ImportedArm(
        mjcf=mjcf, joints=specs, meshes=meshes, end_effector=tip, payload_body=payload,
        tip=place, reach=reach, mass=float(model.body_mass[model.body_weldid != 0].sum()),
        missing=missing,
    )  # fmt: skip


def read_urdf(path: Path) -> Xml.Element:
    """The root element of a URDF.

    Raises:
        ConfigError: There is no such file, or it is none.
    """
    if not path.is_file():
        raise ConfigError(f"there is no file {path}; expected a URDF")
    try:
        root = Xml.fromstring(path.read_bytes())
    except Xml.ParseError as error:
        raise ConfigError(f"{path} is no URDF: it is not XML ({error})") from error
    if any("xacro" in element.tag for element in root.iter()):
        raise ConfigError(f"{path} is a xacro file: make its URDF with: xacro {path} > robot.urdf")
    if root.tag != "robot" or root.find("link") is None:
        what = "it has no link" if root.tag == "robot" else f"it begins with <{root.tag}>"
        raise ConfigError(f"{path} is no URDF: {what}; expected <robot> with links and joints")
    return root


def _base(path: Path, links: Sequence[Xml.Element], joints: Sequence[Xml.Element]) -> str:
    """Link that the others hang from; one called `world`, which is MuJoCo's own, is taken off."""
    names = [link.get("name", "") for link in links]
    children = [_end(joint, "child") for joint in joints]
    unknown = sorted({*children, *(_end(joint, "parent") for joint in joints)} - set(names))
    if unknown:
        raise ConfigError(f"{path} has joints of links {unknown}, which are not in it: {names}")
    roots = [name for name in names if name not in children]
    if len(roots) != 1:
        raise ConfigError(f"{path} has {len(roots)} links without a parent, {roots}; expected one")
    if roots[0] == "world":
        fixed = [j for j in joints if _end(j, "parent") == "world" and j.get("type") == "fixed"]
        if len(fixed) != 1:
            raise ConfigError(f"{path}: expected one fixed joint at the link world")
        return _end(fixed[0], "child")
    return roots[0]


def _limit_continuous(joints: Sequence[Xml.Element]) -> list[str]:
    """Give continuous joints without limits some; says so, a line each."""
    said: list[str] = []
    for joint in joints:
        if joint.get("type") != "continuous":
            continue
        limit = joint.find("limit")
        limit = Xml.SubElement(joint, "limit") if limit is None else limit
        joint.set("type", "revolute")
        if "lower" in limit.attrib and "upper" in limit.attrib:
            continue
        limit.set("lower", f"{-_TURN:.6g}")
        limit.set("upper", f"{_TURN:.6g}")
        said.append(
            f"limits of joint '{joint.get('name')}', which is continuous: one turn either way; "
            "take what its cables allow"
        )
    return said


def _fix_mimics(path: Path, joints: Sequence[Xml.Element], tip: str) -> list[str]:
    """Fix joints that follow others, such as second fingers, at their zero; says so, a line each.

    Raises:
        ConfigError: One bears the end effector, follows no joint, or cannot stand at its zero.
    """
    above = {_end(joint, "child"): joint for joint in joints}
    bearing: list[Xml.Element] = []
    while tip in above:
        bearing.append(above[tip])
        tip = _end(above[tip], "parent")
    names = {joint.get("name") for joint in joints}
    said: list[str] = []
    for joint in joints:
        mimic, where = joint.find("mimic"), f"{path}: joint '{joint.get('name')}'"
        if mimic is None:
            continue
        leader, limit = mimic.get("joint"), joint.find("limit")
        if leader not in names:
            raise ConfigError(f"{where} mimics '{leader}', which is no joint of this URDF")
        if joint in bearing:
            raise ConfigError(
                f"{where} mimics '{leader}' and moves the end effector, and coupled joints are not "
                "imported: name another end_effector=<link>, or write the model by hand"
            )
        low, high = (0.0 if limit is None else _number(limit.get(end, "0"))
                     for end in ("lower", "upper"))  # fmt: skip
        if not low <= 0 <= high:
            raise ConfigError(
                f"{where} mimics '{leader}' and would be fixed at 0, which lies outside its limits "
                f"of {low:g} to {high:g}: make it fixed where it stands"
            )
        joint.remove(mimic)
        joint.set("type", "fixed")
        said.append(f"joint '{joint.get('name')}': it mimics '{leader}', and stands fixed at 0")
    return said


def _check_joints(path: Path, joints: Sequence[Xml.Element]) -> None:
    """Refuse joints that a spec cannot describe, and limits that are missing."""
    counts = Counter(joint.get("name") for joint in joints)
    if doubled := [str(name) for name, count in counts.items() if count > 1]:
        raise ConfigError(f"{path} has several joints called {', '.join(doubled)}; name them apart")
    for joint in joints:
        kind, where = joint.get("type"), f"{path}: joint '{joint.get('name')}'"
        if kind == "floating":
            raise ConfigError(
                f"{where} is floating: only robots on a fixed base are imported; make it fixed, or "
                "write the model of a walking or flying robot by hand"
            )
        if kind == "fixed":
            continue
        if kind not in _MOVING:
            raise ConfigError(f"{where} is {kind}; expected revolute, prismatic or fixed")
        limit = joint.find("limit")
        values = {} if limit is None else limit.attrib
        if "lower" not in values or "upper" not in values:
            raise ConfigError(f"{where} has no limits; expected <limit lower= upper= ...>")
        if not _number(values["lower"]) < _number(values["upper"]):
            raise ConfigError(
                f"{where} goes from {values['lower']} to {values['upper']}; expected lower < upper"
            )
        if joint.find("mimic") is not None:  # no motor moves it
            continue
        for what in ("effort", "velocity"):
            if not _number(values.get(what, "0")) > 0:
                raise ConfigError(
                    f"{where} has {what} {values.get(what, 'none')} in <limit>; expected more than "
                    "0, from the manufacturer's data"
                )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _end(joint: Xml.Element, side: str) -> str:
    """Name of the parent or the child of a joint."""
    found = joint.find(side)
    return "" if found is None else found.get("link", "")


def _tip(
    path: Path, links: Sequence[Xml.Element], joints: Sequence[Xml.Element], asked: str
) -> str:
    """Link of the end effector: the one that was asked for, or the only end of the longest way."""
    names = [link.get("name", "") for link in links]
    if asked and asked not in names:
        raise ConfigError(f"{path} has no link '{asked}' for end_effector; it has {names}")
    above = {_end(joint, "child"): joint for joint in joints}

    def moved_by(name: str) -> int:
        joint = above.get(name)
        if joint is None:
            return 0
        return moved_by(_end(joint, "parent")) + (joint.get("type") in _MOVING)

    if asked:
        if not moved_by(asked):
            raise ConfigError(f"{path}: no joint moves link '{asked}', so it is no end effector")
        return asked
    most = max(map(moved_by, names))
    last = [name for name in names if moved_by(name) == most]
    known = [tip for tip in _TIPS if tip in last]
    parents = {_end(joint, "parent") for joint in joints}
    ends = [name for name in last if name not in parents]
    if known:
        return known[0]
    if len(ends) != 1:
        raise ConfigError(
            f"{path} has several links at its end, {ends}: name the end effector with "
            "end_effector=<link>"
        )
    return ends[0]


def _check_masses(path: Path, links: Sequence[Xml.Element], joints: Sequence[Xml.Element]) -> None:
    """Refuse a joint that moves nothing with a mass: links behind fixed joints count to it."""
    masses = {link.get("name", ""): link.find("inertial/mass") for link in links}
    for joint in joints:
        if joint.get("type") not in _MOVING:
            continue
        waiting, found = [_end(joint, "child")], False
        for name in waiting:
            mass = masses[name]
            found |= mass is not None and _number(mass.get("value", "")) > 0
            waiting += [
                _end(j, "child")
                for j in joints
                if _end(j, "parent") == name and j.get("type") == "fixed"
            ]
        if not found:
            raise ConfigError(
                f"{path}: link '{waiting[0]}', which joint '{joint.get('name')}' moves, has no "
                "<inertial> with a mass; a simulation needs one"
            )


def _shapes(
    path: Path, links: Sequence[Xml.Element], mesh_folder: str, missing: list[str]
) -> dict[str, Path]:
    """Leave the shapes to collide with in the URDF, or those to look at where there are none.

    Returns:
        Meshes by their new names; the URDF names them so.
    """
    collide = any(link.find("collision") is not None for link in links)
    left_out = 0
    meshes: dict[str, Path] = {}
    for link in links:
        for shape in link.findall("visual" if collide else "collision"):
            link.remove(shape)
            left_out += 1
        for mesh in link.iter("mesh"):
            named = mesh.get("filename", "")
            source = _mesh_file(path, named)
            if source.suffix.lower() not in MESHES:
                raise ConfigError(
                    f"{path}: mesh {named} of link '{link.get('name')}' is no STL, OBJ or MSH, "
                    "which MuJoCo reads; convert it, or give the link a simple <collision> shape"
                )
            file, number = source.name, 2
            while meshes.get(file, source) != source:
                file, number = f"{source.stem}_{number}{source.suffix}", number + 1
            meshes[file] = source
            mesh.set("filename", file)
    if not collide:
        missing.append("collision shapes: none; the visual ones are taken")
    elif left_out:
        missing.append(f"visual shapes: {left_out} left out, collision shapes are drawn")
    if meshes:
        missing.append(f"meshes: {len(meshes)} copied to {mesh_folder}")
    return meshes


def _mesh_file(path: Path, named: str) -> Path:
    """The file that a URDF names: relative to itself, or in a ROS package."""
    for scheme in ("package://", "model://"):
        if named.startswith(scheme):
            package, _, rest = named.removeprefix(scheme).partition("/")
            above = [*path.absolute().parents]
            tried = [folder / package for folder in above]
            tried += [folder for folder in above if folder.name == package]
            shares = os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
            tried += [Path(share) / "share" / package for share in shares if share]
            found = [folder / rest for folder in tried if (folder / rest).is_file()]
            if found:
                return found[0]
            raise ConfigError(
                f"{path}: mesh {named} is missing; expected it in a folder {package} beside or "
                "above the URDF, or in a sourced ROS 2 installation"
            )
    file = path.parent / named.removeprefix("file://")
    if not file.is_file():
        raise ConfigError(f"{path}: mesh {named} is missing; expected {file}")
    return file


def _imported(path: Path, root: Xml.Element, assets: Mapping[str, bytes]) -> mujoco.MjSpec:
    for old in root.findall("mujoco"):
        root.remove(old)
    compiler = Xml.SubElement(Xml.SubElement(root, "mujoco"), "compiler")
    compiler.attrib |= {"fusestatic": "false", "discardvisual": "false"}
    try:
        return mujoco.MjSpec.from_string(Xml.tostring(root, encoding="unicode"), assets=assets)
    except ValueError as error:
        raise ConfigError(f"MuJoCo refuses {path}: {' '.join(str(error).split())}") from error


def _complete(tree: mujoco.MjSpec, name: str, base: str, tip: str) -> None:
    """Add what every arm here has, and URDF has not."""
    tree.modelname = name
    tree.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    for joint in tree.joints:
        joint.actfrclimited = mujoco.mjtLimited.mjLIMITED_FALSE  # motors are the spec's
        joint.actfrcrange = [0, 0]
    for body in tree.bodies:
        if body.name != "world":
            body.gravcomp = 1
    for geom in tree.geoms:
        moves = any(body.joints for body in _ancestors(geom.parent))
        geom.contype, geom.conaffinity, geom.density = int(moves), 0, 0  # the base is in the floor
    world = tree.worldbody
    world.add_light(name="top", pos=[0, 0, 2.5], dir=[0, 0, -1])
    world.add_geom(
        name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.05], contype=0,
        conaffinity=1, rgba=[0.8, 0.82, 0.85, 1],
    )  # fmt: skip
    tree.body(tip).add_site(name=SITE, size=[0.008] * 3, rgba=[0.1, 0.6, 0.3, 1])
    kinds = mujoco.mjtSensor.mjSENS_FRAMEPOS, mujoco.mjtSensor.mjSENS_FRAMEQUAT
    for field, kind in zip(("position", "orientation"), kinds, strict=True):
        tree.add_sensor(
            name=f"end_effector_{field}_b", type=kind, objtype=mujoco.mjtObj.mjOBJ_SITE,
            objname=SITE, reftype=mujoco.mjtObj.mjOBJ_XBODY, refname=base,
        )  # fmt: skip


def _ancestors(body: mujoco.MjsBody) -> Iterator[mujoco.MjsBody]:
    """A body and all above it."""
    while body is not None:
        yield body
        body = body.parent


def _at(model: mujoco.MjModel, pose: NDArray[np.float64]) -> mujoco.MjData:
    data = mujoco.MjData(model)
    data.qpos[:] = pose
    mujoco.mj_forward(model, data)
    return data


def _default_pose(model: mujoco.MjModel) -> tuple[NDArray[np.float64], float]:
    """Pose (J,) in which the end effector moves well to all sides, and the arm's reach [m].

    It lies in front of the base, and all of the arm is well above the floor. A pose counts by the
    smallest singular value of the Jacobian of the end effector's position.
    """
    generator = np.random.default_rng(0)
    low, high = model.jnt_range.T
    middle = np.clip(0.0, low, high)
    narrow = np.maximum(low, middle - math.pi / 2), np.minimum(high, middle + math.pi / 2)
    data, jacobian = mujoco.MjData(model), np.zeros((3, model.nv))
    site = model.site(SITE).id
    poses = generator.uniform(*narrow, (_POSES, model.njnt))
    tips, scores, heights = np.zeros((_POSES, 3)), np.zeros(_POSES), np.zeros((_POSES, model.nbody))
    for i, pose in enumerate(poses):
        data.qpos[:] = pose
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_jacSite(model, data, jacobian, None, site)
        tips[i], heights[i] = data.site_xpos[site], data.xpos[:, 2]
        scores[i] = np.linalg.svd(jacobian, compute_uv=False)[-1]
    reach = float(np.linalg.norm(tips, axis=1).max())
    ahead = (tips[:, 0] > 0.3 * reach) & (np.abs(tips[:, 1]) < 0.3 * reach)
    rising = np.ptp(heights, axis=0) > 1e-3  # links that can come near the floor
    clear = heights[:, rising].min(axis=1, initial=math.inf) > 0.15 * reach
    fits = ahead & clear & (tips[:, 2] > 0.2 * reach)
    if not fits.any():  # an arm that hangs, or lies: the best of all
        fits[:] = True
    return poses[np.argmax(np.where(fits, scores, -1.0))].round(3), reach


def _joint_specs(
    model: mujoco.MjModel, joints: Mapping[str, Xml.Element], pose: NDArray[np.float64]
) -> list[JointSpec]:
    """Joints in the model's order; gains are critically damped for the inertia in the pose."""
    data = _at(model, pose)
    inertia = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, inertia)
    specs: list[JointSpec] = []
    for j in range(model.njnt):
        found = model.joint(j)
        limit = joints[found.name].find("limit")
        assert limit is not None  # as `_check_joints` saw
        effort = float(limit.get("effort", ""))
        armature = _ROTOR * effort
        moved = float(inertia[j, j]) + armature
        stiffness = min(effort / _FULL_EFFORT, moved * _BANDWIDTH**2)
        damping = 2 * math.sqrt(stiffness * moved)
        specs.append(
            JointSpec(
                name=found.name, position_limit=found.range.tolist(),
                velocity_limit=float(limit.get("velocity", "")), effort_limit=effort,
                default_position=float(pose[j]), stiffness=float(f"{stiffness:.3g}"),
                damping=float(f"{damping:.3g}"), armature=float(f"{armature:.3g}"),
            )
        )  # fmt: skip
    return specs


def _last_with_mass(model: mujoco.MjModel) -> str:
    """The body of the end effector, or the nearest above it that has a mass."""
    body = int(model.site_bodyid[model.site(SITE).id])
    while body and model.body_mass[body] <= 0:
        body = int(model.body_parentid[body])
    if not body:
        raise SpecMismatchError("the end effector hangs on no link with a mass")
    return str(model.body(body).name)
