"""A robot's URDF, read and checked: links, joints and shapes, and what it does not say.

MuJoCo's own importer makes a model of it. What is missing that can stand open is told, the rest is
refused with the name of the joint or link.
"""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as Xml

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import JointSpec

_MESHES = (".stl", ".obj", ".msh")
"""Formats of meshes that MuJoCo reads."""
MOVING = ("revolute", "prismatic")
_TURN = 2 * math.pi


@dataclass(kw_only=True)
class Urdf:
    """A URDF whose joints have been checked, and which MuJoCo can read."""

    path: Path
    root: Xml.Element
    base: str
    """Link that the others hang from."""
    turning: list[str]
    """Joints that were continuous."""
    missing: list[str] = field(default_factory=list[str])
    """Facts that it does not say, each with what stands in its place, a line each."""

    @property
    def links(self) -> list[Xml.Element]:
        """Links, in the file's order."""
        return self.root.findall("link")

    @property
    def joints(self) -> list[Xml.Element]:
        """Joints, in the file's order."""
        return self.root.findall("joint")

    @property
    def moving(self) -> dict[str, Xml.Element]:
        """Joints that move, by name."""
        return {j.get("name", ""): j for j in self.joints if j.get("type") in MOVING}

    def above(self, link: str) -> list[Xml.Element]:
        """Joints between a link and the base, the nearest to the link first."""
        bearing = {end(joint, "child"): joint for joint in self.joints}
        found: list[Xml.Element] = []
        while link in bearing:
            found.append(bearing[link])
            link = end(bearing[link], "parent")
        return found

    @property
    def ends(self) -> list[str]:
        """Links that bear no other."""
        parents = {end(joint, "parent") for joint in self.joints}
        return [name for link in self.links if (name := link.get("name", "")) not in parents]

    def limit(self, joint: str, what: str) -> float:
        """Number of a joint's `<limit>`."""
        limit = self.moving[joint].find("limit")
        assert limit is not None  # as `_check_joints` saw
        return float(limit.get(what, ""))

    def joint_spec(
        self, model: mujoco.MjModel, joint: int, position: float, *, stiffness: float,
        damping: float, armature: float,
    ) -> JointSpec:  # fmt: skip
        """A joint with its limits and what was estimated, numbers to three digits."""
        found = model.joint(joint)
        return JointSpec(
            name=found.name, position_limit=found.range.tolist(),
            velocity_limit=self.limit(found.name, "velocity"),
            effort_limit=self.limit(found.name, "effort"), default_position=position,
            stiffness=float(f"{stiffness:.3g}"), damping=float(f"{damping:.3g}"),
            armature=float(f"{armature:.3g}"),
        )  # fmt: skip

    @property
    def told_of_rotors(self) -> str:
        """What stands in the place of rotors and friction."""
        found = self.root.find(".//dynamics") is not None
        return (
            "armature (the rotors' inertia): estimated from efforts; friction: "
            f"{'as <dynamics> says' if found else 'none'}"
        )


def open_urdf(path: Path, *, walks: bool) -> Urdf:
    """Read and check a URDF.

    Args:
        path: The file.
        walks: Its base is free, so that a floating joint above it is no joint of the robot's own.

    Raises:
        ConfigError: There is no such file, it is no URDF, or something in it is missing that
            cannot be estimated.
    """
    root = read_urdf(path)
    if walks:
        _cut_loose(path, root)
    base = _base(path, root.findall("link"), root.findall("joint"))
    if walks:
        base = _cut_frames(root, base)
    turning = [j.get("name", "") for j in root.findall("joint") if j.get("type") == "continuous"]
    found = Urdf(path=path, root=root, base=base, turning=turning)
    found.missing += _limit_continuous(found.joints)
    _check_joints(path, found.joints)
    if not found.moving:
        raise ConfigError(f"{path} has no joint that moves; expected a robot with revolute joints")
    return found


def imported(
    urdf: Urdf, ends: Sequence[str], mesh_folder: str
) -> tuple[mujoco.MjSpec, dict[str, Path]]:
    """MuJoCo's model of a URDF, without motors.

    Args:
        urdf: Loses the shapes that are not taken.
        ends: Links that must not hang on a joint that follows another.
        mesh_folder: Folder of meshes, as the MJCF will name it.

    Returns:
        The model; and meshes by the names that they will have in that folder.

    Raises:
        ConfigError: A link has no mass, a mesh is missing, or MuJoCo refuses the file.
    """
    path = urdf.path
    urdf.missing += _fix_mimics(urdf, ends)
    _check_masses(path, urdf.links, urdf.joints)
    meshes = _shapes(path, urdf.links, mesh_folder, urdf.missing)
    tree = _read(path, urdf.root, {file: source.read_bytes() for file, source in meshes.items()})
    tree.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    for joint in tree.joints:
        joint.actfrclimited = mujoco.mjtLimited.mjLIMITED_FALSE  # motors are the spec's
        joint.actfrcrange = [0, 0]
    world = tree.worldbody
    world.add_light(name="top", pos=[0, 0, 2.5], dir=[0, 0, -1])
    world.add_geom(
        name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.05], contype=0,
        conaffinity=1, rgba=[0.8, 0.82, 0.85, 1],
    )  # fmt: skip
    tree.meshdir = mesh_folder
    return tree, meshes


def compiled(
    urdf: Urdf, tree: mujoco.MjSpec, meshes: Mapping[str, Path]
) -> tuple[str, mujoco.MjModel]:
    """A model's MJCF, and the model that is made of its numbers as they are written.

    Raises:
        ConfigError: MuJoCo refuses it.
    """
    assets = {f"{tree.meshdir}/{file}": source.read_bytes() for file, source in meshes.items()}
    try:
        tree.assets = assets
        tree.compile()
        mjcf = tree.to_xml()
        return mjcf, mujoco.MjModel.from_xml_string(mjcf, assets)
    except ValueError as error:
        raise ConfigError(f"MuJoCo refuses {urdf.path}: {' '.join(str(error).split())}") from error


def posed(model: mujoco.MjModel, pose: NDArray[np.float64]) -> mujoco.MjData:
    """The robot with its joints at `pose`, (J,), and its base in the origin."""
    data = mujoco.MjData(model)
    data.qpos[model.nq - len(pose) :] = pose
    mujoco.mj_forward(model, data)
    return data


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


def _cut_loose(path: Path, root: Xml.Element) -> None:
    """Take away a floating joint at the top, and the link above it."""
    joints = root.findall("joint")
    free = [joint for joint in joints if joint.get("type") == "floating"]
    if not free:
        return
    parent = end(free[0], "parent")
    others = [
        j for j in joints if j is not free[0] and parent in (end(j, "parent"), end(j, "child"))
    ]
    if len(free) > 1 or others:
        raise ConfigError(
            f"{path}: joint '{free[0].get('name')}' is floating; expected one such joint at most, "
            "between the robot's base and a link that bears nothing else, such as world"
        )
    root.remove(free[0])
    for link in root.findall("link"):
        if link.get("name") == parent:
            root.remove(link)


def _cut_frames(root: Xml.Element, base: str) -> str:
    """Take away frames above a walking robot's body, such as base_footprint; returns the body.

    A frame has neither mass nor shape, and one fixed joint to the link that it stands for.
    """
    links = {link.get("name", ""): link for link in root.findall("link")}
    parts = ("inertial", "visual", "collision")
    while all(links[base].find(part) is None for part in parts):
        borne = [joint for joint in root.findall("joint") if end(joint, "parent") == base]
        if len(borne) != 1 or borne[0].get("type") != "fixed":
            break
        root.remove(links[base])
        root.remove(borne[0])
        base = end(borne[0], "child")
    return base


def _base(path: Path, links: Sequence[Xml.Element], joints: Sequence[Xml.Element]) -> str:
    """Link that the others hang from; one called `world`, which is MuJoCo's own, is taken off."""
    names = [link.get("name", "") for link in links]
    children = [end(joint, "child") for joint in joints]
    unknown = sorted({*children, *(end(joint, "parent") for joint in joints)} - set(names))
    if unknown:
        raise ConfigError(f"{path} has joints of links {unknown}, which are not in it: {names}")
    roots = [name for name in names if name not in children]
    if len(roots) != 1:
        raise ConfigError(f"{path} has {len(roots)} links without a parent, {roots}; expected one")
    if doubled := sorted({child for child in children if children.count(child) > 1}):
        raise ConfigError(f"{path} has several joints with the child {doubled}; expected one each")
    borne = [roots[0]]
    for link in borne:  # grows
        borne += [end(joint, "child") for joint in joints if end(joint, "parent") == link]
    if loop := [name for name in names if name not in borne]:
        raise ConfigError(f"{path} has joints in a loop, of the links {loop}; expected a tree")
    if roots[0] == "world":
        fixed = [j for j in joints if end(j, "parent") == "world" and j.get("type") == "fixed"]
        if len(fixed) != 1:
            raise ConfigError(f"{path}: expected one fixed joint at the link world")
        return end(fixed[0], "child")
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


def _fix_mimics(urdf: Urdf, ends: Sequence[str]) -> list[str]:
    """Fix joints that follow others, such as second fingers, at their zero; says so, a line each.

    Raises:
        ConfigError: One bears an end, follows no joint, or cannot stand at its zero.
    """
    path, joints = urdf.path, urdf.joints
    bearing = [joint for link in ends for joint in urdf.above(link)]
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
                f"{where} mimics '{leader}' and moves the end effector or a foot, and coupled "
                "joints are not imported: name another end, or write the model by hand"
            )
        low, high = (0.0 if limit is None else _number(limit.get(side, "0"))
                     for side in ("lower", "upper"))  # fmt: skip
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
                f"{where} is floating: name the feet of a robot that walks (feet=[...]); the "
                "base of an arm is fixed"
            )
        if kind == "fixed":
            continue
        if kind not in MOVING:
            raise ConfigError(f"{where} is {kind}; expected revolute, prismatic or fixed")
        limit = joint.find("limit")
        values = {} if limit is None else limit.attrib
        if "lower" not in values or "upper" not in values:
            raise ConfigError(f"{where} has no limits; expected <limit lower= upper= ...>")
        if not _number(values["lower"]) < _number(values["upper"]):
            raise ConfigError(
                f"{where} goes from {values['lower']} to {values['upper']}; expected lower < "
                "upper, both finite"
            )
        if joint.find("mimic") is not None:  # no motor moves it
            continue
        for what in ("effort", "velocity"):
            if not _number(values.get(what, "0")) > 0:
                raise ConfigError(
                    f"{where} has {what} {values.get(what, 'none')} in <limit>; expected more than "
                    "0, and finite, from the manufacturer's data"
                )


def _number(text: str) -> float:
    """A finite number; NaN where it is none."""
    try:
        found = float(text)
    except ValueError:
        return math.nan
    return found if math.isfinite(found) else math.nan


def end(joint: Xml.Element, side: str) -> str:
    """Name of the parent or the child of a joint."""
    found = joint.find(side)
    return "" if found is None else found.get("link", "")


def _check_masses(path: Path, links: Sequence[Xml.Element], joints: Sequence[Xml.Element]) -> None:
    """Refuse a joint that moves nothing with a mass: links behind fixed joints count to it."""
    masses = {link.get("name", ""): link.find("inertial/mass") for link in links}
    for joint in joints:
        if joint.get("type") not in MOVING:
            continue
        waiting, found = [end(joint, "child")], False
        for name in waiting:
            mass = masses[name]
            found |= mass is not None and _number(mass.get("value", "")) > 0
            waiting += [
                end(j, "child")
                for j in joints
                if end(j, "parent") == name and j.get("type") == "fixed"
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
        for shape in link.findall("collision" if collide else "visual"):
            shape.attrib.pop("name", None)  # nothing needs it, and it may be that of our floor
        for mesh in link.iter("mesh"):
            named = mesh.get("filename", "")
            source = _mesh_file(path, named)
            if source.suffix.lower() not in _MESHES:
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


def _read(path: Path, root: Xml.Element, assets: Mapping[str, bytes]) -> mujoco.MjSpec:
    for old in root.findall("mujoco"):
        root.remove(old)
    compiler = Xml.SubElement(Xml.SubElement(root, "mujoco"), "compiler")
    compiler.attrib |= {"fusestatic": "false", "discardvisual": "false"}
    try:
        return mujoco.MjSpec.from_string(Xml.tostring(root, encoding="unicode"), assets=assets)
    except ValueError as error:
        raise ConfigError(f"MuJoCo refuses {path}: {' '.join(str(error).split())}") from error
