"""Pictures for the page: where they come from, and signs of a stream that cannot be trusted.

A source gives its newest picture and the time when it was taken. A picture that is old, black, or
the very same for too long while new times arrive gets a badge: all three have cost somebody data.
"""

import io
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from policies.cameras import CameraInput
from robot_rl.core.errors import MissingExtraError, ShapeError

STALE_SECONDS = 0.3
"""Age from which on a picture is stale [s]."""
FROZEN_SECONDS = 2.0
"""Time for which a camera may give the very same picture [s]: real ones have noise."""
_BLACK_BELOW = 6.0
"""Mean brightness of a picture that shows nothing, of 255."""
_QUALITY = 75
_MOST_PIXELS = 16_000_000
"""Pixels of a compressed picture beyond which it is not decoded: a few bytes may say many."""


@runtime_checkable
class FrameSource(Protocol):
    """A camera, or a drawing. `newest` may be called by another thread, and never waits.

    A source that can say why it has no new picture has an attribute `trouble`, empty for none.
    """

    @property
    def name(self) -> str:
        """Name on the page."""
        ...

    @property
    def drawn(self) -> bool:
        """True for a drawing, which may show the same for as long as nothing moves."""
        ...

    def newest(self) -> tuple[bytes | np.ndarray, float] | None:
        """JPEG, or RGB (H, W, 3) uint8, and its time, `time.monotonic` [s]; None before any."""
        ...


@dataclass(frozen=True)
class PolicyView:
    """Part of a camera's picture that a policy sees, and how."""

    part: tuple[float, float, float, float]
    """Top, left, height and width, as shares of the picture's height and width."""
    pixels: tuple[int, int]
    """Height and width of the picture as it is seen."""
    grey: bool
    """Without colours."""

    @classmethod
    def of(cls, camera: CameraInput) -> "PolicyView":
        """View of a policy's camera."""
        (height, width), (top, left, rows, columns) = camera.picture, camera.crop
        part = (top / height, left / width, rows / height, columns / width)
        return cls(part, (rows, columns), grey=len(camera.channels) == 1)


@dataclass(frozen=True)
class Frame:
    """A picture as the page gets it."""

    jpeg: bytes
    stamp: float
    """When it was taken [s]."""
    number: int
    """Counts the pictures of a stream, from 1."""


class VideoStream:
    """One source: encodes each picture once, for all pages, and watches over it."""

    def __init__(self, source: FrameSource, seen: PolicyView | None = None) -> None:
        """Watch a source.

        Args:
            seen: What a policy sees of it; None where none does.

        Raises:
            MissingExtraError: Pillow is not installed.
        """
        _check_pillow()
        self._source, self._seen = source, seen
        self.name = source.name
        self._frame: Frame | None = None
        self._check = 0
        self._changed = -math.inf
        self._black = False

    @property
    def frame(self) -> Frame | None:
        """The picture that `newest` gave last."""
        return self._frame

    def newest(self) -> Frame | None:
        """Take and encode the newest picture; the same object while there is no newer one."""
        found = self._source.newest()
        if found is None:
            return self._frame
        image, stamp = found
        if self._frame is not None and stamp <= self._frame.stamp:
            return self._frame
        jpeg, brightness = (image, None) if isinstance(image, bytes) else _encoded(image)
        if brightness is None:
            brightness = _brightness(jpeg)
        check = zlib.crc32(jpeg)
        if check != self._check or self._frame is None:
            self._check, self._changed = check, stamp
        self._black = brightness < _BLACK_BELOW
        number = 1 if self._frame is None else self._frame.number + 1
        self._frame = Frame(jpeg, stamp, number)
        return self._frame

    def badge(self, now: float) -> str:
        """Fault of the stream: waiting, stale, black or frozen; empty where there is none."""
        if self._frame is None:
            return "waiting"
        if now - self._frame.stamp > STALE_SECONDS:
            return "stale"
        if self._black:
            return "black"
        frozen = self._frame.stamp - self._changed > FROZEN_SECONDS
        return "frozen" if frozen and not self._source.drawn else ""

    def snapshot(self, now: float) -> dict[str, object]:
        """Name, badge and age for the page, and the source's own reason for a fault."""
        age = None if self._frame is None else round(1000 * (now - self._frame.stamp))
        why = getattr(self._source, "trouble", "")
        said: dict[str, object] = {"why": why} if why else {}
        if self._seen is not None:
            said["seen"] = asdict(self._seen)
        return {"name": self.name, "badge": self.badge(now), "age_ms": age, **said}

    def thumbnail(self, width: int = 160) -> bytes | None:
        """The newest picture as a small JPEG; None before any."""
        from PIL import Image

        if self._frame is None:
            return None
        with Image.open(io.BytesIO(self._frame.jpeg)) as image:
            image.draft("RGB", (2 * width, 2 * width))
            small = image.convert("RGB")
            small.thumbnail((width, width))
            out = io.BytesIO()
            small.save(out, "JPEG", quality=60)
        return out.getvalue()


def make_streams(
    sources: Sequence[FrameSource], seen: Mapping[str, CameraInput] | None = None
) -> dict[str, VideoStream]:
    """Streams by name.

    Args:
        seen: What a policy sees, by camera.
    """
    views = {name: PolicyView.of(camera) for name, camera in (seen or {}).items()}
    return {source.name: VideoStream(source, views.get(source.name)) for source in sources}


def decoded_picture(data: bytes) -> np.ndarray:
    """A JPEG or PNG as RGB, (H, W, 3) uint8.

    Raises:
        ShapeError: The bytes are no such picture, or one of too many pixels.
        MissingExtraError: Pillow is not installed.
    """
    _check_pillow()
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise ShapeError(
                    f"a picture of {image.width} x {image.height} pixels came; at most "
                    f"{_MOST_PIXELS / 1e6:.0f} million are decoded"
                )
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ShapeError(f"{len(data)} bytes are no picture (JPEG, PNG): {error}") from None


def _check_pillow() -> None:
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise MissingExtraError("pillow", "ui", "showing pictures") from None


def _encoded(image: np.ndarray) -> tuple[bytes, float]:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image, dtype=np.uint8)).save(out, "JPEG", quality=_QUALITY)
    return out.getvalue(), float(image[::8, ::8].mean())


def _brightness(jpeg: bytes) -> float:
    """Mean of a JPEG, decoded at an eighth of its size."""
    from PIL import Image

    with Image.open(io.BytesIO(jpeg)) as image:
        image.draft("L", (max(1, image.width // 8), max(1, image.height // 8)))
        return float(np.asarray(image.convert("L")).mean())
