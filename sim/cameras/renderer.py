"""Interface of what draws the cameras' pictures: `gl_renderer.py` and `warp_renderer.py`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from sim.cameras.config import CameraConfig, ImageKind, camera_name

_MOST_BODIES = 255
"""Numbers of bodies in a byte, beside that of nothing."""


class DrawnWorlds(Protocol):
    """Positions of N worlds with one model; an engine is one. Tensors are live."""

    model: Any
    """The `MjModel`; has the cameras."""
    num_worlds: int
    """N."""
    fixtures: tuple[Tensor, ...]
    """Poses of mocap bodies, if any: positions (N, M, 3) and quaternions (N, M, 4)."""

    @property
    def qpos(self) -> Tensor:
        """Generalised positions, (N, nq)."""
        ...


class Renderer(ABC):
    """Draws the cameras of N worlds as the worlds are now."""

    images: dict[str, Tensor]
    """Newest picture of each camera, (N, height, width, channels) uint8; overwritten in place."""

    def __init__(
        self, worlds: DrawnWorlds, cameras: Mapping[str, CameraConfig], device: torch.device
    ) -> None:
        """Allocate black pictures.

        Raises:
            ConfigError: There are more bodies than a pixel can tell apart.
        """
        self._worlds, self._cameras = worlds, cameras
        segments = any(camera.kind is ImageKind.segmentation for camera in cameras.values())
        if segments and worlds.model.nbody > _MOST_BODIES:
            raise ConfigError(
                f"camera.kind=segmentation tells {_MOST_BODIES} bodies apart, the model has "
                f"{worlds.model.nbody}; choose another kind"
            )
        self.images = {
            name: torch.zeros(worlds.num_worlds, *camera.shape, dtype=torch.uint8, device=device)
            for name, camera in cameras.items()
        }
        self._ids = [worlds.model.camera(camera_name(name)).id for name in cameras]
        self._fields: dict[str, Tensor] = {}

    def vary(self, name: str) -> Tensor:
        """A field of the model with values per world, (N, ...) float32, such as `geom_rgba`.

        Live: write into it. To be asked for before the first picture.
        """
        if name not in self._fields:
            values = torch.tensor(getattr(self._worlds.model, name), dtype=torch.float32)
            values = values.to(next(iter(self.images.values())).device)
            self._fields[name] = values.expand(self._worlds.num_worlds, *values.shape).contiguous()
        return self._fields[name]

    @abstractmethod
    def draw(self, rows: EnvSelection) -> None:
        """Draw the picked worlds at least."""

    def close(self) -> None:  # noqa: B027 - not all hold something
        """Release what is held; allowed more than once."""
