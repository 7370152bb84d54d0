"""Draws recorded worlds with MuJoCo: one tile per world, the robot in the middle, goals, words."""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

import math
from collections.abc import Sequence
from itertools import product

import mujoco
import numpy as np
from numpy.typing import NDArray

from sim.film.camera import CameraWay, camera_way, distance_to_show
from sim.film.canvas import BAD, GOOD, NEUTRAL, Canvas, Rgb
from sim.film.recording import ENDS, WorldRecording
from sim.viewing.goals import Mark
from sim.viewing.shapes import planes_of

_SKY = (0.85, 0.89, 0.93)
_SUN = np.array([-0.24, 0.34, -0.91])
"""Direction of its light, length 1."""
_SHADOW_SIZE = 1024
"""Of the shadows' picture [pixels]: software GL draws four times this in most of a second."""
_LINE = (0.55, 0.60, 0.66, 0.5)
_LINES = 20
"""Lines of the ground to either side of the robot."""
_GOAL_SIZE = 0.03
"""Radius of a goal relative to what is seen."""
_TOLD_TIME = 0.8
"""How long the end of the episode before is told [s]."""
_END_COLOURS: dict[str, Rgb] = {"success": GOOD, "terminated": BAD, "invalid": BAD}


class WorldStage:
    """All worlds of a recording as pictures of one size."""

    def __init__(self, recording: WorldRecording, width: int, height: int, *, title: str) -> None:
        """Open the GL context.

        Args:
            recording: What happened.
            width: Of a picture [pixels].
            height: Of a picture [pixels].
            title: Shown in the upper right corner; empty for none.

        Raises:
            NoGLError: This machine has no working GL of the chosen kind.
        """
        self._recording = recording
        self._models = [recording.model_of(world) for world in range(recording.worlds)]
        self._has_sky = _has_sky(self._models[0])
        for model in self._models:
            model.vis.global_.offwidth, model.vis.global_.offheight = width, height
            if not self._has_sky:
                _light(model)
        self._data = [mujoco.MjData(model) for model in self._models]
        self._ways = [camera_way(recording, k, model) for k, model in enumerate(self._models)]
        if not self._has_sky:
            seen = max(float(way.radius.max()) for way in self._ways)
            for model in self._models:
                _fade(model, seen)
        self._canvas = Canvas(self._models[0], width, height, title=title)
        self._canvas.set_flags(shadow=True, haze=True)

    def frame(self, time: float) -> NDArray[np.uint8]:
        """All worlds at a time [s], (height, width, 3); overwritten by the next call."""
        return self._canvas.frame(self._draw, self._recording.worlds, time)

    def sheet(self, times: Sequence[float]) -> NDArray[np.uint8]:
        """One row per world, one column per time [s], (height, width, 3)."""
        return self._canvas.sheet(self._draw, self._recording.worlds, times)

    def close(self) -> None:
        """Release GL."""
        self._canvas.close()

    def _draw(self, world: int, time: float, tile: mujoco.MjrRect) -> None:
        recording, canvas, way = self._recording, self._canvas, self._ways[world]
        moment = min(int(time / recording.control_dt + 1e-6), len(way.marks) - 1)
        model, data = self._models[world], self._data[world]
        recording.put(world, moment, model, data)
        mujoco.mj_camlight(model, data)  # lights may hang on bodies
        if not self._has_sky and model.nlight:  # the sun's shadow falls around its place
            data.light_xpos[0] = way.centre[moment] - 4 * way.radius[moment] * _SUN
        camera = canvas.camera
        camera.lookat[:] = way.centre[moment]
        camera.distance = distance_to_show(
            float(way.radius[moment]), math.radians(model.vis.global_.fovy)
        )
        camera.azimuth, camera.elevation = 125.0, -20.0  # [deg]
        canvas.look(model, data)
        if not self._has_sky:
            self._add_backdrop(camera)
            self._add_ground_lines(model, data, way, moment)
        for mark in way.marks[moment]:
            self._add_mark(mark, float(way.radius[moment]))
        canvas.paint(tile)
        self._caption(world, moment, tile)

    def _add_backdrop(self, camera: mujoco.MjvCamera) -> None:
        """A wall behind everything, in the colour that the ground fades to."""
        right, up = self._canvas.camera_axes()
        back = np.cross(right, up)  # towards the camera
        centre = np.array(camera.lookat) - 12 * camera.distance * back
        size = np.array([30 * camera.distance, 30 * camera.distance, 1.0])
        rotation = np.stack([right, up, back], axis=1).ravel()
        self._canvas.add(
            mujoco.mjtGeom.mjGEOM_PLANE, size, centre, (*_SKY, 1.0), rotation=rotation, emission=1.0
        )

    def _add_ground_lines(
        self, model: mujoco.MjModel, data: mujoco.MjData, way: CameraWay, moment: int
    ) -> None:
        """Squares on level planes without a texture, so that motion over them is seen."""
        gap = 0.5 if way.radius[moment] > 0.25 else 0.1  # [m]
        reach = gap * _LINES
        for geom in planes_of(model):
            if model.geom_matid[geom] >= 0 or abs(data.geom_xmat[geom][8]) < 0.999:
                continue
            height = data.geom_xpos[geom][2] + 0.002
            middle = np.round(way.centre[moment, :2] / gap) * gap
            for axis, i in product(range(2), range(-_LINES, _LINES + 1)):
                ends = np.full((2, 3), height)
                ends[:, axis] = middle[axis] + i * gap
                ends[:, 1 - axis] = middle[1 - axis] + np.array([-reach, reach])
                self._canvas.add_lines(ends, 1.0, [_LINE])

    def _add_mark(self, mark: Mark, seen: float) -> None:
        size = _GOAL_SIZE * seen
        if mark.outline is not None:
            self._canvas.add_frame(mark.outline, (*GOOD, 0.9))
        elif mark.end is None:
            radii = np.full(3, size * mark.share)
            self._canvas.add(mujoco.mjtGeom.mjGEOM_SPHERE, radii, mark.start, (*GOOD, 0.9))
        elif float(np.linalg.norm(mark.end - mark.start)) > size:
            arrow = mujoco.mjtGeom.mjGEOM_ARROW
            self._canvas.add_connector(arrow, mark.start, mark.end, 0.5 * size, (*GOOD, 0.9))

    def _caption(self, world: int, moment: int, tile: mujoco.MjrRect) -> None:
        recording = self._recording
        seconds = float(recording.seconds[world, moment])
        end = ENDS[recording.last_end[world, moment]] if seconds < _TOLD_TIME else ""
        text = f"{seconds:.1f} s   return {recording.total[world, moment]:.1f}"
        colour = _END_COLOURS.get(end, NEUTRAL)
        self._canvas.label(f"{end or f'world {world}'}   {text}", tile, colour=colour)


def _has_sky(model: mujoco.MjModel) -> bool:
    """A model with a sky has its own light and fog."""
    return any(model.tex_type[i] == mujoco.mjtTexture.mjTEXTURE_SKYBOX for i in range(model.ntex))


def _light(model: mujoco.MjModel) -> None:
    """Daylight for models that were made for physics: one sun, which casts the shadow."""
    model.light_active[:] = False
    if model.nlight:
        model.light_active[0] = model.light_castshadow[0] = True
        model.light_type[0] = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
        model.light_bodyid[0], model.light_mode[0] = 0, mujoco.mjtCamLight.mjCAMLIGHT_FIXED
        model.light_dir[0] = _SUN
        model.light_diffuse[0], model.light_specular[0] = 0.45, 0.2
    model.vis.quality.shadowsize = _SHADOW_SIZE
    model.vis.headlight.ambient[:] = 0.42
    model.vis.headlight.diffuse[:] = 0.38
    model.vis.headlight.specular[:] = 0.15


def _fade(model: mujoco.MjModel, seen: float) -> None:
    """Let the ground vanish in the sky's colour; distances are in units of the model's extent."""
    model.stat.extent = seen
    model.vis.map.znear, model.vis.map.zfar = 0.02, 60.0
    model.vis.map.fogstart, model.vis.map.fogend = 4.0, 14.0
    model.vis.map.shadowclip = 3.0  # the ground near the camera is in it too
    model.vis.rgba.fog[:] = model.vis.rgba.haze[:] = (*_SKY, 1.0)
