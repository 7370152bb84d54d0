"""Pictures as PNG and films as mp4: the one file of this wing that knows PyAV."""

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]
"""(height, width, 3)."""


def write_film(path: Path, frames: Iterable[Picture], *, width: int, height: int, fps: int) -> None:
    """Encode pictures, whose width and height are even, as h264 in mp4."""
    with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as film:
        # crf 20 is visually clean; yuv420p is what every player and browser shows.
        stream = film.add_stream(
            "libx264", rate=Fraction(fps), options={"crf": "20", "preset": "veryfast"}
        )
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for pixels in frames:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
            film.mux(stream.encode(frame))
        film.mux(stream.encode())


def write_png(path: Path, pixels: Picture) -> None:
    """Encode one picture."""
    encoder = av.CodecContext.create("png", "w")
    assert isinstance(encoder, av.VideoCodecContext)
    encoder.height, encoder.width = pixels.shape[:2]
    encoder.pix_fmt, encoder.time_base = "rgb24", Fraction(1, 1)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
    packets = [*encoder.encode(frame), *encoder.encode(None)]
    path.write_bytes(b"".join(bytes(packet) for packet in packets))
