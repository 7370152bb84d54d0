"""Puts what a scene declares into a robot's model: a tool, objects, ground, clutter."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import mujoco

from robot_rl.core.errors import ConfigError, unknown_name
from sim.physics.mujoco_model.clutter import add_clutter
from sim.physics.mujoco_model.quiet import warnings_unsaid
from sim.physics.mujoco_model.terrain import add_terrain
from sim.scenes.scene import SceneConfig

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
        scene: What is put in.
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
            sensor = tree.add_sensor()
            sensor.name, sensor.type = f"{field}/{body}", kind
            sensor.objtype, sensor.objname = mujoco.mjtObj.mjOBJ_XBODY, body


@contextmanager
def empty_prefix() -> Iterator[None]:
    """Keep quiet about attaching without a prefix: nobody writes the joined model to a file."""
    with warnings_unsaid(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Attaching a spec with an empty prefix")
        yield
