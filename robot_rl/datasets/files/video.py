"""Images of a camera as one mp4 for all episodes of a file; wraps PyAV.

H.264 without loss, in red, green and blue: what is read back is what was written, to the last bit.
LeRobot and whatever else decodes by FFmpeg reads it; browsers do not show it. Every second frame is
a key frame, as in LeRobot's own videos, so that a random one is decoded at once.
"""

import io
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.error import FFmpegError
from numpy.typing import NDArray

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.files.manifest import read_errors

Images = NDArray[np.uint8]
"""(frames, height, width, C), C of 1 or 3; one channel is stored three times."""
CODEC, PIXELS = "h264", "gbrp"
"""Names that FFmpeg has for what is stored."""
_OPTIONS = {
    "qp": "0", "preset": "veryfast", "g": "2", "bf": "0", "threads": "1", "mbtree": "0",
}  # fmt: skip
"""The same frames make the same file. x264's macroblock tree, of no use where every second frame is
a key frame, made another one in 5 of 1,560 encodings; without it none of 2,400 differed."""
_DAMAGE_ERRORS = (FFmpegError, OSError, ValueError, IndexError)
_MAX_DENOMINATOR = 1_000_000
"""Largest denominator of a frame rate."""


def encode(parts: Iterable[Images], rate: float) -> bytes:
    """A video of images that follow each other, all of one size; `rate` in [Hz]."""
    out = io.BytesIO()
    each = Fraction(rate).limit_denominator(_MAX_DENOMINATOR)
    with av.open(out, "w", format="mp4") as film:
        stream: Any = None
        for images in parts:
            for pixels in images:
                if stream is None:
                    stream = film.add_stream("libx264rgb", rate=each, options=_OPTIONS)
                    stream.height, stream.width = pixels.shape[:2]
                    stream.pix_fmt = "rgb24"
                colours = np.repeat(pixels, 3 // pixels.shape[2], axis=2)
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(colours), format="rgb24")
                film.mux(stream.encode(frame))
        if stream is not None:
            film.mux(stream.encode())
    return out.getvalue()


def decode(path: Path, rate: float, first: int, count: int) -> Images:
    """One or more frames of a video that `encode` made, (count, height, width, 3); `rate` in [Hz].

    Raises:
        DatasetError: The file is missing or damaged, or has fewer frames.
    """
    found: list[Images] = []
    with read_errors(path, "a video", *_DAMAGE_ERRORS), av.open(str(path)) as film:
        stream = film.streams.video[0]
        assert stream.time_base is not None
        ticks = 1 / (stream.time_base * Fraction(rate).limit_denominator(_MAX_DENOMINATOR))
        film.seek(round(first * ticks), stream=stream)  # to the key frame at it or before it
        for frame in film.decode(stream):
            if frame.pts is not None and round(frame.pts / ticks) >= first:
                found.append(np.asarray(frame.to_ndarray(format="rgb24"), np.uint8))
            if len(found) == count:
                break
    if len(found) < count:
        raise DatasetError(
            f"the video {path} ends {count - len(found)} frames too early: frames {first} to "
            f"{first + count - 1} were asked for"
        )
    return np.stack(found)
