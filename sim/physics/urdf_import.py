"""An arm's URDF as our MJCF with its joints' limits, and what a URDF does not say.

What is added is what every arm here has: gravity that is compensated at the joints, links that do
not collide with each other, and the end effector with the sensors of its pose. Gains and a default
pose are estimates, so that the arm can be simulated at once; `ImportedArm.missing` says what should
replace them.
"""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot import JointSpec
from sim.physics.urdf_file import MOVING, Urdf, compiled, imported, open_urdf, posed

SITE = "end_effector"
_TIPS = ("tool0", "tcp", "ee_link", "ee", "end_effector", "tool", "flange", "hand_tcp", "tip")
"""Names that end effectors have in published descriptions, the likeliest first."""
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
    urdf = open_urdf(path, walks=False)
    tip = _tip(urdf, end_effector)
    tree, meshes = imported(urdf, [tip], mesh_folder)
    _complete(tree, name, urdf.base, tip)
    urdf.missing += _unmounted(tree.body(urdf.base))
    mjcf, model = compiled(urdf, tree, meshes)
    pose, reach = _default_pose(model)
    specs = _joint_specs(model, urdf, pose)
    data = posed(model, pose)
    place = data.sensor("end_effector_position_b").data.copy()
    payload = _last_with_mass(model)
    urdf.missing += [
        "gains (stiffness, damping): estimated from efforts and masses; take your controller's",
        "default pose: chosen by how well the end effector can move there; take your arm's own",
        urdf.told_of_rotors,
        "sensors: rate, noise and latency are assumptions",
        "an inertial sensor and a gripper: none; the base stands fixed in the origin",
        "gravity: compensated at the joints, as most arms' own controllers do (gravcomp)",
        "collisions: with floor and objects, not between links",
    ]
    return ImportedArm(
        mjcf=mjcf, joints=specs, meshes=meshes, end_effector=tip, payload_body=payload,
        tip=place, reach=reach, mass=float(model.body_mass[model.body_weldid != 0].sum()),
        missing=urdf.missing,
    )  # fmt: skip


def _tip(urdf: Urdf, asked: str) -> str:
    """Link of the end effector: the one that was asked for, or the only end of the longest way."""
    path, names = urdf.path, [link.get("name", "") for link in urdf.links]
    if asked and asked not in names:
        raise ConfigError(f"{path} has no link '{asked}' for end_effector; it has {names}")
    moved_by = {
        name: sum(joint.get("type") in MOVING for joint in urdf.above(name)) for name in names
    }
    if asked:
        if not moved_by[asked]:
            raise ConfigError(f"{path}: no joint moves link '{asked}', so it is no end effector")
        return asked
    last = [name for name in names if moved_by[name] == max(moved_by.values())]
    known = [tip for tip in _TIPS if tip in last]
    ends = [name for name in last if name in urdf.ends]
    if known:
        return known[0]
    if len(ends) != 1:
        raise ConfigError(
            f"{path} has several links at its end, {ends}: name the end effector with "
            f"end_effector=<link>, or the feet of a robot that walks with feet=[{','.join(ends)}]"
        )
    return ends[0]


def _complete(tree: mujoco.MjSpec, name: str, base: str, tip: str) -> None:
    """Add what every arm here has, and URDF has not."""
    tree.modelname = name
    for body in tree.bodies:
        if body.name != "world":
            body.gravcomp = 1
    for geom in [geom for geom in tree.geoms if geom.name != "floor"]:
        moves = any(body.joints for body in _ancestors(geom.parent))
        geom.contype, geom.conaffinity, geom.density = int(moves), 0, 0  # the base is in the floor
    tree.body(tip).add_site(name=SITE, size=[0.008] * 3, rgba=[0.1, 0.6, 0.3, 1])
    kinds = mujoco.mjtSensor.mjSENS_FRAMEPOS, mujoco.mjtSensor.mjSENS_FRAMEQUAT
    for field, kind in zip(("position", "orientation"), kinds, strict=True):
        tree.add_sensor(
            name=f"end_effector_{field}_b", type=kind, objtype=mujoco.mjtObj.mjOBJ_SITE,
            objname=SITE, reftype=mujoco.mjtObj.mjOBJ_XBODY, refname=base,
        )  # fmt: skip


def _unmounted(base: mujoco.MjsBody) -> list[str]:
    """Put the base into the origin, unturned, where goals and workspaces are; says so, a line."""
    if not any(base.pos) and not any(base.quat[1:]):
        return []
    place = ", ".join(f"{x:.4g}" for x in base.pos)
    turned = ", turned," if any(base.quat[1:]) else ""
    base.pos, base.quat = [0.0] * 3, [1.0, 0.0, 0.0, 0.0]
    return [f"the mount: the base is at [{place}] m{turned} in the URDF, and here in the origin"]


def _ancestors(body: mujoco.MjsBody) -> Iterator[mujoco.MjsBody]:
    """A body and all above it."""
    while body is not None:
        yield body
        body = body.parent


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


def _joint_specs(model: mujoco.MjModel, urdf: Urdf, pose: NDArray[np.float64]) -> list[JointSpec]:
    """Joints in the model's order; gains are critically damped for the inertia in the pose."""
    data = posed(model, pose)
    inertia = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, inertia)
    specs: list[JointSpec] = []
    for j in range(model.njnt):
        effort = urdf.limit(model.joint(j).name, "effort")
        armature = _ROTOR * effort
        moved = float(inertia[j, j]) + armature
        stiffness = min(effort / _FULL_EFFORT, moved * _BANDWIDTH**2)
        damping = 2 * math.sqrt(stiffness * moved)
        specs.append(
            urdf.joint_spec(
                model, j, float(pose[j]), stiffness=stiffness, damping=damping, armature=armature
            )
        )
    return specs


def _last_with_mass(model: mujoco.MjModel) -> str:
    """The body of the end effector, or the nearest above it that has a mass."""
    body = int(model.site_bodyid[model.site(SITE).id])
    while body and model.body_mass[body] <= 0:
        body = int(model.body_parentid[body])
    if not body:
        raise SpecMismatchError("the end effector hangs on no link with a mass")
    return str(model.body(body).name)
