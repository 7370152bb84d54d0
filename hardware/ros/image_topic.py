"""Pictures of ROS 2 cameras: `sensor_msgs/Image` and `sensor_msgs/CompressedImage`.

    camera node --- image_raw, image_raw/compressed ---> ImageTopic ---> console, observations

A camera sends best effort and the newest picture counts. Its header's stamp is the time of the
picture, on the ROS clock. Nothing is decoded before somebody asks for it, and nothing that is
larger than `LARGEST_PICTURE` is read at all: a picture comes from whoever is in the domain.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from hardware.console.video import decoded_picture
from hardware.ros.compat import message
from hardware.ros.message_parts import clock_offset, to_nanoseconds
from hardware.ros.session import RosSession
from hardware.ros.streams import parsed
from policies.cameras import PixelContent
from robot_rl.core.errors import RobotRLError, ShapeError, SpecMismatchError, unknown_name

LARGEST_PICTURE = 32 * 1024 * 1024
"""Bytes of a message beyond which it is not read: 3840 x 2160 RGB has 25 MB."""
COMPRESSED = "/compressed"
"""End of the names of topics that carry `CompressedImage`, by the habit of image_transport."""
_AHEAD = 50_000_000
"""Largest lead of a stamp [ns]: beyond that an old picture would look young."""
_LOOK_SECONDS = 1.0
"""Between two looks at the type that a silent topic has [s]."""
_WAIT_SECONDS = 0.1
_ORDERS = {"rgb8": ([0, 1, 2], 3), "bgr8": ([2, 1, 0], 3), "mono8": ([0], 1)}
"""Encoding -> channels of a pixel that make red, green and blue, or brightness; and their number in
the message."""
_DEPTHS = {"16UC1": ("u2", 1e-3), "32FC1": ("f4", 1.0)}
"""Encoding -> type of a distance, and its unit [m] (REP 118)."""
_JPEG, _PNG = b"\xff\xd8\xff", b"\x89PNG"
"""First bytes of the compressed pictures that are known."""


class ImageTopic:
    """One camera as a `FrameSource`; `poll` belongs to one thread, `newest` to any."""

    drawn = False

    def __init__(
        self, session: RosSession, name: str, topic: str, *, depth: bool = False
    ) -> None:  # fmt: skip
        """Subscribe.

        Args:
            name: Of the camera here.
            topic: Absolute, or below the session's namespace; `CompressedImage` where it ends
                with `/compressed`.
            depth: It sends distances, and no colours.
        """
        self.name = name
        """Of the camera."""
        self._known = _DEPTHS if depth else _ORDERS
        self.topic = session.node.resolve_topic_name(topic)
        """Absolute name."""
        self._compressed = topic.endswith(COMPRESSED)
        self._kind = message("sensor_msgs", "CompressedImage" if self._compressed else "Image")
        self._session = session
        self._heard = session.newest(topic, self._kind, raw=True)
        self._newest: tuple[Any, float] | None = None
        self._rgb: tuple[Any, np.ndarray] | None = None
        self._looked = time.monotonic()
        self.trouble = ""
        """Reason why the newest picture cannot be used, or why none comes; empty for none."""

    def poll(self) -> None:
        """Take the newest message; waits for nothing."""
        raw = self._heard.take()
        if raw is None:
            self._look_at_type()
            return
        if len(raw) > LARGEST_PICTURE:
            self.trouble = (
                f"a picture of {len(raw) / 1e6:.0f} MB came on {self.topic}; at most "
                f"{LARGEST_PICTURE / 1e6:.0f} MB are read: let the camera send a smaller one"
            )
            return
        picture = parsed(raw, self._kind)
        if picture is None:
            self.trouble = f"bytes that are no {self._kind.__name__} came on {self.topic}"
            return
        try:
            self._check(picture)
            stamp = self._taken(to_nanoseconds(picture.header.stamp))
        except RobotRLError as error:
            self.trouble = f"{self.topic}: {error}"
            return
        self._newest, self.trouble = (picture, stamp), ""

    def newest(self) -> tuple[bytes | np.ndarray, float] | None:
        """Newest picture, a JPEG as it came or RGB (H, W, 3) uint8, and its time [s]."""
        found = self._newest
        if found is None:
            return None
        picture, stamp = found
        if self._compressed and bytes(picture.data[:3]) == _JPEG:
            return bytes(picture.data), stamp
        try:
            return self._decoded(picture), stamp
        except ShapeError as error:
            self.trouble = f"{self.topic}: {error}"
            return None

    def newest_pixels(self) -> tuple[np.ndarray, PixelContent, float] | None:
        """Newest picture as a policy takes it, its content and its time, `time.monotonic` [s].

        Raises:
            ShapeError: It has fewer bytes than it says, or cannot be decoded.
        """
        found = self._newest
        if found is None:
            return None
        picture, stamp = found
        if self._compressed:
            return self._decoded(picture), PixelContent.colour, stamp
        return *pixels_of(picture), stamp

    def _decoded(self, picture: Any) -> np.ndarray:
        """RGB of a picture; worked out once, however many ask."""
        known = self._rgb
        if known is not None and known[0] is picture:
            return known[1]
        rgb = decoded_picture(bytes(picture.data)) if self._compressed else rgb_of(picture)
        self._rgb = picture, rgb
        return rgb

    def _check(self, picture: Any) -> None:
        """Refuse what cannot be converted, before anybody waits for it."""
        if not self._compressed and picture.encoding not in self._known:
            unknown = unknown_name("encoding", picture.encoding, self._known)
            raise SpecMismatchError(f"{unknown}; let the camera send one of these")
        if self._compressed and not bytes(picture.data[:4]).startswith((_JPEG, _PNG)):
            raise SpecMismatchError(
                f"a picture of the format '{picture.format}' is neither a JPEG nor a PNG; let the "
                "camera send one of these, or no compressed pictures"
            )

    def _taken(self, stamp: int) -> float:
        ahead = stamp - self._session.now()
        if ahead > _AHEAD:
            raise SpecMismatchError(
                f"stamps lie {ahead * 1e-9:.3f} s in the future; synchronise the clocks"
            )
        offset = clock_offset(self._session.now, time.monotonic)
        return min((stamp - offset) * 1e-9, time.monotonic())

    def _look_at_type(self) -> None:
        """Find out why nothing comes: DDS joins only those who mean the same type."""
        now = time.monotonic()
        if self._newest is not None or now < self._looked + _LOOK_SECONDS:
            return
        self._looked = now
        wanted = f"sensor_msgs/msg/{self._kind.__name__}"
        senders = self._session.node.get_publishers_info_by_topic(self.topic)
        others = sorted({one.topic_type for one in senders} - {wanted})
        if others:
            self.trouble = f"{self.topic} carries {', '.join(others)}; expected {wanted}"
        elif not senders:
            self.trouble = f"nobody publishes {self.topic}"


class ImageTopics:
    """Several cameras, heard by a thread of their own."""

    def __init__(
        self, session: RosSession, topics: Mapping[str, str],
        say: Callable[[str], object] = lambda line: None,
    ) -> None:  # fmt: skip
        """Begin to listen.

        Args:
            session: Belongs to this from now on, and is closed with it.
            topics: Name of the camera -> topic.
            say: Is told of a camera's trouble when that changes; from the thread.
        """
        self.cameras = [ImageTopic(session, name, topic) for name, topic in topics.items()]
        """One of each."""
        self._session, self._say = session, say
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ROS cameras", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and the node."""
        self._ends.set()
        self._thread.join()
        self._session.close()

    def _run(self) -> None:
        told = dict.fromkeys((one.name for one in self.cameras), "")
        while not self._ends.is_set():
            self._session.wait(_WAIT_SECONDS)
            for camera in self.cameras:
                camera.poll()
            for name, trouble in _news(self.cameras, told):
                told[name] = trouble
                if trouble:
                    self._say(f"camera '{name}': {trouble}")


def rgb_of(picture: Any) -> np.ndarray:
    """Pixels of a `sensor_msgs/Image` of colours or brightness, (H, W, 3) uint8, RGB.

    Raises:
        ShapeError: It has fewer bytes than it says.
    """
    pixels, _ = pixels_of(picture)
    return pixels if pixels.shape[2] == 3 else np.repeat(pixels, 3, axis=2)


def pixels_of(picture: Any) -> tuple[np.ndarray, PixelContent]:
    """Pixels of a `sensor_msgs/Image` of a known encoding, (H, W, C), and what they hold.

    Raises:
        ShapeError: It has fewer bytes than it says.
    """
    if picture.encoding in _DEPTHS:
        kind, unit = _DEPTHS[picture.encoding]
        dtype = np.dtype(kind).newbyteorder(">" if picture.is_bigendian else "<")
        distance = _rows_of(picture, dtype.itemsize).view(dtype).astype(np.float32)
        return distance * np.float32(unit), PixelContent.depth
    order, channels = _ORDERS[picture.encoding]
    pixels = _rows_of(picture, channels)[:, :, order]
    return pixels, PixelContent.colour if channels == 3 else PixelContent.grey


def _rows_of(picture: Any, pixel: int) -> np.ndarray:
    """Bytes of the pixels, (H, W, `pixel`) uint8, without what lies between the rows."""
    height, width, step = int(picture.height), int(picture.width), int(picture.step)
    if not 0 < width * pixel <= step or height * step > len(picture.data) or not height:
        raise ShapeError(
            f"a picture of {width} x {height} pixels, {step} bytes a row, has "
            f"{len(picture.data)} bytes; expected {max(1, width) * pixel} bytes a row or more, "
            f"and {height} rows"
        )
    rows = np.frombuffer(picture.data, np.uint8)[: height * step].reshape(height, step)
    return np.ascontiguousarray(rows[:, : width * pixel]).reshape(height, width, pixel)


def _news(cameras: Iterable[ImageTopic], told: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Cameras whose trouble is another than the one that was told; numbers in it count as one."""
    for camera in cameras:
        if camera.trouble.partition("(")[0] != told[camera.name].partition("(")[0]:
            yield camera.name, camera.trouble
