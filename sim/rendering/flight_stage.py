"""Draws recorded flights with MuJoCo: one tile per flight, a camera that follows, a trail."""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

import math

import mujoco
import numpy as np
from numpy.typing import NDArray

from sim.rendering.canvas import BAD, GOOD, NEUTRAL, Canvas, Stage, smooth
from sim.rendering.flight_recording import FLIGHT_COLOURS, FlightRecording
from sim.rendering.flight_scene import BLADE_SPEED, flight_scene

_TRAIL_PIECES = 60
_TRAIL_TIME = 2.5  # [s]
_CURVE_PIECES = 100
_FLOOR_GAP = 0.3  # floor below the lowest point of all flights [m]
_SHADOW_DISCS = 8
_CIRCLE = np.linspace(0, 2 * np.pi, 41)[:, None]


class FlightStage(Stage):
    """All flights of a recording as pictures of one size."""

    def __init__(
        self,
        recording: FlightRecording,
        width: int,
        height: int,
        *,
        title: str,
        near: float,
        oversampling: float = 1.0,
    ) -> None:
        """Open the GL context; a goal counts as reached from `near` [m].

        Args:
            oversampling: As of `Canvas`.

        Raises:
            NoGLError: This machine has no working GL of the chosen kind.
        """
        self._recording = recording
        self._near = near
        drawn = flight_scene(recording.rotor_position)
        self._scale = scale = drawn.scale
        lowest = float(np.minimum(recording.position_w, recording.goal_w)[..., 2].min())
        self._floor = lowest - scale * _FLOOR_GAP
        drawn.tree.geom("floor").pos[2] = self._floor
        self._model = drawn.tree.compile()
        self._data = mujoco.MjData(self._model)

        canvas = Canvas(self._model, width, height, title=title, oversampling=oversampling)
        super().__init__(canvas, recording.tiles)
        self._canvas.set_flags(shadow=False)

        dt = recording.control_dt
        turned = np.cumsum(recording.rotor_speed, axis=1) * (dt * BLADE_SPEED)
        self._blades = np.empty_like(turned)
        self._blades[..., drawn.order] = turned * recording.rotor_yaw_sign
        middle = 0.5 * (recording.position_w + recording.goal_w)
        self._look = smooth(middle, 0.2 / dt)
        # Near enough to see the robot, far enough to see it and its goal.
        far = recording.distance / scale  # in Crazyflies
        span = scale * np.clip(0.26 + 1.4 * far + 0.35 * recording.goal_moves, 0.34, 2.5)
        self._range = smooth(span[..., None], 0.3 / dt)[..., 0]

    def _draw(self, which: int, time: float, tile: mujoco.MjrRect) -> None:
        recording, flight = self._recording, which
        step = self._step(flight, time)
        position = self._at(recording.position_w, flight, step)
        attitude = self._at(recording.orientation_w, flight, step)
        self._data.qpos[:3] = position
        self._data.qpos[3:7] = attitude / np.linalg.norm(attitude)
        self._data.qpos[7:] = self._at(self._blades, flight, step)
        mujoco.mj_kinematics(self._model, self._data)
        self._aim(flight, step, time)
        self._canvas.look(self._model, self._data)
        self._add_shadow(position)
        self._add_goal(flight, step)
        self._add_trail(flight, step)
        self._canvas.paint(tile)
        self._caption(flight, time, tile)

    def _aim(self, flight: int, step: float, time: float) -> None:
        camera = self._canvas.camera
        camera.lookat[:] = self._at(self._look, flight, step)
        camera.distance = self._at(self._range, flight, step)
        camera.azimuth = 125.0 + 6.0 * time  # [deg]
        camera.elevation = -19.0  # [deg]

    def _add_shadow(self, position: NDArray) -> None:
        """A soft disc on the floor, straight below: it tells the height."""
        for i in range(_SHADOW_DISCS):
            radius = self._scale * (0.025 + 0.05 * i / _SHADOW_DISCS)
            size = np.array([radius, 1e-4, 0.0])
            centre = np.array([position[0], position[1], self._floor + 0.003 - 0.0003 * i])
            self._canvas.add(mujoco.mjtGeom.mjGEOM_CYLINDER, size, centre, (0.05, 0.08, 0.12, 0.06))

    def _add_goal(self, flight: int, step: float) -> None:
        """The place to be: a point, the ball that counts as reached, the path where it moves."""
        goal = self._at(self._recording.goal_w, flight, step)
        moves = self._recording.goal_moves
        size = np.full(3, self._scale * (0.012 if moves else 0.006))
        self._canvas.add(mujoco.mjtGeom.mjGEOM_SPHERE, size, goal, (*GOOD, 1.0))
        for square in self._at(self._recording.corners_w, flight, step).reshape(-1, 4, 3):
            self._canvas.add_frame(square, (*GOOD, 0.9))
        if moves:
            flown = self._recording.goal_w[flight, : self._recording.length[flight]]
            path = flown[np.linspace(0, len(flown) - 1, _CURVE_PIECES).astype(int)]
            self._canvas.add_lines(path, 2.0, [(*NEUTRAL, 0.45)] * (_CURVE_PIECES - 1))
            return
        foot = np.array([goal[0], goal[1], self._floor])
        self._canvas.add_lines(np.stack([foot, goal]), 1.5, [(*NEUTRAL, 0.5)])
        right, up = self._canvas.camera_axes()
        for first, second in ((right, up), (np.eye(3)[0], np.eye(3)[1])):
            ring = goal + self._near * (np.cos(_CIRCLE) * first + np.sin(_CIRCLE) * second)
            self._canvas.add_lines(ring, 2.0, [(*GOOD, 0.55)] * (len(ring) - 1))

    def _add_trail(self, flight: int, step: float) -> None:
        """Trail of the robot, fading with age."""
        dt = self._recording.control_dt
        first = max(0.0, step - _TRAIL_TIME / dt)
        colour = _rgb(FLIGHT_COLOURS[flight % len(FLIGHT_COLOURS)])
        # Pieces end at fixed steps: a trail that slides along its curve would flicker.
        stride = max(1, round(_TRAIL_TIME / dt / _TRAIL_PIECES))
        stops = [*range(math.ceil(first / stride) * stride, math.floor(step) + 1, stride), step]
        points = [self._at(self._recording.position_w, flight, stop) for stop in stops]
        youth = [(stop - first) / max(step - first, 1e-9) for stop in stops[1:]]
        self._canvas.add_lines(np.stack(points), 4.0, [(*colour, 0.05 + 0.9 * y) for y in youth])

    def _caption(self, flight: int, time: float, tile: mujoco.MjrRect) -> None:
        recording = self._recording
        step = self._step(flight, time)
        over = step >= recording.length[flight] - 1
        if over and not recording.success[flight]:
            text, colour = f"{step * recording.control_dt:.1f} s   failed", BAD
        else:
            distance = float(self._at(recording.distance, flight, step))
            text = f"{step * recording.control_dt:.1f} s   {100 * distance:.0f} cm off"
            colour = GOOD if distance < self._near else NEUTRAL
        self._canvas.label(text, tile, colour=colour)

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


def _rgb(colour: str) -> tuple[float, float, float]:
    """Hexadecimal "#rrggbb" as three numbers in [0, 1]."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue
