"""Pictures of cameras by the ray-caster of MuJoCo Warp, on the CPU or on a GPU.

Worlds are drawn from their positions alone, with a model and kinematics of the renderer's own, so
that it serves every engine. On the CPU, where all work is done in turn, a single world is drawn at
a time: only those that are asked for cost anything. On a GPU all worlds are drawn at once.
"""

# Warp compiles these functions: their arguments are arrays of the device, not what pyright sees.
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false, reportIndexIssue=false
# pyright: reportArgumentType=false, reportAssignmentType=false, reportGeneralTypeIssues=false

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.pixels import BRIGHTNESS
from sim.cameras.config import CameraConfig, ImageKind
from sim.cameras.renderer import DrawnWorlds, Renderer
from sim.physics.warp_memory import mjw
from sim.physics.warp_start import Graphs, wp

_RED, _GREEN, _BLUE = (wp.constant(weight) for weight in BRIGHTNESS)


@wp.func
def channel(packed: wp.uint32, shift: int) -> wp.uint8:
    """One of the bytes of a pixel."""
    return wp.uint8((packed >> wp.uint32(shift)) & wp.uint32(0xFF))


@wp.kernel
def store_rgb(
    packed: wp.array2d[wp.uint32], first: wp.array[int], camera: int, row: int, top: int, left: int,
    out: wp.array4d[wp.uint8],
) -> None:  # fmt: skip
    """Copy the kept part of a picture, rows of `row` pixels, as red, green and blue."""
    world, y, x = wp.tid()
    pixel = packed[world, first[camera] + (top + y) * row + left + x]
    out[world, y, x, 0] = channel(pixel, 16)
    out[world, y, x, 1] = channel(pixel, 8)
    out[world, y, x, 2] = channel(pixel, 0)


@wp.kernel
def store_grey(
    packed: wp.array2d[wp.uint32], first: wp.array[int], camera: int, row: int, top: int, left: int,
    out: wp.array4d[wp.uint8],
) -> None:  # fmt: skip
    """Copy the kept part of a picture as brightness."""
    world, y, x = wp.tid()
    pixel = packed[world, first[camera] + (top + y) * row + left + x]
    red, green, blue = channel(pixel, 16), channel(pixel, 8), channel(pixel, 0)
    out[world, y, x, 0] = wp.uint8(
        wp.rint(_RED * float(red) + _GREEN * float(green) + _BLUE * float(blue))
    )


@wp.kernel
def store_depth(
    depth: wp.array2d[float], first: wp.array[int], camera: int, row: int, top: int, left: int,
    near: float, far: float, out: wp.array4d[wp.uint8],
) -> None:  # fmt: skip
    """Copy the kept part of distances [m], of which 0 means that nothing is there."""
    world, y, x = wp.tid()
    distance = depth[world, first[camera] + (top + y) * row + left + x]
    if distance <= 0.0:
        distance = far
    share = wp.clamp((distance - near) / (far - near), 0.0, 1.0)
    out[world, y, x, 0] = wp.uint8(wp.rint(255.0 * share))


@wp.kernel
def store_bodies(
    seen: wp.array2d[wp.vec2i], first: wp.array[int], camera: int, row: int, top: int, left: int,
    body: wp.array[int], out: wp.array4d[wp.uint8],
) -> None:  # fmt: skip
    """Copy the kept part of a picture of geoms as their bodies, from 1; 0 for nothing."""
    world, y, x = wp.tid()
    geom = seen[world, first[camera] + (top + y) * row + left + x][0]
    number = 0
    if geom >= 0:
        number = body[geom] + 1
    out[world, y, x, 0] = wp.uint8(number)


class WarpRenderer(Renderer):
    """Single hits of rays, Lambertian light and highlights, textures; no shadows."""

    def __init__(
        self, worlds: DrawnWorlds, cameras: Mapping[str, CameraConfig], device: torch.device
    ) -> None:
        """Build the scene's trees.

        Raises:
            ConfigError: MuJoCo Warp cannot take the model.
        """
        super().__init__(worlds, cameras, device)
        self._on_gpu = device.type != "cpu"
        self._size = worlds.num_worlds if self._on_gpu else 1  # worlds drawn at once
        self._graphs = Graphs(device)
        kinds = [camera.kind for camera in cameras.values()]
        with wp.ScopedDevice(self._graphs.device):
            try:
                self._model: Any = mjw.put_model(worlds.model)
            except NotImplementedError as error:
                raise ConfigError(
                    f"env.renderer=warp cannot draw the model ({error}); use env.renderer=gl"
                ) from error
            self._data: Any = mjw.make_data(worlds.model, nworld=self._size, nconmax=1, njmax=1)
            self._scene: Any = mjw.create_render_context(
                worlds.model, nworld=self._size, cam_active=self._ids,
                cam_res=[(camera.width, camera.height) for camera in cameras.values()],
                render_rgb=[kind in (ImageKind.rgb, ImageKind.grey) for kind in kinds],
                render_depth=[kind is ImageKind.depth for kind in kinds],
                render_seg=[kind is ImageKind.segmentation for kind in kinds], render_skybox=True,
            )  # fmt: skip
        self._qpos = wp.to_torch(self._data.qpos)
        parts = (self._data.mocap_pos, self._data.mocap_quat) if worlds.fixtures else ()
        self._fixtures = [wp.to_torch(part) for part in parts]
        self._drawn = self.images
        if not self._on_gpu:
            self._drawn = {name: image[:1].clone() for name, image in self.images.items()}
        self._looks: dict[str, Tensor] = {}

    def draw(self, rows: EnvSelection) -> None:
        """Draw the picked worlds on the CPU, all on a GPU."""
        if self._fields.keys() != self._looks.keys():
            self._spread()
        positions = self._worlds.qpos
        if self._on_gpu:
            self._put(positions, slice(None))
            self._graphs.run("draw", self._draw)
            return
        for world in rows.ids.tolist():
            self._put(positions, slice(world, world + 1))
            self._graphs.run("draw", self._draw)
            for name, drawn in self._drawn.items():
                self.images[name][world] = drawn[0]

    def _put(self, positions: Tensor, worlds: slice) -> None:
        """Take up positions (N, nq), poses of mocap bodies and looks."""
        self._qpos.copy_(positions[worlds])
        for part, values in zip(self._fixtures, self._worlds.fixtures, strict=True):
            part.copy_(values[worlds])
        for name, values in self._looks.items():
            values.copy_(self._fields[name][worlds])

    def _draw(self) -> None:
        m, d, scene = self._model, self._data, self._scene
        mjw.kinematics(m, d)
        mjw.camlight(m, d)
        mjw.refit_bvh(m, d, scene)
        mjw.render(m, d, scene)
        for i, (name, camera) in enumerate(self._cameras.items()):
            out = wp.from_torch(self._drawn[name])
            top, left, height, width = camera.window
            place = (i, camera.width, top, left)
            if camera.kind is ImageKind.depth:
                inputs = (scene.depth_data, scene.depth_adr, *place, camera.near, camera.far, out)
                kernel = store_depth
            elif camera.kind is ImageKind.segmentation:
                inputs = (scene.seg_data, scene.seg_adr, *place, m.geom_bodyid, out)
                kernel = store_bodies
            else:
                inputs = (scene.rgb_data, scene.rgb_adr, *place, out)
                kernel = store_rgb if camera.kind is ImageKind.rgb else store_grey
            wp.launch(
                kernel, dim=(self._size, height, width), inputs=inputs, device=self._graphs.device
            )

    def _spread(self) -> None:
        """Give the drawn worlds fields of the model of their own."""
        for name in self._fields.keys() - self._looks.keys():
            shared = getattr(self._model, name)
            values = wp.to_torch(shared)[:1].expand(self._size, *self._fields[name].shape[1:])
            self._looks[name] = values.contiguous()
            setattr(self._model, name, wp.from_torch(self._looks[name], dtype=shared.dtype))
        self._graphs.forget()
