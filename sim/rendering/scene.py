"""Contents of a scene: goals as marks, the size of a robot, geoms as triangles.

An entry of a task's goal is drawn by what its name says: `position` and `preview` are points,
`corners` are squares, four points each, `velocity` is an arrow. So is the ending `_x_axis`: the way
that the x axis of something shall point. The ending `_b` means the robot's base frame, anything
else the world's. Other names are not drawn.

Triangles turn counter-clockwise seen from outside. Planes have no triangles here: a viewer draws
them as a ground of its own.
"""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import ConfigError

Floats = NDArray[np.float64]
Model: TypeAlias = mujoco.MjModel
Data: TypeAlias = mujoco.MjData
"""For those who only hand them on."""

_PREVIEW_SIZE = 0.55
"""Size of the points of a preview, where the goal will be, relative to the goal."""


_ARROW_TIME = 0.6
"""A velocity is drawn as the way that it covers in this time, times the robot's size [s/m]: what
is small moves fast beside its size."""
_AXIS_LENGTH = 0.4
"""Length of an arrow that shows a direction, relative to the robot's size."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Something to see in the world."""

    name: str
    """Entry of the goal, with the number of the point."""
    start: Floats
    """Place of a point, or foot of an arrow, (3,), world frame [m]."""
    end: Floats | None = None
    """Tip of an arrow, (3,), world frame [m]; None for a point."""
    share: float = 1.0
    """Size of a point relative to others."""
    outline: Floats | None = None
    """Corners of a closed line around `start`, (P, 3), world frame [m]; None for others."""


def goal_marks(
    goal: Mapping[str, Any], data: Data, base: int, box: tuple[Floats, Floats]
) -> list[Mark]:
    """Goals of an env, entries (width,), as marks around its robot.

    Args:
        base: Body of the robot that its base frame is.
        box: From `bounding_box`; arrows in the base frame begin above it.
    """
    low, high = box
    size = float((high - low).max())
    top, arrow_time = float(high[2]) + 0.15 * size, float(np.clip(_ARROW_TIME * size, 0.1, 0.6))
    base_position, base_rotation = data.xpos[base], data.xmat[base].reshape(3, 3)
    marks: list[Mark] = []
    for name, entry in goal.items():
        values = np.asarray(entry, dtype=np.float64)
        in_base = name.endswith("_b")
        if ("position" in name or "preview" in name) and len(values) % 3 == 0:
            share = 1.0 if "position" in name else _PREVIEW_SIZE
            for i, point in enumerate(values.reshape(-1, 3)):
                place = base_position + base_rotation @ point if in_base else point
                marks.append(Mark(name=f"{name}/{i}", start=place, share=share))
        elif "corners" in name and not in_base and len(values) % 12 == 0:
            for i, square in enumerate(values.reshape(-1, 4, 3)):
                marks.append(Mark(name=f"{name}/{i}", start=square.mean(axis=0), outline=square))
        elif name.endswith("_x_axis") and len(values) == 3:
            foot = np.array([*base_position[:2], top])
            marks.append(Mark(name=name, start=foot, end=foot + _AXIS_LENGTH * size * values))
        elif "velocity" in name and "angular" not in name and len(values) in (2, 3):
            arrow = np.zeros(3)
            linear = values[:2] if is_planar(name, len(values)) else values
            arrow[: len(linear)] = arrow_time * linear
            foot = np.array([*base_position[:2], top])
            if not in_base:
                foot = np.asarray(goal.get("position_w", foot), dtype=np.float64)
            tip = foot + (base_rotation @ arrow if in_base else arrow)
            marks.append(Mark(name=name, start=foot, end=tip))
    return marks


def is_planar(name: str, width: int) -> bool:
    """True for a velocity over the ground: forward, to the left, turning."""
    return "velocity" in name and "linear" not in name and width == 3


def is_adjustable(name: str, width: int) -> bool:
    """True for what a person can set entry by entry; a preview or a clock follows by itself."""
    return width <= 3 and ("position" in name or "velocity" in name)


_SEEN_THROUGH = 0.5
"""Opacity below which a surface lets a ray through to what lies behind."""
_GROUNDS = (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_HFIELD)
_PIERCED, _BEHIND = 64, 1e-4
"""Surfaces that a ray goes through at most, and how far behind one it goes on [m]."""


def ground_point(model: Model, data: Data, origin: Floats, direction: Floats) -> Floats:
    """Place on the ground that is seen along a ray, (3,), world frame [m].

    Args:
        origin: Where the ray begins, (3,), [m].
        direction: (3,), of any length.

    Raises:
        ConfigError: The ray meets something else, or nothing; the message is one sentence.
    """
    groups = np.arange(mujoco.mjNGROUP) < _DRAWN_GROUPS
    way, start = direction / np.linalg.norm(direction), np.array(origin, dtype=np.float64)
    hit = np.full(1, -1, dtype=np.int32)
    for _ in range(_PIERCED):
        reach = mujoco.mj_ray(model, data, start, way, groups.astype(np.uint8), True, -1, hit)
        if reach < 0:
            break
        geom = int(hit.item())
        if any(model.geom_type[geom] == kind for kind in _GROUNDS):
            return start + reach * way
        if geom_colour(model, geom)[3] >= _SEEN_THROUGH:
            body = model.body(int(model.geom_bodyid[geom])).name
            raise ConfigError(f"the click met '{body}' and not the floor: click beside it")
        start = start + (reach + _BEHIND) * way
    raise ConfigError("the click met no floor: click below the horizon")


_FARTHEST = 6.0
"""Goals farther away than this many robot radii are left out of the picture: the robot would be a
speck in it."""
_FARTHEST_OUTLINE = 20.0
"""The same for the nearest outline, something large to fly through."""


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

    Without geoms it is a metre around the origin.
    """
    if not len(geoms):
        return np.full(3, -0.5), np.full(3, 0.5)
    centre, radius = data.geom_xpos[geoms], model.geom_rbound[geoms, None]
    return (centre - radius).min(axis=0), (centre + radius).max(axis=0)


def view_radius(
    centre: NDArray[np.float64], radius: float, marks: Sequence[Mark], *, room: float = 1.0
) -> float:
    """Radius around a robot that shows it, its goals and some room [m].

    Args:
        centre: Of the robot, (3,) [m].
        radius: Of the robot [m].
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


_AROUND, _ALONG = 24, 12
"""Pieces of a circle, and of half a circle from pole to pole; even."""
_DRAWN_GROUPS = 3
"""Groups 0 to 2 are drawn, as MuJoCo does by default; by custom the rest only collides."""
_UNSET_COLOUR = (0.5, 0.5, 0.5, 1.0)
"""Colour of a geom that declares none: its material's counts."""
_KINDS = mujoco.mjtGeom


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One geom in the frame of its body."""

    name: str
    """Its name in the model, or its number."""
    body: int
    """Body that carries it."""
    vertices: NDArray[np.float32]
    """(V, 3), geom frame [m]."""
    faces: NDArray[np.int32]
    """(F, 3), indices of vertices."""
    position: NDArray[np.float64]
    """(3,), body frame [m]."""
    orientation: NDArray[np.float64]
    """Unit quaternion wxyz, geom to body, (4,)."""
    rgba: tuple[float, float, float, float]
    """In [0, 1]."""
    faceted: bool
    """True where faces meet in edges that are meant: meshes and terrain, unlike round bodies."""


def shapes_of(model: mujoco.MjModel) -> list[Shape]:
    """Everything of a model that is to be seen, planes excepted."""
    shapes: list[Shape] = []
    for i in range(model.ngeom):
        rgba = geom_colour(model, i)
        triangles = triangles_of(model, i) if is_drawn(model, i) and rgba[3] > 0 else None
        if triangles is not None:
            shapes.append(
                Shape(
                    name=model.geom(i).name or f"geom_{i}",
                    body=int(model.geom_bodyid[i]),
                    vertices=triangles[0].astype(np.float32),
                    faces=triangles[1].astype(np.int32),
                    position=model.geom_pos[i].copy(),
                    orientation=model.geom_quat[i].copy(),
                    rgba=rgba,
                    faceted=model.geom_type[i] in (_KINDS.mjGEOM_MESH, _KINDS.mjGEOM_HFIELD),
                )
            )
    return shapes


def planes_of(model: mujoco.MjModel) -> list[int]:
    """Planes that are to be seen."""
    return [
        i
        for i in range(model.ngeom)
        if model.geom_type[i] == _KINDS.mjGEOM_PLANE and is_drawn(model, i)
    ]


def geom_colour(model: mujoco.MjModel, geom: int) -> tuple[float, float, float, float]:
    """Its own colour, or that of its material."""
    own, material = model.geom_rgba[geom], int(model.geom_matid[geom])
    if material >= 0 and np.allclose(own, _UNSET_COLOUR):
        own = model.mat_rgba[material]
    red, green, blue, opacity = map(float, own)
    return red, green, blue, opacity


def triangles_of(model: mujoco.MjModel, geom: int) -> tuple[NDArray, NDArray] | None:
    """Vertices (V, 3) and faces (F, 3) of a geom; None where it has no surface to draw."""
    kind, size = model.geom_type[geom], model.geom_size[geom]
    if kind == _KINDS.mjGEOM_SPHERE:
        return _round(size[[0, 0, 0]], 0.0)
    if kind == _KINDS.mjGEOM_ELLIPSOID:
        return _round(size, 0.0)
    if kind == _KINDS.mjGEOM_CAPSULE:
        return _round(size[[0, 0, 0]], float(size[1]))
    if kind == _KINDS.mjGEOM_CYLINDER:
        return _cylinder(float(size[0]), float(size[1]))
    if kind == _KINDS.mjGEOM_BOX:
        return _box(size)
    if kind == _KINDS.mjGEOM_MESH:
        return _mesh(model, int(model.geom_dataid[geom]))
    if kind == _KINDS.mjGEOM_HFIELD:
        return _height_field(model, int(model.geom_dataid[geom]))
    return None


def is_drawn(model: mujoco.MjModel, geom: int) -> bool:
    """True for what is seen; the rest only collides."""
    return int(model.geom_group[geom]) < _DRAWN_GROUPS


def _round(radii: NDArray, half_length: float) -> tuple[NDArray, NDArray]:
    """An ellipsoid, pulled apart along z by twice the half length: a capsule."""
    # The equator comes twice, once for each half.
    polar = np.concatenate([half + np.linspace(0, np.pi / 2, _ALONG // 2 + 1)
                            for half in (0.0, np.pi / 2)])  # fmt: skip
    around = np.arange(_AROUND) * (2 * np.pi / _AROUND)
    lift = np.repeat([half_length, -half_length], len(polar) // 2)
    x = np.outer(np.sin(polar), np.cos(around)) * radii[0]
    y = np.outer(np.sin(polar), np.sin(around)) * radii[1]
    z = np.repeat((np.cos(polar) * radii[2] + lift)[:, None], _AROUND, axis=1)
    return np.stack([x, y, z], axis=-1).reshape(-1, 3), _rings(len(polar))


def _cylinder(radius: float, half_length: float) -> tuple[NDArray, NDArray]:
    """Its edges are doubled, so that they stay sharp where normals are averaged."""
    around = np.arange(_AROUND) * (2 * np.pi / _AROUND)
    ring = np.stack([np.cos(around), np.sin(around), np.zeros(_AROUND)], axis=-1) * radius
    heights = (half_length, half_length, half_length, -half_length, -half_length, -half_length)
    widths = (0.0, 1.0, 1.0, 1.0, 1.0, 0.0)
    rings = [ring * w + [0, 0, h] for w, h in zip(widths, heights, strict=True)]
    return np.concatenate(rings), _rings(len(rings))


def _rings(count: int) -> NDArray:
    """Faces between rings of `_AROUND` vertices, the first ring on top."""
    first = np.arange(_AROUND)
    after = (first + 1) % _AROUND
    strips = []
    for ring in range(count - 1):
        upper, lower = ring * _AROUND, (ring + 1) * _AROUND
        strips.append(np.stack([upper + first, lower + first, lower + after], axis=-1))
        strips.append(np.stack([upper + first, lower + after, upper + after], axis=-1))
    return np.concatenate(strips)


def _box(half: NDArray) -> tuple[NDArray, NDArray]:
    """Four vertices a side."""
    vertices, faces = [], []
    for axis in range(3):
        u, v = np.eye(3)[(axis + 1) % 3], np.eye(3)[(axis + 2) % 3]
        for sign in (1.0, -1.0):
            corners = [sign * np.eye(3)[axis] + a * u + sign * b * v
                       for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]  # fmt: skip
            start = len(vertices)
            vertices += [corner * half for corner in corners]
            faces += [[start, start + 1, start + 2], [start, start + 2, start + 3]]
    return np.array(vertices), np.array(faces)


def _mesh(model: mujoco.MjModel, mesh: int) -> tuple[NDArray, NDArray]:
    first, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
    face, faces = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
    return model.mesh_vert[first : first + count].copy(), model.mesh_face[
        face : face + faces
    ].copy()


def _height_field(model: mujoco.MjModel, field: int) -> tuple[NDArray, NDArray]:
    """Its upper surface; columns run along x, rows along y."""
    rows, columns = int(model.hfield_nrow[field]), int(model.hfield_ncol[field])
    half_x, half_y, top, _ = model.hfield_size[field]
    start = int(model.hfield_adr[field])
    heights = model.hfield_data[start : start + rows * columns].reshape(rows, columns) * top
    x, y = np.meshgrid(np.linspace(-half_x, half_x, columns), np.linspace(-half_y, half_y, rows))
    index = np.arange(rows * columns).reshape(rows, columns)
    a, b, c, d = index[:-1, :-1], index[:-1, 1:], index[1:, 1:], index[1:, :-1]
    faces = np.concatenate(
        [np.stack([a, b, c], axis=-1).reshape(-1, 3), np.stack([a, c, d], axis=-1).reshape(-1, 3)]
    )
    return np.stack([x, y, heights], axis=-1).reshape(-1, 3), faces
