"""Puts a corridor's walls, obstacles and places into a robot's model, with what senses them."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import mujoco

from robot_rl.core.errors import ConfigError, unknown_name
from sim.scenes.clutter.corridor import PARKED, CorridorConfig
from sim.scenes.clutter.field import FORCES, OBSTACLES, POINTS, WAY

_NET_FORCE = (1 << int(mujoco.mjtConDataField.mjCONDATA_FORCE), 3, 1)
"""A contact sensor's data, how many contacts become one (their sum, world axes), and how many it
tells of."""
_WALL, _OBSTACLE = (0.62, 0.66, 0.72, 0.18), (0.86, 0.55, 0.28, 0.6)
"""Colours; one looks through, at the robot behind."""


def add_clutter(tree: mujoco.MjSpec, config: CorridorConfig) -> None:
    """Add walls that stand, obstacles and places of a way that are placed anew, and sensors.

    Everything with contype 1 touches walls and obstacles.

    Args:
        tree: A robot's model; changed.
        config: Which corridor.

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
        _add_place(tree, f"{POINTS}/{i}", mujoco.mjtObj.mjOBJ_SITE, f"field_point_{i}")
    for field, names in ((OBSTACLES, config.obstacles), (WAY, config.way)):
        for name in names:
            _add_place(tree, f"{field}/{name}", mujoco.mjtObj.mjOBJ_XBODY, name)
    for name in (*config.obstacles, *config.walls):
        sensor = tree.add_sensor()
        sensor.name, sensor.type = f"{FORCES}/{name}", mujoco.mjtSensor.mjSENS_CONTACT
        sensor.objtype, sensor.objname = mujoco.mjtObj.mjOBJ_BODY, name
        sensor.intprm[:3] = _NET_FORCE


def _add_box(
    body: mujoco.MjsBody, half: tuple[float, float, float], rgba: tuple[float, float, float, float]
) -> None:
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=half, contype=0, conaffinity=1, rgba=rgba)


def _add_place(tree: mujoco.MjSpec, name: str, kind: mujoco.mjtObj, thing: str) -> None:
    sensor = tree.add_sensor()
    sensor.name, sensor.type = name, mujoco.mjtSensor.mjSENS_FRAMEPOS
    sensor.objtype, sensor.objname = kind, thing
