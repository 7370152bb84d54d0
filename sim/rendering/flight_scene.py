"""A multirotor above a floor as a model of MuJoCo, at the size of the robot that flies."""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

from pathlib import Path
from typing import NamedTuple

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

_FILE = Path(__file__).parent / "models" / "flight_scene.xml"
FLIGHT_FLOOR = -1.6
"""Height of the floor under multirotors [m]: their envs have none, and goals lie around 0."""

BLADE_SPEED = 45.0
"""Shown turning of a rotor at full speed [rad/s]; the true one would alias."""


class DrawnMultirotor(NamedTuple):
    """Drawing of a multirotor, which is a Crazyflie's."""

    tree: mujoco.MjSpec
    """The model, not compiled yet: its first body is the multirotor with a free joint and the
    joints of four rotors."""
    order: NDArray[np.int64]
    """Rotor of the drawing that each of the multirotor's is, (4,): the one on the same side."""
    scale: float
    """Size of the multirotor, in Crazyflies."""


def flight_scene(rotor_position: ArrayLike) -> DrawnMultirotor:
    """Draw a multirotor above a floor.

    Args:
        rotor_position: x and y of its rotors, (4, 2), [m].
    """
    rotors = np.asarray(rotor_position)
    tree = mujoco.MjSpec.from_file(str(_FILE))
    tree.geom("floor").pos[2] = FLIGHT_FLOOR
    body = tree.body("crazyflie")
    drawn = np.array([rotor.pos[:2] for rotor in body.bodies])
    scale = float(np.linalg.norm(rotors, axis=1).mean() / np.linalg.norm(drawn, axis=1).mean())
    for part in (body, *body.bodies):
        for geom in part.geoms:
            geom.pos, geom.size = scale * geom.pos, scale * geom.size
    for rotor in body.bodies:
        rotor.pos = scale * rotor.pos
    tree.stat.extent *= scale  # what is larger is looked at from farther away, through no fog
    tree.geom("floor").size[:2] *= scale
    return DrawnMultirotor(tree, (rotors @ drawn.T).argmax(axis=1), scale)
