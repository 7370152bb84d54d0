"""Cameras of a policy: from a picture to what it sees of it, and the stack of its last frames."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import ConfigError, ShapeError, SpecMismatchError
from robot_rl.core.observation import IMAGE_PREFIX
from robot_rl.core.pixels import area_means, brightness, depth_bytes, middles

_COLOURS = ("red", "green", "blue")
_MOST_PIXELS = 1 << 22
"""Bytes of a picture, and of a stack."""


class PixelContent(Enum):
    """Content of the pixels that a camera sends."""

    colour = "colour"
    """Red, green and blue, (H, W, 3) uint8."""
    grey = "grey"
    """One number, (H, W, 1) uint8: brightness, or a body of a simulation."""
    depth = "depth"
    """Distance along the axis, (H, W, 1) float32 [m]; NaN or 0 where nothing was measured."""


@dataclass(frozen=True, kw_only=True)
class CameraInput:
    """Pictures of one camera, as a policy was trained with them; uint8."""

    picture: list[int]
    """Height and width of a picture as the camera takes it [pixels]."""
    crop: list[int]
    """Part of it that is seen: top, left, height, width [pixels]."""
    channels: list[str]
    """Meaning of a pixel's entries, in order: red, green, blue; brightness; depth; or body, its
    number in the simulation."""
    stack: int
    """Frames in an observation, one per control period, oldest first; at an episode's start all are
    the first."""
    near: float = 0.0
    """Distance that depth shows as 0 [m]."""
    far: float = 0.0
    """Distance that depth shows as 255 [m]."""
    period: float = 0.0
    """Time from one picture to the next [s]; 0 in bundles that were written before."""
    latency: float = 0.0
    """Age of a picture at which it was seen in training [s]."""
    field_of_view: float = 0.0
    """Angle between the upper and the lower edge of the whole picture [rad]; 0 where it is not
    known."""

    @property
    def frame(self) -> tuple[int, int, int]:
        """Height, width and channels of a frame as it is seen."""
        return (self.crop[2], self.crop[3], len(self.channels))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(S, H, W, C) of an observation."""
        return (self.stack, *self.frame)

    def check(self, name: str) -> None:
        """Refuse what no memory holds, and a part that lies outside the picture.

        Raises:
            ConfigError: A value is out of range.
        """
        where = f"policy.cameras.{name}"
        if len(self.picture) != 2 or len(self.crop) != 4:
            raise ConfigError(
                f"{where}: expected picture [height, width] and crop [top, left, height, width]"
            )
        (height, width), (top, left, rows, columns) = self.picture, self.crop
        inside = 0 <= top <= top + rows <= height and 0 <= left <= left + columns <= width
        least = min(rows, columns, self.stack, len(self.channels))
        sizes = (height * width * len(self.channels), rows * columns * len(self.channels))
        if not inside or least < 1 or max(sizes[0], sizes[1] * self.stack) > _MOST_PIXELS:
            raise ConfigError(
                f"{where}: expected a part of the picture, a stack and channels of at least 1 and "
                f"up to {_MOST_PIXELS} bytes, got picture {self.picture}, crop {self.crop}, stack "
                f"{self.stack}, {len(self.channels)} channels"
            )
        times = self.period >= 0 and self.latency >= 0 and math.isfinite(self.period + self.latency)
        if not times or not 0 <= self.field_of_view < math.pi:
            raise ConfigError(
                f"{where}: expected period and latency of 0 s or more and an angle of view below "
                f"pi, got {self.period}, {self.latency} and {self.field_of_view}"
            )

    def whole_picture(self, pixels: NDArray[Any], content: PixelContent) -> NDArray[np.uint8]:
        """A camera's pixels as the picture that the policy was trained with, (height, width, C).

        A larger picture of the same shape is made smaller: colours by means over areas, depth and
        bodies by the pixels in the middle of the areas.

        Args:
            pixels: As the camera sends them, of the shape and type that `content` says.

        Raises:
            SpecMismatchError: The policy sees something else than the camera sends.
            ShapeError: The picture is smaller, or has another shape.
        """
        height, width = self.picture
        rows, columns = pixels.shape[:2]
        grows = min(rows / height, columns / width)
        if grows < 1 or abs(rows / height - columns / width) * min(height, width) >= 1:
            raise ShapeError(
                f"pictures have {columns} x {rows} pixels; the policy was trained with "
                f"{width} x {height}, and takes those or larger ones of the same shape"
            )
        seen = self._channels_of(pixels, content)
        if (rows, columns) == (height, width):
            return seen
        averaged = self.channels not in (["depth"], ["body"])
        return (area_means if averaged else middles)(seen, height, width)

    def _channels_of(self, pixels: NDArray[Any], content: PixelContent) -> NDArray[np.uint8]:
        if content is PixelContent.colour and set(self.channels) <= {*_COLOURS}:
            return pixels[..., [_COLOURS.index(name) for name in self.channels]]
        if content is PixelContent.colour and self.channels == ["brightness"]:
            return brightness(pixels)
        if content is PixelContent.grey and self.channels in (["brightness"], ["body"]):
            return pixels
        if content is PixelContent.depth and self.channels == ["depth"]:
            return depth_bytes(pixels, self.near, self.far)
        raise SpecMismatchError(
            f"pictures hold {content.value}; the policy was trained with {', '.join(self.channels)}"
        )


class FrameStacks:
    """The last frames of every camera of N robots."""

    def __init__(self, cameras: Mapping[str, CameraInput], count: int) -> None:
        """Begin with black frames."""
        self._cameras = dict(cameras)
        self.stacks = {
            IMAGE_PREFIX + name: np.zeros((count, *camera.shape), np.uint8)
            for name, camera in cameras.items()
        }
        """By input of the network, (N, S, H, W, C)."""

    def update(self, pictures: Mapping[str, NDArray[Any]], starting: NDArray[np.bool_]) -> None:
        """Take a new picture of every camera.

        Args:
            pictures: By camera, (N, height, width, C) uint8: whole ones, or cropped already.
            starting: Robots whose episode begins, (N,): all of their frames are the new one.

        Raises:
            SpecMismatchError: A camera's picture is missing.
            ShapeError: It has another shape or type.
        """
        for name, camera in self._cameras.items():
            if name not in pictures:
                raise SpecMismatchError(
                    f"the policy needs pictures of the camera '{name}', which were not given; "
                    f"given: {', '.join(sorted(pictures)) or 'none'}"
                )
            frame = self._cropped(name, camera, np.asarray(pictures[name]))
            stack = self.stacks[IMAGE_PREFIX + name]
            stack[:, :-1] = stack[:, 1:]
            stack[:, -1] = frame
            stack[starting] = frame[starting][:, None]

    def _cropped(self, name: str, camera: CameraInput, picture: NDArray[Any]) -> NDArray[Any]:
        count = len(self.stacks[IMAGE_PREFIX + name])
        top, left, height, width = camera.crop
        whole = (count, *camera.picture, len(camera.channels))
        if picture.dtype == np.uint8 and picture.shape == (count, *camera.frame):
            return picture
        if picture.dtype == np.uint8 and picture.shape == whole:
            return picture[:, top : top + height, left : left + width]
        raise ShapeError(
            f"camera '{name}': expected uint8 pictures {whole} (robots, height, width, channels), "
            f"or their part {(count, *camera.frame)}, got {picture.shape} of {picture.dtype}"
        )
