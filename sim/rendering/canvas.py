"""A picture in memory that MuJoCo draws into: tiles, marks, lines, words.

This is the only file that opens MuJoCo's renderer. MuJoCo reads the GL backend from `MUJOCO_GL`
when it is first imported, so `sim.rendering.video` draws in a child process of its own.
"""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise, product

import mujoco
import numpy as np
from numpy.typing import NDArray

Rgb = tuple[float, float, float]
"""In [0, 1]."""
NEUTRAL: Rgb = (0.20, 0.26, 0.34)
GOOD: Rgb = (0.0, 0.62, 0.45)
BAD: Rgb = (0.75, 0.16, 0.10)

_MOST_GEOMS = 2000
_BAR_THICKNESS = 0.04
"""Half the thickness of a frame's bars relative to their length."""
_GUTTER = 2  # white between tiles [pixels]
_IDENTITY, _ORIGIN = np.eye(3).ravel(), np.zeros(3)
_NORMAL = mujoco.mjtFont.mjFONT_NORMAL
_LABEL_HEIGHT, _LABEL_MARGIN, _LETTER, _LABEL_PADDING = 22, 8, 8, 24  # [pixels]


class NoGLError(Exception):
    """The GL backend that was chosen does not work here."""


class Canvas:
    """One picture of fixed size, drawn tile by tile."""

    def __init__(
        self,
        model: mujoco.MjModel,
        width: int,
        height: int,
        *,
        title: str,
        oversampling: float = 1.0,
    ) -> None:
        """Open the GL context.

        Args:
            model: Its `vis` is changed to what the picture needs.
            width: Of the picture [pixels].
            height: Of the picture [pixels].
            oversampling: Above 1, pixels drawn along each side of a pixel of the picture, for the
                caller to take means of, instead of the model's multisampling: software GL draws as
                smooth edges in two thirds of the time with 1.5, which letters are made for.

        Raises:
            NoGLError: This machine has no working GL of the chosen kind.
        """
        self._scale = oversampling
        width, height = math.ceil(oversampling * width), math.ceil(oversampling * height)
        model.vis.global_.offwidth, model.vis.global_.offheight = width, height
        scale = mujoco.mjtFontScale.mjFONTSCALE_50
        if oversampling > 1:
            model.vis.quality.offsamples = 0
            scale = mujoco.mjtFontScale.mjFONTSCALE_150
        try:
            self._gl = mujoco.GLContext(width, height)
            self._gl.make_current()
            self._context = mujoco.MjrContext(model, scale)
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        except Exception as error:  # MuJoCo and PyOpenGL raise errors of many types
            raise NoGLError(f"{type(error).__name__}: {error}") from error
        self.scene = mujoco.MjvScene(model, _MOST_GEOMS)
        self.camera = mujoco.MjvCamera()
        self.camera.type = mujoco.mjtCamera.mjCAMERA_FREE
        self._options = mujoco.MjvOption()
        self._title = title
        self._whole = mujoco.MjrRect(0, 0, width, height)
        self._pixels = np.zeros((height, width, 3), dtype=np.uint8)

    def set_flags(self, *, shadow: bool, haze: bool = True) -> None:
        """Shadows, no mirrors, and the fog that hides where the floor ends."""
        flags = mujoco.mjtRndFlag
        self.scene.flags[flags.mjRND_SHADOW] = shadow
        self.scene.flags[flags.mjRND_REFLECTION] = False
        self.scene.flags[flags.mjRND_HAZE] = self.scene.flags[flags.mjRND_FOG] = haze

    def look(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Take up an env as the camera sees it; what is added after it belongs to it."""
        mujoco.mjv_updateScene(
            model, data, self._options, None, self.camera, mujoco.mjtCatBit.mjCAT_ALL, self.scene
        )

    def paint(self, tile: mujoco.MjrRect) -> None:
        """Draw what was taken up and added."""
        mujoco.mjr_render(tile, self.scene, self._context)

    def add(
        self,
        kind: mujoco.mjtGeom,
        size: NDArray,
        centre: NDArray,
        rgba: tuple[float, ...],
        *,
        rotation: NDArray = _IDENTITY,
        emission: float = 0.6,
    ) -> mujoco.MjvGeom:
        """Add a geom that casts no shadow; its rotation, (9,), is that of geom to world."""
        geom = self.scene.geoms[self.scene.ngeom]
        colour = np.array(rgba, dtype=np.float32)
        mujoco.mjv_initGeom(geom, kind, size, centre.astype(float), rotation, colour)
        geom.category = mujoco.mjtCatBit.mjCAT_DECOR
        geom.emission = emission
        self.scene.ngeom += 1
        return geom

    def add_lines(self, points: NDArray, width: float, rgba: Sequence[tuple[float, ...]]) -> None:
        """Straight lines from point to point, (P, 3), width [pixels], one colour each."""
        for start, end, colour in zip(points[:-1], points[1:], rgba, strict=True):
            self.add_connector(mujoco.mjtGeom.mjGEOM_LINE, start, end, width, colour)

    def add_frame(self, corners: NDArray, rgba: Sequence[float]) -> None:
        """Bars from corner to corner, and back to the first, (P, 3)."""
        for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True):
            thick = _BAR_THICKNESS * float(np.linalg.norm(end - start))
            self.add_connector(mujoco.mjtGeom.mjGEOM_CAPSULE, start, end, thick, rgba)

    def add_connector(
        self,
        kind: mujoco.mjtGeom,
        start: NDArray,
        end: NDArray,
        width: float,
        rgba: Sequence[float],
    ) -> None:
        """A line [pixels] or an arrow [m] of some width; left out where the scene is full."""
        if self.scene.ngeom < self.scene.maxgeom:
            geom = self.add(kind, _ORIGIN, _ORIGIN, tuple(rgba))
            if kind == mujoco.mjtGeom.mjGEOM_LINE:
                width *= self._scale
            mujoco.mjv_connector(geom, kind, width, start.astype(float), end.astype(float))

    def camera_axes(self) -> tuple[NDArray, NDArray]:
        """Right and up of the camera in the world, after `look`."""
        seen = self.scene.camera[0]
        return np.cross(seen.forward, seen.up), np.array(seen.up)

    def label(
        self, text: str, tile: mujoco.MjrRect, *, colour: Rgb = NEUTRAL, title: bool = False
    ) -> None:
        """Words on a plate in the lower left corner, or as a title in the upper right one."""
        width = round(self._scale * (_LABEL_PADDING + _LETTER * len(text)))
        height, margin = (round(self._scale * part) for part in (_LABEL_HEIGHT, _LABEL_MARGIN))
        left = tile.left + (tile.width - width - margin if title else margin)
        bottom = tile.bottom + (tile.height - height - margin if title else margin)
        box = mujoco.MjrRect(left, bottom, width, height)
        mujoco.mjr_label(box, _NORMAL, text, *colour, 0.85, 1.0, 1.0, 1.0, self._context)

    def close(self) -> None:
        """Release GL."""
        self._context.free()
        self._gl.free()

    def grid(self, columns: int, rows: int) -> list[mujoco.MjrRect]:
        """Tiles in reading order, on white."""
        mujoco.mjr_rectangle(self._whole, 1.0, 1.0, 1.0, 1.0)
        across = np.linspace(0, self._whole.width, columns + 1).astype(int)
        down = np.linspace(self._whole.height, 0, rows + 1).astype(int)
        gutter = round(self._scale * _GUTTER)
        return [
            mujoco.MjrRect(left, bottom, right - left - gutter, top - bottom - gutter)
            for top, bottom in pairwise(down)
            for left, right in pairwise(across)
        ]

    def read(self) -> NDArray[np.uint8]:
        """The picture as large as it was drawn, (H, W, 3); overwritten by the next call."""
        if self._title:
            self.label(self._title, self._whole, title=True)
        mujoco.mjr_readPixels(self._pixels, None, self._whole, self._context)
        return self._pixels[::-1]


def smooth(values: NDArray, deviation: float) -> NDArray[np.float32]:
    """Gaussian mean along time of (K, T, D), ends repeated; `deviation` in steps."""
    reach = math.ceil(3 * deviation)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / max(deviation, 1e-9)) ** 2)
    padded = np.pad(values, ((0, 0), (reach, reach), (0, 0)), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, len(weights), axis=1)
    return (windows @ (weights / weights.sum())).astype(np.float32)


class Stage(ABC):
    """A recording of several envs or flights, drawn into the tiles of a canvas."""

    def __init__(self, canvas: Canvas, tiles: int) -> None:
        """Draw so many things on a canvas."""
        self._canvas, self._tiles = canvas, tiles

    def frame(self, time: float) -> NDArray[np.uint8]:
        """Everything at a time [s], as of `Canvas.read`."""
        columns = math.ceil(math.sqrt(self._tiles))
        grid = self._canvas.grid(columns, -(-self._tiles // columns))
        for which, tile in enumerate(grid[: self._tiles]):
            self._draw(which, time, tile)
        return self._canvas.read()

    def sheet(self, times: Sequence[float]) -> NDArray[np.uint8]:
        """A row for each tile, a column for each time [s], as of `Canvas.read`."""
        cells = self._canvas.grid(len(times), self._tiles)
        for cell, (which, time) in zip(cells, product(range(self._tiles), times), strict=True):
            self._draw(which, time, cell)
        return self._canvas.read()

    def close(self) -> None:
        """Release GL."""
        self._canvas.close()

    @abstractmethod
    def _draw(self, which: int, time: float, tile: mujoco.MjrRect) -> None:
        """Draw one at a time [s] into a tile, with the canvas's `look`, `paint` and `label`."""
