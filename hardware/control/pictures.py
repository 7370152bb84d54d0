"""Judgement of a camera's pictures: the reasons for which a policy must not see one.

A policy would act on a picture that is old, black or of another camera as on any other. So each is
judged before every decision, and one that cannot be trusted ends the policy's part.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from policies.cameras import CameraInput, PixelContent

Pixels = NDArray[Any]

_LEAST_AGE = 0.1
"""No picture counts as old before this [s]."""
_PERIODS = 3.0
"""Age beyond the camera's latency from which on a picture is old [periods]."""
_FROZEN_SECONDS, _FROZEN_PERIODS = 0.5, 5.0
"""Time for which a camera may send the very same picture [s], [periods]: real ones have noise."""
_MOVED = 0.25
"""Change of a joint, a place or an attitude that a drawn picture must show [rad], [m], or of 1."""
_PLACES = ("joint_position", "position_w", "orientation_w")
"""Fields of a state that say where the robot is."""
_BLACK_BELOW = 6.0
"""Mean of a picture that shows nothing, of 255."""


class TakenPicture(NamedTuple):
    """A picture as a camera took it."""

    pixels: Pixels
    content: PixelContent
    stamp: float
    """When it was taken, clock of the robot's loop [s]."""


class JudgedCamera:
    """One camera, and what is known of its last pictures."""

    def __init__(
        self, camera: CameraInput, control_dt: float, *, drawn: bool = False, patience: float = 1.0,
        where: str = "",
    ) -> None:  # fmt: skip
        """Begin without a picture.

        Args:
            camera: Pictures as the policy sees them.
            control_dt: Period of the policy [s].
            drawn: The pictures are drawn and have no noise: they may stay the same for as long as
                the robot stays where it is.
            patience: Factor on the age of pictures, for those that are drawn on a busy machine.
            where: Place that they come from, for sentences, such as " on /wrist/image_raw".
        """
        self._camera, self._drawn, self._where = camera, drawn, where
        period = camera.period or control_dt
        self._oldest = patience * max(_LEAST_AGE, camera.latency + _PERIODS * period)
        self._longest = max(_FROZEN_SECONDS, _FROZEN_PERIODS * period)
        self._sent: Pixels | None = None
        self._changed = -math.inf
        self._places: dict[str, Pixels] = {}  # of the robot, when the picture changed last
        self._blind = False
        self.picture: NDArray[np.uint8] | None = None
        """The newest one, (height, width, C); None where it cannot be shown to the policy."""
        self.stamp = -math.inf
        """When it was taken, clock of whoever asks [s]."""

    def take(
        self, pixels: Pixels, content: PixelContent, stamp: float, state: Mapping[str, Pixels]
    ) -> None:
        """Take a picture that is newer than the last one.

        Args:
            pixels: As the camera sends them.
            content: Meaning of the pixels.
            stamp: When they were taken [s].
            state: Measured state of the robot, (1, width) each.

        Raises:
            SpecMismatchError: The policy sees something else than the camera sends.
            ShapeError: The picture is smaller, or has another shape.
        """
        picture = self._camera.whole_picture(pixels, content)
        if self._sent is None or not np.array_equal(pixels, self._sent, equal_nan=True):
            self._changed = stamp
            self._places = {name: state[name].copy() for name in _PLACES if name in state}
        self.picture, self._sent, self.stamp = picture, pixels, stamp
        if content is PixelContent.depth:  # in bytes no distance looks like a far one
            seen = self._seen_part(pixels)
            self._blind = not (np.isfinite(seen) & (seen > 0)).any()
        else:
            self._blind = _shows_nothing(self._seen_part(picture), self._camera)

    def forget(self) -> None:
        """Have no picture: the last one could not be used at all."""
        self.picture, self.stamp = None, -math.inf

    def fault(self, state: Mapping[str, Pixels], now: float) -> str:
        """Reason why the newest picture cannot be used; empty where it can.

        Args:
            state: Measured state of the robot, (1, width) each.
            now: By the clock of the stamps [s].
        """
        if self.picture is None:
            return f"has sent nothing yet{self._where}"
        if (age := now - self.stamp) > self._oldest:
            where = f",{self._where}" if self._where else ""
            return f"is silent: its newest picture is too old ({age:.3f} s{where})"
        if self._blind:
            return "shows nothing: its pictures are black, or without a distance"
        still = self.stamp - self._changed
        if still > self._longest and (not self._drawn or self._moved(state)):
            return f"is frozen: it sends the very same picture ({still:.1f} s)"
        return ""

    def _seen_part(self, pixels: Pixels) -> Pixels:
        """Part that the policy sees of a picture of its size, or of a larger one of that shape."""
        top, left, height, width = self._camera.crop
        down, across = (n / m for n, m in zip(pixels.shape, self._camera.picture, strict=False))
        rows = slice(math.floor(top * down), math.ceil((top + height) * down))
        columns = slice(math.floor(left * across), math.ceil((left + width) * across))
        return pixels[rows, columns]

    def _moved(self, state: Mapping[str, Pixels]) -> bool:
        return any(abs(state[name] - place).max() > _MOVED for name, place in self._places.items())


def _shows_nothing(part: Pixels, camera: CameraInput) -> bool:
    if camera.channels == ["body"]:
        return not part.any()
    return camera.channels != ["depth"] and float(part.mean()) < _BLACK_BELOW
