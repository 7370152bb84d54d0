"""Draws recorded flights with MuJoCo: one tile per flight, a camera that follows, a trail.

This is the only file that imports MuJoCo's renderer. MuJoCo reads the GL backend from `MUJOCO_GL`
when it is first imported, so `sim.flights.video` runs this in a child process of its own.
"""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

import math
from collections.abc import Sequence
from itertools import pairwise, product
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from sim.flights.recording import FLIGHT_COLOURS, FlightRecording, Floats

_MODEL = Path(__file__).parent / "models" / "flight_scene.xml"
_TRAIL_PIECES = 60
_TRAIL_TIME = 2.5  # [s]
_CURVE_PIECES = 100
_BLADE_SPEED = 45.0  # shown turning of a rotor at full speed [rad/s]; the true one would alias
_YAW_SIGN = np.array([-1.0, 1.0, -1.0, 1.0])  # rotors m1 to m4 of the Crazyflie
_FLOOR_GAP = 0.3  # floor below the lowest point of all flights [m]
_MAX_GEOMS = 1000
_SHADOW_DISCS = 8
_GUTTER = 2  # white between tiles [pixels]
_TURN = np.linspace(0, 2 * np.pi, 41)[:, None]
_GOOD, _NEUTRAL = (0.0, 0.62, 0.45), (0.20, 0.26, 0.34)
_EYE = np.eye(3).ravel()
_NORMAL = mujoco.mjtFont.mjFONT_NORMAL


class FlightScene:
    """All flights of a recording as pictures of one size."""

    def __init__(
        self,
        recording: FlightRecording,
        width: int,
        height: int,
        *,
        title: str = "",
        near: float = 0.1,
    ) -> None:
        """Open the GL context.

        Args:
            recording: What happened.
            width: Of a picture [pixels].
            height: Of a picture [pixels].
            title: Shown above the flights; empty for none.
            near: Distance from the goal that counts as reached [m].

        Raises:
            Exception: This machine has no working GL of the chosen kind; MuJoCo and PyOpenGL raise
                errors of many types.
        """
        self._recording = recording
        self._title = title
        self._near = near
        lowest = float(np.minimum(recording.position_w, recording.goal_w)[..., 2].min())
        self._floor = lowest - _FLOOR_GAP
        spec = mujoco.MjSpec.from_file(str(_MODEL))
        spec.visual.global_.offwidth, spec.visual.global_.offheight = width, height
        spec.geom("floor").pos[2] = self._floor
        self._model = spec.compile()
        self._data = mujoco.MjData(self._model)

        self._gl = mujoco.GLContext(width, height)
        self._gl.make_current()
        scale = mujoco.mjtFontScale.mjFONTSCALE_50
        self._context = mujoco.MjrContext(self._model, scale)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._scene = mujoco.MjvScene(self._model, _MAX_GEOMS)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._scene.flags[flag] = False
        for flag in (mujoco.mjtRndFlag.mjRND_HAZE, mujoco.mjtRndFlag.mjRND_FOG):
            self._scene.flags[flag] = True
        self._options = mujoco.MjvOption()
        self._camera = mujoco.MjvCamera()
        self._whole = mujoco.MjrRect(0, 0, width, height)
        self._pixels = np.zeros((height, width, 3), dtype=np.uint8)

        dt = recording.control_dt
        self._blades = np.cumsum(recording.rotor_speed, axis=1) * (dt * _BLADE_SPEED) * _YAW_SIGN
        middle = 0.5 * (recording.position_w + recording.goal_w)
        self._look = _smooth(middle, 0.2 / dt)
        # Near enough to see the robot, far enough to see it and its goal.
        span = 0.26 + 1.4 * recording.distance + (0.35 if recording.goal_moves else 0.0)
        self._range = _smooth(np.clip(span, 0.34, 2.5)[..., None], 0.3 / dt)[..., 0]

    def frame(self, time: float) -> NDArray[np.uint8]:
        """All flights at a time [s], (height, width, 3); overwritten by the next call."""
        count = self._recording.flights
        columns = math.ceil(math.sqrt(count))
        for flight, tile in enumerate(self._grid(columns, -(-count // columns))[:count]):
            self._draw(flight, time, tile)
        return self._read()

    def sheet(self, times: Sequence[float]) -> NDArray[np.uint8]:
        """One row per flight, one column per time [s], (height, width, 3)."""
        cells = self._grid(len(times), self._recording.flights)
        for cell, (flight, time) in zip(
            cells, product(range(self._recording.flights), times), strict=True
        ):
            self._draw(flight, time, cell)
        return self._read()

    def close(self) -> None:
        """Release GL."""
        self._context.free()
        self._gl.free()

    def _read(self) -> NDArray[np.uint8]:
        if self._title:
            self._label(self._title, self._whole, 24 + 8 * len(self._title), right=True)
        mujoco.mjr_readPixels(self._pixels, None, self._whole, self._context)
        return self._pixels[::-1]

    def _grid(self, columns: int, rows: int) -> list[mujoco.MjrRect]:
        """Tiles in reading order, on white."""
        mujoco.mjr_rectangle(self._whole, 1.0, 1.0, 1.0, 1.0)
        across = np.linspace(0, self._whole.width, columns + 1).astype(int)
        down = np.linspace(self._whole.height, 0, rows + 1).astype(int)
        return [
            mujoco.MjrRect(left, bottom, right - left - _GUTTER, top - bottom - _GUTTER)
            for top, bottom in pairwise(down)
            for left, right in pairwise(across)
        ]

    def _draw(self, flight: int, time: float, tile: mujoco.MjrRect) -> None:
        recording = self._recording
        step = self._step(flight, time)
        position = self._at(recording.position_w, flight, step)
        attitude = self._at(recording.orientation_w, flight, step)
        self._data.qpos[:3] = position
        self._data.qpos[3:7] = attitude / np.linalg.norm(attitude)
        self._data.qpos[7:] = self._at(self._blades, flight, step)
        mujoco.mj_kinematics(self._model, self._data)
        self._aim(flight, step, time)
        mujoco.mjv_updateScene(
            self._model,
            self._data,
            self._options,
            None,
            self._camera,
            mujoco.mjtCatBit.mjCAT_ALL,
            self._scene,
        )
        self._add_shadow(position)
        self._add_goal(flight, step)
        self._add_trail(flight, step)
        mujoco.mjr_render(tile, self._scene, self._context)
        self._caption(flight, time, tile)

    def _aim(self, flight: int, step: float, time: float) -> None:
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FREE
        self._camera.lookat[:] = self._at(self._look, flight, step)
        self._camera.distance = self._at(self._range, flight, step)
        self._camera.azimuth = 125.0 + 6.0 * time  # [deg]
        self._camera.elevation = -19.0  # [deg]

    def _add_shadow(self, position: NDArray) -> None:
        """A soft disc on the floor, straight below: it tells the height."""
        for i in range(_SHADOW_DISCS):
            radius = 0.025 + 0.05 * i / _SHADOW_DISCS
            size = np.array([radius, 1e-4, 0.0])
            centre = np.array([position[0], position[1], self._floor + 0.003 - 0.0003 * i])
            self._add(mujoco.mjtGeom.mjGEOM_CYLINDER, size, centre, (0.05, 0.08, 0.12, 0.06))

    def _add_goal(self, flight: int, step: float) -> None:
        """The place to be: a point, the ball that counts as reached, the path where it moves."""
        goal = self._at(self._recording.goal_w, flight, step)
        moves = self._recording.goal_moves
        size = np.full(3, 0.012 if moves else 0.006)
        self._add(mujoco.mjtGeom.mjGEOM_SPHERE, size, goal, (*_GOOD, 1.0))
        if moves:
            flown = self._recording.goal_w[flight, : self._recording.length[flight]]
            path = flown[np.linspace(0, len(flown) - 1, _CURVE_PIECES).astype(int)]
            self._lines(path, 2.0, [(*_NEUTRAL, 0.45)] * (_CURVE_PIECES - 1))
            return
        foot = np.array([goal[0], goal[1], self._floor])
        self._lines(np.stack([foot, goal]), 1.5, [(*_NEUTRAL, 0.5)])
        right, up = self._camera_axes()
        for first, second in ((right, up), (np.eye(3)[0], np.eye(3)[1])):
            ring = goal + self._near * (np.cos(_TURN) * first + np.sin(_TURN) * second)
            self._lines(ring, 2.0, [(*_GOOD, 0.55)] * (len(ring) - 1))

    def _add_trail(self, flight: int, step: float) -> None:
        """Where the robot was, fading with age."""
        dt = self._recording.control_dt
        first = max(0.0, step - _TRAIL_TIME / dt)
        colour = _rgb(FLIGHT_COLOURS[flight % len(FLIGHT_COLOURS)])
        # Pieces end at fixed steps: a trail that slides along its curve would flicker.
        stride = max(1, round(_TRAIL_TIME / dt / _TRAIL_PIECES))
        stops = [*range(math.ceil(first / stride) * stride, math.floor(step) + 1, stride), step]
        points = [self._at(self._recording.position_w, flight, stop) for stop in stops]
        youth = [(stop - first) / max(step - first, 1e-9) for stop in stops[1:]]
        self._lines(np.stack(points), 4.0, [(*colour, 0.05 + 0.9 * y) for y in youth])

    def _camera_axes(self) -> tuple[NDArray, NDArray]:
        """Right and up of the camera in the world."""
        seen = self._scene.camera[0]
        return np.cross(seen.forward, seen.up), np.array(seen.up)

    def _lines(self, points: NDArray, width: float, rgba: list[tuple[float, ...]]) -> None:
        """Straight lines from point to point, (P, 3), width [pixels], one colour each."""
        line = mujoco.mjtGeom.mjGEOM_LINE
        for start, end, colour in zip(points[:-1], points[1:], rgba, strict=True):
            if self._scene.ngeom < self._scene.maxgeom:
                geom = self._add(line, np.zeros(3), np.zeros(3), colour)
                mujoco.mjv_connector(geom, line, width, start.astype(float), end.astype(float))

    def _add(
        self, kind: mujoco.mjtGeom, size: NDArray, centre: NDArray, rgba: tuple[float, ...]
    ) -> mujoco.MjvGeom:
        geom = self._scene.geoms[self._scene.ngeom]
        colour = np.array(rgba, dtype=np.float32)
        mujoco.mjv_initGeom(geom, kind, size, centre.astype(float), _EYE, colour)
        geom.category = mujoco.mjtCatBit.mjCAT_DECOR
        geom.emission = 0.6
        self._scene.ngeom += 1
        return geom

    def _caption(self, flight: int, time: float, tile: mujoco.MjrRect) -> None:
        recording = self._recording
        step = self._step(flight, time)
        over = step >= recording.length[flight] - 1
        if over and not recording.success[flight]:
            text, colour = f"{step * recording.control_dt:.1f} s   failed", (0.75, 0.16, 0.10)
        else:
            distance = float(self._at(recording.distance, flight, step))
            text = f"{step * recording.control_dt:.1f} s   {100 * distance:.0f} cm off"
            colour = _GOOD if distance < self._near else _NEUTRAL
        self._label(text, tile, 150, colour=colour)

    def _label(
        self,
        text: str,
        tile: mujoco.MjrRect,
        width: int,
        *,
        colour: tuple[float, float, float] = _NEUTRAL,
        right: bool = False,
    ) -> None:
        height, margin = 22, 8
        left = tile.left + (tile.width - width - margin if right else margin)
        bottom = tile.bottom + (tile.height - height - margin if right else margin)
        box = mujoco.MjrRect(left, bottom, width, height)
        mujoco.mjr_label(box, _NORMAL, text, *colour, 0.85, 1.0, 1.0, 1.0, self._context)

    def _step(self, flight: int, time: float) -> float:
        """Time as a fractional index of a flight, held at its end."""
        return min(time / self._recording.control_dt, float(self._recording.length[flight] - 1))

    @staticmethod
    def _at(values: NDArray, flight: int, step: float) -> NDArray:
        """Linear between two entries; attitudes of neighbouring steps are close enough for it."""
        low = int(step)
        high = min(low + 1, values.shape[1] - 1)
        share = step - low
        return (1 - share) * values[flight, low] + share * values[flight, high]


def _smooth(values: NDArray, deviation: float) -> Floats:
    """Gaussian mean along time of (K, T, D), ends repeated; `deviation` in steps."""
    reach = math.ceil(3 * deviation)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / max(deviation, 1e-9)) ** 2)
    padded = np.pad(values, ((0, 0), (reach, reach), (0, 0)), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, len(weights), axis=1)
    return (windows @ (weights / weights.sum())).astype(np.float32)


def _rgb(colour: str) -> tuple[float, float, float]:
    """Hexadecimal "#rrggbb" as three numbers in [0, 1]."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue
