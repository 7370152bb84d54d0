"""How large a robot is and where: what a camera must know."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.viewing.goals import Mark, goal_marks
from sim.viewing.shapes import is_drawn
from sim.viewing.worlds import Data, Model

_FARTHEST = 6.0
"""Goals farther away than this many robot radii are left out of the picture: the robot would be a
speck in it."""
_FARTHEST_OUTLINE = 20.0
"""The same for the nearest outline, something large to fly through."""

_ARROW_TIME = 0.6
"""A velocity is drawn as the way that it covers in this time, times the robot's size [s/m]: what
is small moves fast beside its size."""


def robot_geoms(model: Model, base: int) -> NDArray[np.int64]:
    """Geoms that are drawn of the robot whose root is the body `base`."""
    return np.array(
        [
            i
            for i in range(model.ngeom)
            if model.body_rootid[model.geom_bodyid[i]] == base and is_drawn(model, i)
        ],
        dtype=np.int64,
    )


def bounding_box(
    model: Model, data: Data, geoms: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lowest and highest corner of the geoms' bounding spheres, world axes [m].

    Args:
        model: The model.
        data: With poses of the geoms.
        geoms: From `robot_geoms`; none gives a metre around the origin.
    """
    if not len(geoms):
        return np.full(3, -0.5), np.full(3, 0.5)
    centre, radius = data.geom_xpos[geoms], model.geom_rbound[geoms, None]
    return (centre - radius).min(axis=0), (centre + radius).max(axis=0)


def marks_of(
    goal: Mapping[str, Any],
    data: Data,
    base: int,
    box: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> list[Mark]:
    """Goals of a world as marks around its robot.

    Args:
        goal: Entries (width,).
        data: The world.
        base: Body of the robot that its base frame is.
        box: From `bounding_box`.
    """
    low, high = box
    size = float((high - low).max())
    return goal_marks(
        goal,
        data.xpos[base],
        data.xmat[base].reshape(3, 3),
        top=float(high[2]) + 0.15 * size,
        arrow_time=float(np.clip(_ARROW_TIME * size, 0.1, 0.6)),
    )


def view_radius(
    centre: NDArray[np.float64], radius: float, marks: Sequence[Mark], *, room: float = 1.0
) -> float:
    """Radius around a robot that shows it, its goals and some room [m].

    Args:
        centre: Of the robot, (3,) [m].
        radius: Of the robot [m].
        marks: Goals.
        room: Least result in robot radii.
    """
    points = [mark for mark in marks if mark.outline is None]
    ends = [end for mark in points for end in (mark.start, mark.end) if end is not None]
    reach = max((float(np.linalg.norm(end - centre)) for end in ends), default=0.0)
    outlines = [mark.outline for mark in marks if mark.outline is not None]
    nearest = min(
        (float(np.linalg.norm(corners - centre, axis=1).max()) for corners in outlines), default=0.0
    )
    return float(
        max(
            np.clip(reach, room * radius, _FARTHEST * radius),
            min(nearest, _FARTHEST_OUTLINE * radius),
        )
    )
