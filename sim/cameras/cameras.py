"""Cameras of N worlds: pictures in, observations with stacked frames out.

A frame is taken every `period` control steps of an episode. It may be lost, and then the one before
stays; it may be black or noisy; it is seen `latency` frames later. The stack has what was seen in
the last control steps, one frame per step, so that an observation is the one before moved on by one
frame. At an episode's start all frames are the picture of its start.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.env import GroupSpec, Obs
from robot_rl.core.env_selection import EnvSelection, counting_is_free
from robot_rl.core.observation import IMAGE_PREFIX
from robot_rl.core.seeding import derive_seed
from sim.cameras.config import AppearanceRandomization, CameraConfig, ImageRenderer

if TYPE_CHECKING:
    from sim.cameras.renderer import DrawnWorlds, Renderer


class SimulatedCameras:
    """Observation groups `image/<camera>` of N worlds."""

    def __init__(
        self,
        cameras: Mapping[str, CameraConfig],
        appearance: AppearanceRandomization,
        renderer: "Renderer",
        *,
        num_worlds: int,
        device: torch.device,
        seed: int,
    ) -> None:
        """Allocate black frames.

        Args:
            renderer: Draws these cameras.
            seed: Of everything that is drawn here.
        """
        self._renderer = renderer
        self._generator = torch.Generator(device=device)
        self._looks = _Looks(appearance, renderer, num_worlds, device)
        self._streams = {
            IMAGE_PREFIX + name: _Frames(camera, renderer.images[name], self._generator)
            for name, camera in cameras.items()
        }
        self._counting_is_free = device.type == "cpu"
        self._fresh = torch.ones(num_worlds, dtype=torch.bool, device=device)
        self.reseed(seed)

    @property
    def specs(self) -> dict[str, GroupSpec]:
        """Shapes of the groups."""
        return {name: stream.spec for name, stream in self._streams.items()}

    @property
    def obs(self) -> Obs:
        """Images to act on next, by group; overwritten by the next step."""
        return {name: stream.obs for name, stream in self._streams.items()}

    @property
    def next_obs(self) -> Obs:
        """True successors of the last step, by group; overwritten by the next step."""
        return {name: stream.next_obs for name, stream in self._streams.items()}

    def stale(self) -> Tensor | None:
        """Worlds in which a camera has been silent for too long, (N,) bool; None if none may."""
        found = [
            stream.lost >= stream.stale_after
            for stream in self._streams.values()
            if stream.stale_after > 0
        ]
        return torch.stack(found).any(0) if found else None

    def step(self) -> None:
        """Take the frames that are due after a step of the worlds; `obs` goes on from them."""
        due = [stream.is_due() for stream in self._streams.values()]
        rows = EnvSelection(torch.stack(due).any(0))
        if not self._counting_is_free or rows.count > 0:
            self._renderer.draw(rows)
        for stream, taken in zip(self._streams.values(), due, strict=True):
            stream.take(taken)

    def begin(self, rows: EnvSelection) -> None:
        """Let the picked worlds begin with pictures of their starts, and new looks."""
        self._looks.draw(rows, self._generator)
        self._renderer.draw(rows)
        for stream in self._streams.values():
            stream.begin(rows)

    def reseed(self, seed: int) -> None:
        """Restart the stream of all that is drawn."""
        self._generator.manual_seed(derive_seed(seed, "cameras"))

    def state_dict(self) -> dict[str, Any]:
        """Frames on their way, stacks, looks and the stream of what is drawn, copied."""
        streams = {name: stream.state_dict() for name, stream in self._streams.items()}
        return {
            "streams": streams,
            "looks": self._looks.state_dict(),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        for name, stream in self._streams.items():
            stream.load_state_dict(state["streams"][name])
        self._looks.load_state_dict(state["looks"])
        self._generator.set_state(state["generator"])

    def close(self) -> None:
        """Release the renderer."""
        self._renderer.close()


class _Frames:
    """Frames of one camera from the picture to the stack."""

    def __init__(self, camera: CameraConfig, picture: Tensor, generator: torch.Generator) -> None:
        """Begin with black frames.

        Args:
            picture: Newest drawn ones, (N, H, W, C), live.
        """
        self._camera, self._picture, self._generator = camera, picture, generator
        count, device = len(picture), picture.device
        # On their way, the newest first; the last one is seen.
        self._frames = picture.new_zeros(camera.latency + 1, *picture.shape)
        self.obs = picture.new_zeros(count, camera.stack, *picture.shape[1:])
        self.next_obs = self.obs.clone()
        self._age = torch.zeros(count, dtype=torch.int64, device=device)  # steps of the episode
        self._silent = torch.zeros_like(self._age)  # frames that are still to be lost
        self.lost = torch.zeros_like(self._age)
        """Frames lost in a row, (N,)."""
        self.stale_after = camera.stale_after
        self._kept = {
            "frames": self._frames, "obs": self.obs, "age": self._age, "silent": self._silent,
            "lost": self.lost,
        }  # fmt: skip

    @property
    def spec(self) -> GroupSpec:
        """Shape of the group."""
        shape = tuple(self.obs.shape[1:])
        return GroupSpec(shape=shape, dtype=torch.uint8, stack=self._camera.stack)

    def is_due(self) -> Tensor:
        """Count a step; worlds in which a frame is taken now, (N,) bool."""
        self._age += 1
        return self._age % self._camera.period == 0

    def take(self, due: Tensor) -> None:
        """Take drawn pictures as frames where they are due, and move all stacks on."""
        frames, camera = self._frames, self._camera
        arrives = due & ~self._losses(due) if camera.dropout > 0 else due
        for late in range(camera.latency, 0, -1):
            self._put(due, frames[late - 1], frames[late])
        self._put(arrives, self._spoiled(), frames[0])
        self.next_obs[:, :-1] = self.obs[:, 1:]
        self.next_obs[:, -1] = frames[-1]
        self.obs.copy_(self.next_obs)

    def begin(self, rows: EnvSelection) -> None:
        """All frames of the picked worlds are the drawn pictures."""
        first = rows.take(self._picture)
        for frame in self._frames:
            rows.put(frame, first)
        rows.put(self.obs, first[:, None].expand(-1, self._camera.stack, -1, -1, -1))
        for counter in (self._age, self._silent, self.lost):
            rows.put(counter, 0)

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides what is seen next, copied."""
        return {name: part.clone() for name, part in self._kept.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        for name, part in self._kept.items():
            part.copy_(state[name])

    def _losses(self, due: Tensor) -> Tensor:
        """Due frames that are lost, (N,) bool; some take the next ones with them."""
        camera = self._camera
        begins = self._unit() < camera.dropout
        lost = due & ((self._silent > 0) | begins)
        left = torch.where(self._silent > 0, self._silent, camera.dropout_frames)
        self._silent.copy_(torch.where(lost, left - 1, self._silent))
        self.lost.copy_(torch.where(due, torch.where(lost, self.lost + 1, 0), self.lost))
        return lost

    def _spoiled(self) -> Tensor:
        """Pictures with noise, some of them black, (N, H, W, C)."""
        camera, picture = self._camera, self._picture
        if camera.noise > 0:
            noise = torch.randn(picture.shape, generator=self._generator, device=picture.device)
            picture = (picture + camera.noise * noise).round_().clamp_(0, 255).to(torch.uint8)
        if camera.black > 0:
            seen = self._unit() >= camera.black
            picture = picture * seen[:, None, None, None]
        return picture

    def _unit(self) -> Tensor:
        """Uniform numbers of all worlds: what one draws does not depend on the others."""
        return torch.rand(
            len(self._picture), generator=self._generator, device=self._picture.device
        )

    def _put(self, mask: Tensor, values: Tensor, target: Tensor) -> None:
        if counting_is_free(mask) and bool(mask.all()):
            target.copy_(values)
        else:
            target.copy_(torch.where(mask[:, None, None, None], values, target))


class _Looks:
    """Fields of the model that differ between worlds for their looks alone."""

    def __init__(
        self,
        config: AppearanceRandomization,
        renderer: "Renderer",
        num_worlds: int,
        device: torch.device,
    ) -> None:
        self._config, self._count, self._device = config, num_worlds, device
        asked = {
            "cam_pos": config.camera_position, "cam_quat": config.camera_rotation,
            "light_diffuse": config.brightness, "light_pos": config.light_position,
            "geom_rgba": config.colour, "mat_rgba": config.colour,
        }  # fmt: skip
        self._widths = {name: width for name, width in asked.items() if width > 0}
        self._fields = {name: renderer.vary(name) for name in self._widths}
        self._nominal = {name: field.clone() for name, field in self._fields.items()}

    def draw(self, rows: EnvSelection, generator: torch.Generator) -> None:
        """Draw new looks for the picked worlds."""
        for name, width in self._widths.items():
            nominal = self._nominal[name]  # (N, things, 3 or 4)
            shape = (self._count, nominal.shape[1], 3)
            offset = width * (2 * torch.rand(shape, generator=generator, device=self._device) - 1)
            if name == "cam_quat":
                drawn = quaternion.multiply(nominal, quaternion.from_rotation_vector(offset))
            elif name == "light_diffuse":
                drawn = nominal * (1 + offset[..., :1])
            elif name.endswith("rgba"):
                drawn = nominal.clone()
                drawn[..., :3] = (nominal[..., :3] + offset).clamp(0, 1)
            else:
                drawn = nominal + offset
            rows.put(self._fields[name], rows.take(drawn))

    def state_dict(self) -> dict[str, Any]:
        """Drawn fields by name, copied."""
        return {name: field.clone() for name, field in self._fields.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        for name, field in self._fields.items():
            field.copy_(state[name])


def make_renderer(
    kind: ImageRenderer,
    worlds: "DrawnWorlds",
    cameras: Mapping[str, CameraConfig],
    device: torch.device,
) -> "Renderer":
    """The renderer that a run names.

    Raises:
        ConfigError: GL does not work here.
        DeviceError: GL was asked for on a GPU.
        MissingExtraError: MuJoCo Warp is not installed.
    """
    if kind is ImageRenderer.gl:
        from sim.cameras.gl_renderer import GLRenderer  # opens a library that others do without

        return GLRenderer(worlds, cameras, device)
    from sim.cameras.warp_renderer import WarpRenderer  # an extra, only where asked for

    return WarpRenderer(worlds, cameras, device)
