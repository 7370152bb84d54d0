"""Sends pictures as a camera's node would: `sensor_msgs/Image`, and `CameraInfo` beside it."""

import math
from array import array

import numpy as np

from hardware.ros.compat import message
from hardware.ros.message_parts import put_stamp
from hardware.ros.session import RosSession
from policies.cameras import PixelContent

_ENCODINGS = {
    PixelContent.colour: ("rgb8", np.uint8), PixelContent.grey: ("mono8", np.uint8),
    PixelContent.depth: ("32FC1", np.dtype("<f4")),
}  # fmt: skip


class ImagePublisher:
    """One camera."""

    def __init__(
        self, session: RosSession, topic: str, *, content: PixelContent, field_of_view: float,
        frame: str,
    ) -> None:  # fmt: skip
        """Open `<topic>` and `camera_info` beside it.

        Args:
            topic: Of the pictures, such as camera/wrist/image_raw.
            content: Content of the pixels.
            field_of_view: From the upper to the lower edge [rad].
            frame: Of the camera: x to the right of the picture, y down, z forward.
        """
        self._content, self._angle, self._frame = content, field_of_view, frame
        self._image, self._info = (message("sensor_msgs", n) for n in ("Image", "CameraInfo"))
        place = topic.rpartition("/")[0]
        self._images = session.publisher(topic, self._image)
        self._infos = session.publisher(f"{place}/camera_info", self._info)

    def publish(self, pixels: np.ndarray, stamp: int) -> None:
        """Send a picture (H, W, C), of the shape that its content has, taken at a time [ns]."""
        height, width = pixels.shape[:2]
        encoding, dtype = _ENCODINGS[self._content]
        picture, info = self._image(), self._info()
        for one in (picture, info):
            put_stamp(one.header, stamp)
            one.header.frame_id = self._frame
            one.height, one.width = height, width
        raw = np.ascontiguousarray(pixels, dtype).tobytes()
        picture.encoding, picture.step = encoding, len(raw) // height
        picture.data = array("B", raw)
        focal = height / (2 * math.tan(self._angle / 2))
        x, y = (width - 1) / 2, (height - 1) / 2
        info.distortion_model, info.d = "plumb_bob", [0.0] * 5
        info.k = [focal, 0.0, x, 0.0, focal, y, 0.0, 0.0, 1.0]
        info.r = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
        info.p = [focal, 0.0, x, 0.0, 0.0, focal, y, 0.0, 0.0, 0.0, 1.0, 0.0]
        self._infos.publish(info)
        self._images.publish(picture)
