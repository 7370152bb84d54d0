"""Pictures of cameras by MuJoCo's own renderer: GL, one world after the other, on the CPU."""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from typing import Any

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError, DeviceError
from robot_rl.core.pixels import brightness, depth_bytes
from sim.cameras.config import CameraConfig, ImageKind
from sim.cameras.renderer import DrawnWorlds, Renderer


class GLRenderer(Renderer):
    """MuJoCo's renderer without shadows, mirrors, fog and multisampling.

    GL belongs to the thread that opened it, and environments may step in any: one thread of its own
    draws.
    """

    def __init__(
        self, worlds: DrawnWorlds, cameras: Mapping[str, CameraConfig], device: torch.device
    ) -> None:
        """Open GL: EGL or OSMesa, the one that MUJOCO_GL names first.

        Raises:
            ConfigError: Neither works here.
            DeviceError: The worlds are on a GPU.
        """
        if device.type != "cpu":
            raise DeviceError(
                f"env.renderer=gl draws for worlds on the CPU, device '{device}' was asked for; "
                "use env.renderer=warp"
            )
        super().__init__(worlds, cameras, device)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gl renderer")
        self._pictures = self._thread.submit(_GLPictures, worlds.model, cameras, self._ids).result()

    def draw(self, rows: EnvSelection) -> None:
        """Draw the picked worlds, one after the other."""
        self._thread.submit(self._draw, rows.ids).result()

    def close(self) -> None:
        """End the thread and its context."""
        with suppress(RuntimeError):  # closed before
            self._thread.submit(self._pictures.close).result()
        self._thread.shutdown()

    def _draw(self, ids: NDArray[np.int64]) -> None:
        worlds, images = self._worlds, [image.numpy() for image in self.images.values()]
        positions = worlds.qpos.numpy()
        fixtures = [part.numpy() for part in worlds.fixtures]
        fields = {name: values.numpy() for name, values in self._fields.items()}
        for world in ids:
            place = [part[world] for part in fixtures]
            looks = {name: values[world] for name, values in fields.items()}
            self._pictures.put(positions[world], place, looks)
            for i, image in enumerate(images):
                self._pictures.draw(i, image[world])


_MOST_GEOMS = 10_000
"""Room for geoms of a scene."""
_NEAREST = 0.01
"""Distance below which GL draws nothing [m]."""


class _GLPictures:
    """One world and a GL context; made and used in one thread."""

    def __init__(
        self, model: mujoco.MjModel, cameras: Mapping[str, CameraConfig], ids: list[int]
    ) -> None:
        self._model = model = copy(model)
        self._cameras, self._ids = list(cameras.values()), ids
        self._data = mujoco.MjData(model)
        width = max(camera.width for camera in self._cameras)
        height = max(camera.height for camera in self._cameras)
        model.vis.global_.offwidth, model.vis.global_.offheight = width, height
        model.vis.quality.offsamples = 0
        model.vis.map.znear = _NEAREST / model.stat.extent  # otherwise it grows with the ground
        self._gl, self._context = _open_gl(model, width, height)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._context.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR
        self._scene = mujoco.MjvScene(model, _MOST_GEOMS)
        flags = mujoco.mjtRndFlag
        for flag in (flags.mjRND_SHADOW, flags.mjRND_REFLECTION, flags.mjRND_HAZE, flags.mjRND_FOG):
            self._scene.flags[flag] = False
        self._option = mujoco.MjvOption()
        self._option.sitegroup[:] = 0
        self._option.tendongroup[:] = 0  # a ray meets neither
        self._view = mujoco.MjvCamera()
        self._view.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._near, self._far = _NEAREST, model.vis.map.zfar * model.stat.extent

    def put(
        self,
        qpos: NDArray[np.float64],
        fixtures: list[NDArray[np.float64]],
        looks: Mapping[str, NDArray[np.float32]],
    ) -> None:
        """Take up a world: positions (nq,), poses of mocap bodies, fields of the model."""
        data = self._data
        data.qpos[:] = qpos
        for part, values in zip((data.mocap_pos, data.mocap_quat), fixtures, strict=False):
            part[:] = values
        for name, values in looks.items():
            getattr(self._model, name)[:] = values
        mujoco.mj_kinematics(self._model, data)
        mujoco.mj_comPos(self._model, data)
        mujoco.mj_camlight(self._model, data)

    def draw(self, which: int, out: NDArray[np.uint8]) -> None:
        """Draw a camera into `out`, (height, width, channels)."""
        camera = self._cameras[which]
        self._view.fixedcamid = self._ids[which]
        mujoco.mjv_updateScene(
            self._model, self._data, self._option, None, self._view,
            mujoco.mjtCatBit.mjCAT_ALL, self._scene,
        )  # fmt: skip
        segments = camera.kind is ImageKind.segmentation
        for flag in (mujoco.mjtRndFlag.mjRND_SEGMENT, mujoco.mjtRndFlag.mjRND_IDCOLOR):
            self._scene.flags[flag] = segments
        whole = mujoco.MjrRect(0, 0, camera.width, camera.height)
        mujoco.mjr_render(whole, self._scene, self._context)
        top, left, height, width = camera.window
        kept = (slice(top, top + height), slice(left, left + width))
        if camera.kind is ImageKind.depth:
            depth = np.empty((camera.height, camera.width), dtype=np.float32)
            mujoco.mjr_readPixels(None, depth, whole, self._context)
            # The buffer is 1 at the near plane and 0 at the far one.
            metres = self._near * self._far / (self._near + depth * (self._far - self._near))
            out[:] = depth_bytes(metres, camera.near, camera.far)[::-1][kept][..., None]
            return
        pixels = np.empty((camera.height, camera.width, 3), dtype=np.uint8)
        mujoco.mjr_readPixels(pixels, None, whole, self._context)
        pixels = pixels[::-1][kept]
        if segments:
            number = pixels[..., 0].astype(np.intp) + 256 * pixels[..., 1].astype(np.intp)
            out[:] = self._bodies()[number][..., None]
            return
        if camera.kind is ImageKind.grey:
            pixels = brightness(pixels)
        out[:] = pixels

    def _bodies(self) -> NDArray[np.uint8]:
        """Value of the pixels that show each thing of the scene, by its number, from 1."""
        found = np.zeros(self._scene.ngeom + 1, dtype=np.uint8)
        for geom in self._scene.geoms[: self._scene.ngeom]:
            if geom.objtype == mujoco.mjtObj.mjOBJ_GEOM and geom.segid >= 0:
                found[geom.segid + 1] = self._model.geom_bodyid[geom.objid] + 1
        return found

    def close(self) -> None:
        """Free the context."""
        self._context.free()
        self._gl.free()


def _open_gl(model: mujoco.MjModel, width: int, height: int) -> tuple[Any, Any]:
    """A GL context without a window, and MuJoCo's resources in it.

    Raises:
        ConfigError: Neither EGL nor OSMesa works here.
    """
    asked = os.environ.get("MUJOCO_GL", "").lower()
    faults: list[str] = []
    for name in sorted(_BACKENDS, key=lambda name: name != asked):
        try:
            gl = _BACKENDS[name]()(width, height)
            gl.make_current()
            return gl, mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50)
        except Exception as error:  # noqa: BLE001 - GL libraries raise errors of many types
            faults.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
    raise ConfigError(
        f"env.renderer=gl draws nothing here ({'; '.join(faults)}); use env.renderer=warp, or on "
        "Debian or Ubuntu install libegl1 libegl-mesa0 libgl1-mesa-dri, or libosmesa6"
    )


def _egl() -> Callable[[int, int], Any]:
    from mujoco.egl import GLContext  # opens the library

    return GLContext


def _osmesa() -> Callable[[int, int], Any]:
    from mujoco.osmesa import GLContext

    return GLContext


_BACKENDS = {"egl": _egl, "osmesa": _osmesa}
