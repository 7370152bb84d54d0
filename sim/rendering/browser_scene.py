"""Draws one env in the browser: bodies, ground, goals, contacts.

Bodies are frames whose geoms are sent once; after that only poses travel. A moving robot is
followed by moving the world under it, so that the person's own camera is never touched.
"""

import math
from collections.abc import Sequence

import numpy as np
import viser
from numpy.typing import NDArray

from sim.rendering.scene import (
    Data,
    Mark,
    bounding_box,
    planes_of,
    robot_geoms,
    shapes_of,
    view_radius,
)
from sim.rendering.shown import ShownEnvs, contact_forces

_ROOT = "/shown"
_GOAL, _CONTACT = (0, 158, 115), (213, 94, 0)  # Okabe and Ito 2008
_GROUND, _LINE, _SECTION = (231, 236, 241), (205, 212, 220), (170, 180, 192)
_FOLLOW_TIME = 0.12
"""Time constant with which the world is moved under a robot [s]."""
_FIELD_OF_VIEW = math.radians(45)
_MARGIN, _ROOM = 1.35, 1.6
"""Distance of the camera relative to what would just fill the picture; radii of a moving robot that
are seen at least."""
_MARK_SIZE, _LEAST = 0.035, 0.05
"""Radius of a goal, and length of an arrow that is more than its head, relative to the view."""


class BrowserScene:
    """The scene of one server."""

    def __init__(
        self,
        server: viser.ViserServer,
        shown: ShownEnvs,
        data: Data,
        marks: Sequence[Mark],
    ) -> None:
        """Send everything that keeps its shape; the camera begins with the goals in the picture."""
        self._server, self._shown = server, shown
        model = shown.model
        self._geoms = robot_geoms(model, shown.base)
        low, high = bounding_box(model, data, self._geoms)
        self._start = 0.5 * (low + high)
        self._focus = self._start.copy()
        self._radius = 0.5 * float(np.linalg.norm(high - low))
        self._weight = 9.81 * float(model.body_subtreemass[shown.base])
        scene = server.scene
        scene.set_up_direction("+z")
        self._root = scene.add_frame(_ROOT, show_axes=False)
        self._bodies = [
            scene.add_frame(f"{_ROOT}/body_{i}", show_axes=False) for i in range(model.nbody)
        ]
        for shape in shapes_of(model):
            scene.add_mesh_simple(
                f"{_ROOT}/body_{shape.body}/{shape.name}",
                shape.vertices,
                shape.faces,
                color=_bytes(shape.rgba[:3]),
                opacity=None if shape.rgba[3] >= 1 else shape.rgba[3],
                flat_shading=shape.faceted,
                position=shape.position,
                wxyz=shape.orientation,
                cast_shadow=shape.rgba[3] >= 1,
            )
        self._add_ground(data)
        room = _ROOM if shown.floats else 1.0
        self._view = view_radius(self._start, self._radius, marks, room=room)
        self._aim()
        self._marks: dict[str, viser.SceneNodeHandle] = {}
        self._points = scene.add_point_cloud(
            f"{_ROOT}/contact/points", np.zeros((1, 3)), _CONTACT, point_size=0.06 * self._radius,
            point_shape="circle", precision="float32", visible=False,
        )  # fmt: skip
        self._forces = self._add_arrows("contact/forces", np.zeros((1, 2, 3)), _CONTACT)

    def draw(
        self,
        data: Data,
        marks: Sequence[Mark],
        *,
        contacts: bool,
        follow: bool,
        elapsed: float,
    ) -> None:
        """Bring the scene up to date, `elapsed` after the last call [s]."""
        with self._server.atomic():
            for i, frame in enumerate(self._bodies):
                frame.position, frame.wxyz = data.xpos[i], data.xquat[i]
            self._draw_marks(marks)
            self._draw_contacts(data, contacts)
            self._follow(data, follow and self._shown.floats, elapsed)

    def world(self, place: Sequence[float]) -> NDArray[np.float64]:
        """Place of the world, (3,), [m], that is shown at a place of the page."""
        return np.asarray(place, dtype=np.float64) - self._root.position

    def _aim(self) -> None:
        """Place of the camera at first, and after "reset view"."""
        self._server.scene.set_background_image(_sky())
        camera = self._server.initial_camera
        distance = _MARGIN * self._view / math.tan(_FIELD_OF_VIEW / 2)
        away = np.array([math.cos(0.95), -math.sin(0.95), 0.42])
        camera.fov = _FIELD_OF_VIEW
        camera.near, camera.far = 0.02 * self._radius, 400 * self._radius
        camera.look_at = self._start
        camera.position = self._start + distance * away / np.linalg.norm(away)

    def _add_ground(self, data: Data) -> None:
        cell = 0.5 if self._radius > 0.2 else 0.2  # [m]
        for geom in planes_of(self._shown.model):
            self._server.scene.add_grid(
                f"{_ROOT}/body_{int(self._shown.model.geom_bodyid[geom])}/plane_{geom}",
                infinite_grid=True,
                cell_size=cell,
                section_size=5 * cell,
                cell_color=_LINE,
                section_color=_SECTION,
                plane_color=_GROUND,
                plane_opacity=1.0,
                fade_distance=max(40 * self._radius, 12.0),
                shadow_opacity=0.25,
                position=self._shown.model.geom_pos[geom],
                wxyz=self._shown.model.geom_quat[geom],
            )

    def _draw_marks(self, marks: Sequence[Mark]) -> None:
        names = {mark.name for mark in marks}
        for name in self._marks.keys() - names:
            self._marks.pop(name).remove()
        for mark in marks:
            node = self._marks.get(mark.name)
            if node is None:
                self._marks[mark.name] = self._add_mark(mark)
                continue
            node.position = mark.start
            if isinstance(node, viser.LineSegmentsHandle) and mark.outline is not None:
                node.points = _edges(mark.outline - mark.start)
            if isinstance(node, viser.ArrowsHandle) and mark.end is not None:
                node.points = _from_origin(mark.end - mark.start)
                node.visible = float(np.linalg.norm(mark.end - mark.start)) > _LEAST * self._view

    def _add_mark(self, mark: Mark) -> viser.SceneNodeHandle:
        if mark.outline is not None:
            return self._server.scene.add_line_segments(
                f"{_ROOT}/goal/{mark.name}", _edges(mark.outline - mark.start), _GOAL,
                thickness=0.02 * self._view, position=mark.start,
            )  # fmt: skip
        if mark.end is not None:
            ends = _from_origin(mark.end - mark.start)
            arrow = self._add_arrows(f"goal/{mark.name}", ends, _GOAL)
            arrow.position = mark.start
            return arrow
        return self._server.scene.add_icosphere(
            f"{_ROOT}/goal/{mark.name}",
            radius=_MARK_SIZE * self._view * mark.share,
            color=_GOAL,
            opacity=0.85,
            position=mark.start,
            cast_shadow=False,
        )

    def _draw_contacts(self, data: Data, wanted: bool) -> None:
        """Discs where bodies touch, arrows along the forces that hold them apart."""
        places, forces = contact_forces(self._shown.model, data)
        wanted = wanted and len(places) > 0
        self._points.visible = self._forces.visible = wanted
        if wanted:
            self._points.points = places.astype(np.float32)
            tips = places + forces * (self._radius / self._weight)
            self._forces.points = np.stack([places, tips], axis=1).astype(np.float32)

    def _add_arrows(
        self, name: str, ends: NDArray, colour: tuple[int, int, int]
    ) -> viser.ArrowsHandle:
        """Arrows (P, 2, 3)."""
        shaft = 0.25 * _MARK_SIZE * self._view
        return self._server.scene.add_arrows(
            f"{_ROOT}/{name}",
            ends,
            colour,
            shaft_radius=shaft,
            head_radius=2.2 * shaft,
            head_length=5 * shaft,
        )

    def _follow(self, data: Data, wanted: bool, elapsed: float) -> None:
        low, high = bounding_box(self._shown.model, data, self._geoms)
        aim = 0.5 * (low + high) if wanted else self._start
        far = float(np.linalg.norm(aim - self._focus)) > 4 * self._radius
        share = 1.0 if far else 1 - math.exp(-elapsed / _FOLLOW_TIME)
        self._focus += share * (aim - self._focus)
        self._root.position = self._start - self._focus


def _from_origin(tip: NDArray) -> NDArray[np.float32]:
    return np.stack([np.zeros(3), tip])[None].astype(np.float32)


def _edges(corners: NDArray) -> NDArray[np.float32]:
    """A closed line as segments, (P, 3) -> (P, 2, 3)."""
    return np.stack([corners, np.roll(corners, -1, axis=0)], axis=1).astype(np.float32)


def _sky() -> NDArray[np.uint8]:
    """Pale blue that fades to white at the horizon, as a picture."""
    share = np.linspace(0, 1, 256)[:, None, None]
    colour = (1 - share) * np.array([178, 203, 227]) + share * np.array([244, 247, 250])
    return np.broadcast_to(colour, (256, 8, 3)).astype(np.uint8)


def _bytes(rgb: Sequence[float]) -> tuple[int, int, int]:
    red, green, blue = (round(255 * channel) for channel in rgb)
    return red, green, blue
