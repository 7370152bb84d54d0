"""Puts what a scene declares into a robot's model: a tool, objects, ground, clutter, cameras."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import mujoco
import numpy as np
import torch

from robot_rl.core.errors import ConfigError, unknown_name
from sim.cameras.config import CameraConfig, camera_name
from sim.physics.fault_record import warnings_unsaid
from sim.scenes.corridor import PARKED, CorridorConfig
from sim.scenes.potential_field import FORCES, OBSTACLES, POINTS, WAY
from sim.scenes.scene import SceneConfig
from sim.scenes.terrain import Terrain, TerrainConfig

NAME = "terrain"
"""Of the height field and of its geom."""
_END_EFFECTOR, _FLANGE = "end_effector", "flange"
"""Sites of an arm: where its own tool acts, and its new name under a gripper."""
"""Geom of a robot's file that the terrain takes the place of."""
_THICKNESS = 1.0
"""Solid ground below the lowest place [m]."""


def add_gripper(tree: mujoco.MjSpec, gripper: mujoco.MjSpec, file: str) -> None:
    """Fix a gripper to the site `end_effector` of an arm, and let its own take that name's place.

    The sensors of the arm then tell where the gripper's end effector is. The arm's site is called
    `flange`. Friction is solved as the gripper's file says, which has to hold things.

    Raises:
        ConfigError: Arm or gripper has no such site.
    """
    for part, whose in ((tree, "the arm's model"), (gripper, f"the gripper {file}")):
        if part.site(_END_EFFECTOR) is None:
            known = sorted(site.name for site in part.sites)
            raise ConfigError(
                f"robot.gripper_model: {whose} needs a site '{_END_EFFECTOR}'; it has "
                f"{known or 'none'}"
            )
    flange = tree.site(_END_EFFECTOR)
    watching = [sensor for sensor in tree.sensors if sensor.objname == _END_EFFECTOR]
    flange.name = _FLANGE
    tree.option.cone, tree.option.impratio = gripper.option.cone, gripper.option.impratio
    with empty_prefix():
        tree.attach(gripper, prefix="", site=flange)
    for sensor in watching:
        sensor.objname = _END_EFFECTOR


def add_terrain(tree: mujoco.MjSpec, config: TerrainConfig) -> None:
    """Replace the model's level floors by a height field, which everything with contype 1 touches.

    A published model has its floor under another name than ours.
    """
    terrain = Terrain(config, torch.device("cpu"))
    grid = terrain.grid
    rows, columns = grid.shape
    lowest, extent = float(grid.min()), max(float(grid.max() - grid.min()), 1e-3)
    tree.add_hfield(
        name=NAME,
        nrow=rows,
        ncol=columns,
        size=[*terrain.half_size, extent, _THICKNESS],
        userdata=(grid - lowest).flatten().tolist(),  # MuJoCo scales them to [0, 1]
    )
    rgba = [0.8, 0.82, 0.85, 1.0]
    plane = mujoco.mjtGeom.mjGEOM_PLANE
    for floor in [geom for geom in tree.geoms if geom.type == plane]:
        rgba = floor.rgba
        tree.delete(floor)
    tree.worldbody.add_geom(
        name=NAME, type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname=NAME, pos=[0.0, 0.0, lowest],
        contype=0, conaffinity=1, rgba=rgba,
    )  # fmt: skip


_WALL, _OBSTACLE = (0.62, 0.66, 0.72, 0.18), (0.86, 0.55, 0.28, 0.6)
"""Colours; one looks through, at the robot behind."""


def add_clutter(tree: mujoco.MjSpec, config: CorridorConfig) -> None:
    """Add walls that stand, obstacles and places of a way that are placed anew, and sensors.

    Everything with contype 1 touches walls and obstacles.

    Raises:
        ConfigError: The field is to be felt at a body that the model lacks.
    """
    bodies = {body.name: body for body in tree.bodies if body.name}
    for i, point in enumerate(config.field.points):
        if point.body not in bodies:
            raise ConfigError(unknown_name("scene.clutter.field.points: body", point.body, bodies))
        bodies[point.body].add_site(
            name=f"field_point_{i}", pos=point.offset, size=[0.01] * 3, group=4
        )
    for name, (centre, half) in config.walls.items():
        _add_box(tree.worldbody.add_body(name=name, pos=centre), half, _WALL)
    for name, half in zip(config.obstacles, config.obstacle_sizes, strict=True):
        body = tree.worldbody.add_body(name=name, mocap=True, pos=[0.0, 0.0, PARKED])
        _add_box(body, half, _OBSTACLE)
    for name in config.way:
        tree.worldbody.add_body(name=name, mocap=True, pos=[config.length, 0.0, 0.0])
    for i in range(len(config.field.points)):
        site = f"field_point_{i}"
        _add_sensor(tree, f"{POINTS}/{i}", _PLACE, mujoco.mjtObj.mjOBJ_SITE, site)
    for field, names in ((OBSTACLES, config.obstacles), (WAY, config.way)):
        for name in names:
            _add_sensor(tree, f"{field}/{name}", _PLACE, mujoco.mjtObj.mjOBJ_XBODY, name)
    for name in (*config.obstacles, *config.walls):
        kind = mujoco.mjtSensor.mjSENS_CONTACT
        sensor = _add_sensor(tree, f"{FORCES}/{name}", kind, mujoco.mjtObj.mjOBJ_BODY, name)
        # Its data, how contacts become one (their sum, world axes), and how many it tells of.
        sensor.intprm[:3] = (1 << int(mujoco.mjtConDataField.mjCONDATA_FORCE), 3, 1)


def _add_box(
    body: mujoco.MjsBody, half: tuple[float, float, float], rgba: tuple[float, float, float, float]
) -> None:
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=half, contype=0, conaffinity=1, rgba=rgba)


def _add_sensor(
    tree: mujoco.MjSpec, name: str, kind: mujoco.mjtSensor, of: mujoco.mjtObj, thing: str
) -> mujoco.MjsSensor:
    return tree.add_sensor(name=name, type=kind, objtype=of, objname=thing)


_PLACE = mujoco.mjtSensor.mjSENS_FRAMEPOS


_WATCHED = (
    ("body_position_w", mujoco.mjtSensor.mjSENS_FRAMEPOS),
    ("body_orientation_w", mujoco.mjtSensor.mjSENS_FRAMEQUAT),
    ("body_velocity_w", mujoco.mjtSensor.mjSENS_FRAMELINVEL),
    ("body_rates_w", mujoco.mjtSensor.mjSENS_FRAMEANGVEL),
)


def furnish(
    tree: mujoco.MjSpec, scene: SceneConfig, read: Callable[[str, str], mujoco.MjSpec]
) -> None:
    """Put tool, surroundings, ground and clutter into a robot's model, in this order, then sensors.

    Sensors of the surroundings may name all that is there before them.

    Args:
        tree: The robot's; changed.
        read: Reads an MJCF of a name, for an owner who is named in errors.

    Raises:
        ConfigError: A file, a site or a body is missing, a tool has joints, or joints have no name.
    """
    if scene.tool:
        tool = read(scene.tool, "tool")
        sites = {site.name: site for site in tree.sites}
        if scene.tool_site not in sites:
            raise ConfigError(unknown_name("scene.tool_site", scene.tool_site, sites))
        if list(tool.joints):
            raise ConfigError(f"tool {scene.tool} has joints; what a robot carries must be rigid")
        tree.attach(tool, prefix="", site=sites[scene.tool_site])
    if scene.file:
        surroundings = read(scene.file, "scene")
        unnamed = [joint for joint in surroundings.joints if not joint.name]
        if unnamed:
            raise ConfigError(f"scene {scene.file}: {len(unnamed)} joint(s) have no name")
        tree.attach(surroundings, prefix="", frame=tree.worldbody.add_frame())
    if scene.terrain is not None:
        add_terrain(tree, scene.terrain)
    if scene.clutter is not None:
        add_clutter(tree, scene.clutter)
    _watch(tree, scene.bodies)


def _watch(tree: mujoco.MjSpec, bodies: Sequence[str]) -> None:
    """Give bodies sensors of their pose and velocities; kinds stand together."""
    known = [body.name for body in tree.bodies if body.name]
    for body in bodies:
        if body not in known:
            raise ConfigError(unknown_name("scene.bodies: body", body, known))
    for field, kind in _WATCHED:
        for body in bodies:
            _add_sensor(tree, f"{field}/{body}", kind, mujoco.mjtObj.mjOBJ_XBODY, body)


def add_cameras(tree: mujoco.MjSpec, cameras: Mapping[str, CameraConfig]) -> None:
    """Put cameras on bodies or into the world.

    Raises:
        ConfigError: A camera is on a body that the model lacks.
    """
    bodies = {body.name: body for body in tree.bodies if body.name}
    for name, camera in cameras.items():
        if camera.body and camera.body not in bodies:
            raise ConfigError(unknown_name(f"camera '{name}': body", camera.body, bodies))
        quaternion = np.zeros(4)
        mujoco.mju_mat2Quat(quaternion, camera.axes().ravel())
        carrier = bodies[camera.body] if camera.body else tree.worldbody
        carrier.add_camera(
            name=camera_name(name), pos=camera.position, quat=quaternion,
            fovy=np.degrees(camera.field_of_view), resolution=[camera.width, camera.height],
        )  # fmt: skip


@contextmanager
def empty_prefix() -> Iterator[None]:
    """Keep quiet about attaching without a prefix: nobody writes the joined model to a file."""
    with warnings_unsaid(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Attaching a spec with an empty prefix")
        yield
