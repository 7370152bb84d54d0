"""Pictures for a policy, and the reasons for which one may not be used.

    image_raw, camera_info ---> CameraInputs ---> `PolicyRunner.act(pictures=...)`

A policy would act on a picture that is old, black or of another camera as on any other. So each is
judged before every decision: if one cannot be trusted, the policy decides nothing, the robot's side
notices that no command comes, and pauses.
"""

import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.ros.compat import message
from hardware.ros.image_topic import COMPRESSED, ImageTopic
from hardware.ros.session import RosSession
from policies.cameras import CameraInput, PixelContent
from robot_rl.core.errors import RobotRLError, SpecMismatchError, StaleStateError

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
_ANGLE_TOLERANCE = 0.03
"""Largest relative difference between a camera's angle of view and the trained one."""


class CameraInputs:
    """The cameras that a policy sees; all of it is called by one thread."""

    def __init__(
        self, session: RosSession, cameras: Mapping[str, CameraInput], topics: Mapping[str, str],
        *, control_dt: float, drawn: bool = False, patience: float = 1.0,
    ) -> None:  # fmt: skip
        """Subscribe.

        Args:
            cameras: By name, as the bundle says.
            topics: Name of each camera -> topic of its pictures.
            control_dt: Period of the policy [s].
            drawn: The pictures are drawn and have no noise: they may stay the same for as long as
                the robot stays where it is.
            patience: Factor on the age of pictures, for those that are drawn on a busy machine.
        """
        self._cameras = [
            _Camera(session, name, camera, topics[name], control_dt, drawn, patience)
            for name, camera in cameras.items()
        ]

    @property
    def topics(self) -> list[str]:
        """Absolute names of the pictures' topics."""
        return [camera.topic for camera in self._cameras]

    def poll(self) -> None:
        """Take the newest messages; waits for nothing."""
        for camera in self._cameras:
            camera.poll()

    def pictures(self, state: Mapping[str, Pixels]) -> dict[str, Pixels]:
        """The newest picture of every camera, (1, height, width, C) uint8.

        Args:
            state: Measured state of the robot, (1, width) each.

        Raises:
            StaleStateError: A picture cannot be used; names every camera and the reason.
        """
        now = time.monotonic()
        found = {camera.name: camera.look(state, now) for camera in self._cameras}
        faults = [f"camera '{one.name}' {one.fault}" for one in self._cameras if one.fault]
        if faults:
            raise StaleStateError("; ".join(faults))
        return {name: picture[None] for name, picture in found.items() if picture is not None}


class _Camera:
    """One camera, and what is known of its last pictures."""

    def __init__(
        self, session: RosSession, name: str, camera: CameraInput, topic: str, control_dt: float,
        drawn: bool, patience: float,
    ) -> None:  # fmt: skip
        self.name, self._camera, self._drawn = name, camera, drawn
        self._pictures = ImageTopic(session, name, topic, depth=camera.channels == ["depth"])
        self.topic = self._pictures.topic
        place = topic.removesuffix(COMPRESSED).rpartition("/")[0]
        self._described = session.newest(
            f"{place}/camera_info", message("sensor_msgs", "CameraInfo")
        )
        period = camera.period or control_dt
        self._oldest = patience * max(_LEAST_AGE, camera.latency + _PERIODS * period)
        self._longest = max(_FROZEN_SECONDS, _FROZEN_PERIODS * period)
        self._focal = 0.0  # focal length in pixels of the pictures; 0 while nobody says it
        self._seen: Pixels | None = None
        self._sent: Pixels | None = None
        self._stamp = self._changed = -math.inf
        self._places: dict[str, Pixels] = {}  # of the robot, when the picture changed last
        self._blind = False
        self.fault = ""
        """Reason why the newest picture cannot be used; empty where it can."""

    def poll(self) -> None:
        self._pictures.poll()
        if (told := self._described.take()) is not None:
            self._focal = float(told.k[4]) / max(1, int(told.binning_y))

    def look(self, state: Mapping[str, Pixels], now: float) -> Pixels | None:
        """The newest picture; None, and a fault, where there is none that can be used."""
        try:
            self._take(state)
            trouble = self._pictures.trouble
            self.fault = f"cannot be used: {trouble}" if trouble else self._judge(state, now)
        except RobotRLError as error:
            self._seen, self._stamp = None, -math.inf
            self.fault = f"cannot be used: {error}"
        return None if self.fault else self._seen

    def _take(self, state: Mapping[str, Pixels]) -> None:
        newest = self._pictures.newest_pixels()
        if newest is None or newest[2] <= self._stamp:
            return
        pixels, content, stamp = newest
        self._check_angle(len(pixels))
        picture = self._camera.whole_picture(pixels, content)
        if self._sent is None or not np.array_equal(pixels, self._sent, equal_nan=True):
            self._changed = stamp
            self._places = {name: state[name].copy() for name in _PLACES if name in state}
        self._seen, self._sent, self._stamp = picture, pixels, stamp
        top, left, height, width = self._camera.crop
        self._blind = _shows_nothing(picture[top : top + height, left : left + width], self._camera)
        if content is PixelContent.depth:
            self._blind = not (pixels > 0).any()

    def _judge(self, state: Mapping[str, Pixels], now: float) -> str:
        if self._seen is None:
            return f"has sent nothing yet on {self.topic}"
        if (age := now - self._stamp) > self._oldest:
            return f"is silent: its newest picture is too old ({age:.3f} s, on {self.topic})"
        if self._blind:
            return "shows nothing: its pictures are black, or without a distance"
        still = self._stamp - self._changed
        if still > self._longest and (not self._drawn or self._moved(state)):
            return f"is frozen: it sends the very same picture ({still:.1f} s)"
        return ""

    def _moved(self, state: Mapping[str, Pixels]) -> bool:
        return any(abs(state[name] - place).max() > _MOVED for name, place in self._places.items())

    def _check_angle(self, height: int) -> None:
        """Compare the angle of view with the trained one, where `camera_info` tells it."""
        trained = self._camera.field_of_view
        if not self._focal > 0 or not trained > 0:
            return
        angle = 2 * math.atan(height / (2 * self._focal))
        if abs(angle - trained) > _ANGLE_TOLERANCE * trained:
            raise SpecMismatchError(
                f"it sees {angle:.3f} rad from the upper to the lower edge, the policy was trained "
                f"with {trained:.3f} rad: another lens, or another part of the picture"
            )


def _shows_nothing(part: Pixels, camera: CameraInput) -> bool:
    if camera.channels == ["body"]:
        return not part.any()
    return camera.channels != ["depth"] and float(part.mean()) < _BLACK_BELOW
