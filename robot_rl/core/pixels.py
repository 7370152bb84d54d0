"""Pixels as policies see them: brightness, depth in bytes, and means over areas.

The same lines run behind a simulated camera and behind a real one, so that a policy and a robot
cannot disagree about what a pixel means.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

BRIGHTNESS = (0.299, 0.587, 0.114)
"""Weights of red, green and blue (ITU-R BT.601)."""
FARTHEST = 255
"""Depth of what lies at `far` or beyond, and of what nothing was measured of."""


def brightness(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Brightness of pixels, (..., 3) -> (..., 1) uint8."""
    return np.rint(rgb @ np.array(BRIGHTNESS))[..., None].astype(np.uint8)


def depth_bytes(metres: NDArray[Any], near: float, far: float) -> NDArray[np.uint8]:
    """Distances along the axis [m] as bytes, 0 at `near` and 255 at `far`, of the same shape.

    What is not finite or not above 0 was not measured, and is as far as can be told.
    """
    measured = np.isfinite(metres) & (metres > 0)
    share = (np.where(measured, metres, far) - near) / (far - near)
    return np.rint(FARTHEST * share.clip(0, 1)).astype(np.uint8)


def area_means(picture: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """A smaller picture, (H, W, C) -> (height, width, C): each pixel the mean of its area."""
    rows, columns = _shares(picture.shape[0], height), _shares(picture.shape[1], width)
    means = np.einsum("hr,rwc->hwc", rows, picture.astype(np.float32), optimize=True)
    means = np.einsum("wk,hkc->hwc", columns, means, optimize=True)
    return np.rint(means).clip(0, 255).astype(np.uint8)


def middles(picture: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """A smaller picture whose pixels are those in the middle of each area, for what has no mean."""
    rows = ((np.arange(height) + 0.5) * picture.shape[0] / height).astype(np.intp)
    columns = ((np.arange(width) + 0.5) * picture.shape[1] / width).astype(np.intp)
    return picture[rows[:, None], columns]


@lru_cache(maxsize=16)
def _shares(size: int, smaller: int) -> NDArray[np.float32]:
    """Share of each of `size` pixels in each of fewer ones, (smaller, size); rows sum to 1."""
    edges = np.linspace(0.0, size, smaller + 1)
    pixel = np.arange(size)
    overlap = np.minimum(edges[1:, None], pixel + 1) - np.maximum(edges[:-1, None], pixel)
    return (overlap.clip(0) * smaller / size).astype(np.float32)
