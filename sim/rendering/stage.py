"""Stage of recorded envs, drawn with MuJoCo: one tile per env, goals, captions, a calm camera.

`WorldPictures` draws envs as they are now, in this process, for Gymnasium's `render`;
`RobotPictures` draws a robot in a measured state.
"""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.core.robot import RobotSpec
from sim.rendering.canvas import BAD, GOOD, NEUTRAL, Canvas, Rgb, Stage, smooth
from sim.rendering.recording import ENDS, EnvRecording
from sim.rendering.scene import (
    Mark,
    Model,
    bounding_box,
    goal_marks,
    planes_of,
    robot_geoms,
    view_radius,
)

if TYPE_CHECKING:  # recordings are drawn without torch
    from sim.simulation import Simulation

_SMOOTHING_TIME = 0.15
"""Deviation of the Gaussian that smooths the camera's way [s]."""
_LEAST_ROOM = 1.6
"""Radii of a moving robot that are seen at least: it shall be seen to move."""


@dataclass(frozen=True)
class CameraWay:
    """Needs of the camera at every moment of one env."""

    centre: NDArray[np.float32]
    """Point that it looks at, (T + 1, 3) [m]."""
    radius: NDArray[np.float32]
    """Radius that it must show around it, (T + 1,) [m]."""
    marks: list[list[Mark]]
    """Goals at every moment."""


def camera_way(recording: EnvRecording, env: int, model: Model) -> CameraWay:
    """Follow a robot that moves; look at all that a robot on a fixed base reaches."""
    data = mujoco.MjData(model)
    geoms = robot_geoms(model, recording.base)
    boxes: list[tuple[NDArray, NDArray]] = []
    marks: list[list[Mark]] = []
    for moment in range(recording.pose.shape[1]):
        recording.put(env, moment, model, data)
        boxes.append(bounding_box(model, data, geoms))
        goal = {name: values[env, moment] for name, values in recording.goal.items()}
        marks.append(goal_marks(goal, data, recording.base, boxes[-1]))
    low, high = (np.stack(corners) for corners in zip(*boxes, strict=True))
    count = len(marks)
    if not recording.floats:
        lowest, highest = low.min(axis=0), high.max(axis=0)
        centre = np.tile(0.5 * (lowest + highest), (count, 1))
        radius = np.full(count, 0.5 * float((highest - lowest).max()))
        return CameraWay(centre.astype(np.float32), radius.astype(np.float32), marks)
    middle = 0.5 * (low + high)
    size = float(np.median(0.5 * (high - low).max(axis=1)))
    centre = np.zeros((count, 3), np.float32)
    radius = np.zeros(count, np.float32)
    for part in _episodes(recording.seconds[env]):
        deviation = _SMOOTHING_TIME / recording.control_dt
        centre[part] = smooth(middle[None, part], deviation)[0]
        seen = [
            view_radius(centre[t], size, marks[t], room=_LEAST_ROOM)
            for t in range(part.start, part.stop)
        ]
        radius[part] = smooth(np.array(seen)[None, :, None], deviation)[0, :, 0]
    lag = np.linalg.norm(middle - centre, axis=1) + size  # a calm camera must not lose the robot
    return CameraWay(centre, np.maximum(radius, lag), marks)


def _episodes(seconds: NDArray) -> list[slice]:
    """Moments of each episode: a camera must not glide from one to the next."""
    starts = [0, *(np.flatnonzero(np.diff(seconds) < 0) + 1), len(seconds)]
    return [slice(int(start), int(stop)) for start, stop in pairwise(starts)]


def distance_to_show(radius: float, field_of_view: float, *, margin: float = 1.1) -> float:
    """Distance [m] from which a ball [m] fills a vertical field of view [rad] but for a margin."""
    return margin * radius / math.sin(field_of_view / 2)


_SKY = (0.85, 0.89, 0.93)
_SUN = np.array([-0.24, 0.34, -0.91])
"""Direction of its light, length 1."""
_SHADOW_SIZE = 1024
"""Of the shadows' picture [pixels]: software GL draws four times this in most of a second."""
_LINE = (0.55, 0.60, 0.66, 0.5)
_FRAME = 2
"""White between tiles and at the edge of a canvas [pixels]."""
_LINES = 20
"""Lines of the ground to either side of the robot."""
_GOAL_SIZE = 0.03
"""Radius of a goal relative to what is seen."""
_ROOM = 2.5
"""Radius of a picture in radii of the robot."""
_TOLD_TIME = 0.8
"""Time for which the end of the episode before is shown [s]."""
_END_COLOURS: dict[str, Rgb] = {"success": GOOD, "terminated": BAD, "invalid": BAD}


class EnvStage(Stage):
    """All envs of a recording as pictures of one size."""

    def __init__(
        self,
        recording: EnvRecording,
        width: int,
        height: int,
        *,
        title: str,
        oversampling: float = 1.0,
    ) -> None:
        """Open the GL context.

        Args:
            oversampling: As of `Canvas`.

        Raises:
            NoGLError: This machine has no working GL of the chosen kind.
        """
        self._recording = recording
        self._models = [recording.model_of(env) for env in range(recording.tiles)]
        self._has_sky = _has_sky(self._models[0])
        if not self._has_sky:
            for model in self._models:
                _light(model)
        self._data = [mujoco.MjData(model) for model in self._models]
        self._ways = [camera_way(recording, k, model) for k, model in enumerate(self._models)]
        if not self._has_sky:
            seen = max(float(way.radius.max()) for way in self._ways)
            for model in self._models:
                _fade(model, seen)
        canvas = Canvas(self._models[0], width, height, title=title, oversampling=oversampling)
        super().__init__(canvas, recording.tiles)
        self._canvas.set_flags(shadow=True)

    def _draw(self, which: int, time: float, tile: mujoco.MjrRect) -> None:
        recording, canvas, way, env = self._recording, self._canvas, self._ways[which], which
        moment = min(int(time / recording.control_dt + 1e-6), len(way.marks) - 1)
        model, data = self._models[env], self._data[env]
        recording.put(env, moment, model, data)
        radius = float(way.radius[moment])
        _look(canvas, model, data, way.centre[moment], radius, sky=self._has_sky)
        if not self._has_sky:
            self._add_ground_lines(model, data, way, moment)
        for mark in way.marks[moment]:
            self._add_mark(mark, radius)
        canvas.paint(tile)
        self._caption(env, moment, tile)

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

    def _caption(self, env: int, moment: int, tile: mujoco.MjrRect) -> None:
        recording = self._recording
        seconds = float(recording.seconds[env, moment])
        end = ENDS[recording.last_end[env, moment]] if seconds < _TOLD_TIME else ""
        text = f"{seconds:.1f} s   return {recording.total[env, moment]:.1f}"
        colour = _END_COLOURS.get(end, NEUTRAL)
        self._canvas.label(f"{end or f'env {env}'}   {text}", tile, colour=colour)


class WorldPictures:
    """Draws one env at a time; the camera follows its robot."""

    def __init__(self, simulation: "Simulation", width: int = 640, height: int = 480) -> None:
        """Open the GL context that `MUJOCO_GL` chose when MuJoCo was imported.

        Raises:
            ConfigError: Nothing is known to draw of this simulation.
            NoGLError: This machine has no working GL of that kind.
        """
        from sim.rendering.shown import shown_envs

        self._shown = shown_envs(simulation)
        model = self._shown.model
        self._geoms = robot_geoms(model, self._shown.base)
        self._has_sky = _has_sky(model)
        if not self._has_sky:
            _light(model)
            low, high = bounding_box(model, self._shown.look(0, 0.0), self._geoms)
            _fade(model, _ROOM * 0.5 * float(np.linalg.norm(high - low)))
        self._canvas = Canvas(model, width, height, title="")
        self._canvas.set_flags(shadow=True, haze=not self._has_sky)

    def draw(self, env: int) -> NDArray[np.uint8]:
        """An env, (height, width, 3), in memory of its own."""
        (whole,) = self._canvas.grid(1, 1)
        data, model = self._shown.look(env, 0.0), self._shown.model
        low, high = bounding_box(model, data, self._geoms)
        radius = _ROOM * 0.5 * float(np.linalg.norm(high - low))
        _look(self._canvas, model, data, 0.5 * (low + high), radius, sky=self._has_sky)
        self._canvas.paint(whole)
        return self._canvas.read().copy()

    def close(self) -> None:
        """Release GL."""
        self._canvas.close()


class RobotPictures:
    """Draws a robot in the states that it measures, from one place."""

    def __init__(self, model: Model, spec: RobotSpec, width: int = 480, height: int = 360) -> None:
        """Open the GL context that `MUJOCO_GL` chose when MuJoCo was imported.

        Args:
            model: Of the robot, with the joints of the spec.

        Raises:
            NoGLError: This machine has no working GL of that kind.
        """
        self._model, self._data, self._spec = model, mujoco.MjData(model), spec
        self._joints = [model.joint(joint.name).qposadr[0] for joint in spec.joints]
        fingers = spec.gripper.joints if spec.gripper else []
        self._fingers = [model.joint(name).qposadr[0] for name in fingers]
        floating = model.njnt and model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE
        self._base = int(model.jnt_qposadr[0]) if floating else None
        self._geoms = robot_geoms(model, int(model.body_rootid[model.jnt_bodyid[0]]))
        for joint, place in zip(spec.joints, self._joints, strict=True):
            self._data.qpos[place] = joint.default_position
        mujoco.mj_kinematics(model, self._data)
        low, high = bounding_box(model, self._data, self._geoms)
        self._radius = 0.55 * float(np.linalg.norm(high - low))
        self._centre = 0.5 * (low + high)
        self._has_sky = _has_sky(model)
        if not self._has_sky:
            _light(model)
            _fade(model, self._radius)
        model.vis.quality.offsamples = 0  # half of software GL's time
        self._canvas = Canvas(model, width, height, title="")
        self._canvas.set_flags(shadow=True, haze=not self._has_sky)

    def draw(self, fields: Mapping[str, NDArray]) -> NDArray[np.uint8]:
        """A picture, (H, W, 3), a little smaller than the canvas, in memory of its own.

        Args:
            fields: Of a `RobotState`, (1, width); what is not measured stays as it was.
        """
        qpos = self._data.qpos
        if "joint_position" in fields:
            qpos[self._joints] = fields["joint_position"][0]
        if self._fingers and self._spec.gripper and "gripper_opening" in fields:
            closed, opened = self._spec.gripper.closed, self._spec.gripper.open
            qpos[self._fingers] = closed + (opened - closed) * fields["gripper_opening"][0, 0]
        if self._base is not None:
            if "position_w" in fields:
                qpos[self._base : self._base + 3] = fields["position_w"][0]
            if "orientation_w" in fields:
                qpos[self._base + 3 : self._base + 7] = fields["orientation_w"][0]
        mujoco.mj_kinematics(self._model, self._data)
        if self._base is not None:  # the camera follows what walks
            low, high = bounding_box(self._model, self._data, self._geoms)
            self._centre = 0.5 * (low + high)
        (whole,) = self._canvas.grid(1, 1)
        _look(self._canvas, self._model, self._data, self._centre, self._radius, sky=self._has_sky)
        self._canvas.paint(whole)
        return self._canvas.read()[_FRAME:, :-_FRAME].copy()

    def close(self) -> None:
        """Release GL."""
        self._canvas.close()


def _look(
    canvas: Canvas, model: Model, data: mujoco.MjData, centre: NDArray, radius: float, *, sky: bool
) -> None:
    """Take up an env from the camera's usual side; without a sky of its own in our daylight."""
    mujoco.mj_camlight(model, data)  # lights may hang on bodies
    if not sky and model.nlight:  # the sun's shadow falls around its place
        data.light_xpos[0] = centre - 4 * radius * _SUN
    camera = canvas.camera
    camera.lookat[:] = centre
    camera.distance = distance_to_show(radius, math.radians(model.vis.global_.fovy))
    camera.azimuth, camera.elevation = 125.0, -20.0  # [deg]
    canvas.look(model, data)
    if not sky:
        _add_backdrop(canvas)


def _add_backdrop(canvas: Canvas) -> None:
    """A wall behind everything, in the colour that the ground fades to."""
    camera = canvas.camera
    right, up = canvas.camera_axes()
    back = np.cross(right, up)  # towards the camera
    centre = np.array(camera.lookat) - 12 * camera.distance * back
    size = np.array([30 * camera.distance, 30 * camera.distance, 1.0])
    rotation = np.stack([right, up, back], axis=1).ravel()
    canvas.add(
        mujoco.mjtGeom.mjGEOM_PLANE, size, centre, (*_SKY, 1.0), rotation=rotation, emission=1.0
    )


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
