"""Pictures for a policy, and the reasons for which one may not be used.

    image_raw, camera_info ---> CameraInputs ---> `PolicyRunner.act(pictures=...)`
                           ---> TopicPictures ---> a learning environment

Each is judged before every decision (`hardware/control/pictures.py`): if one cannot be trusted, the
policy decides nothing, the robot's side notices that no command comes, and pauses.
"""

import math
import time
from collections.abc import Mapping

from hardware.control.pictures import JudgedCamera, Pixels, TakenPicture
from hardware.ros.compat import message
from hardware.ros.image_topic import COMPRESSED, ImageTopic
from hardware.ros.session import RosSession
from policies.cameras import CameraInput
from robot_rl.core.errors import RobotRLError, SpecMismatchError, StaleStateError

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
        if faults := self.faults:
            raise StaleStateError("; ".join(f"camera '{one}' {why}" for one, why in faults.items()))
        return {name: picture[None] for name, picture in found.items() if picture is not None}

    @property
    def faults(self) -> dict[str, str]:
        """Reasons why the picture of a camera could not be used, as of the last `pictures`."""
        return {one.name: one.fault for one in self._cameras if one.fault}


class TopicPictures:
    """Pictures of ROS 2 cameras for a learning environment: a `PictureSource`."""

    def __init__(
        self, session: RosSession, cameras: Mapping[str, CameraInput], topics: Mapping[str, str]
    ) -> None:  # fmt: skip
        """Subscribe.

        Args:
            session: Belongs to this from now on, and is closed with it.
            cameras: By name, as the policy sees them.
            topics: Name of each camera -> topic of its pictures.
        """
        self._session = session
        self._cameras = {
            name: _CameraTopics(session, name, camera, topics[name])
            for name, camera in cameras.items()
        }
        self.troubles: dict[str, str] = {}
        """Reasons why the newest picture of a camera is of no use, as of the last `newest`."""

    def newest(self) -> dict[str, TakenPicture]:
        """The newest picture of each camera that has sent one, by name. Never waits for one."""
        found: dict[str, TakenPicture] = {}
        self.troubles = {}
        for name, camera in self._cameras.items():
            camera.poll()
            try:
                if (taken := camera.newest(-math.inf)) is not None:
                    found[name] = taken
            except RobotRLError as error:
                self.troubles[name] = str(error)
            if camera.trouble:
                self.troubles[name] = camera.trouble
        return found

    def close(self) -> None:
        """End the node; allowed more than once."""
        self._session.close()


class _CameraTopics:
    """Pictures and description of one camera."""

    def __init__(
        self, session: RosSession, name: str, camera: CameraInput, topic: str
    ) -> None:  # fmt: skip
        self._pictures = ImageTopic(session, name, topic, depth=camera.channels == ["depth"])
        self.topic = self._pictures.topic
        self._trained = camera.field_of_view
        place = topic.removesuffix(COMPRESSED).rpartition("/")[0]
        self._described = session.newest(
            f"{place}/camera_info", message("sensor_msgs", "CameraInfo")
        )
        self._focal = 0.0  # focal length in pixels of the pictures; 0 while nobody says it

    @property
    def trouble(self) -> str:
        """As of `ImageTopic`."""
        return self._pictures.trouble

    def poll(self) -> None:
        """Take the newest messages; waits for nothing."""
        self._pictures.poll()
        if (told := self._described.take()) is not None:
            self._focal = float(told.k[4]) / max(1, int(told.binning_y))

    def newest(self, after: float) -> TakenPicture | None:
        """The newest picture, if it is of a later time than `after` [s].

        Raises:
            RobotRLError: It cannot be used.
        """
        newest = self._pictures.newest_pixels()
        if newest is None or newest[2] <= after:
            return None
        self._check_angle(len(newest[0]))
        return TakenPicture(*newest)

    def _check_angle(self, height: int) -> None:
        """Compare the angle of view with the trained one, where `camera_info` tells it."""
        trained = self._trained
        if not self._focal > 0 or not trained > 0:
            return
        angle = 2 * math.atan(height / (2 * self._focal))
        if abs(angle - trained) > _ANGLE_TOLERANCE * trained:
            raise SpecMismatchError(
                f"it sees {angle:.3f} rad from the upper to the lower edge, the policy was trained "
                f"with {trained:.3f} rad: another lens, or another part of the picture"
            )


class _Camera:
    """One camera's topics, and what is known of its last pictures."""

    def __init__(
        self, session: RosSession, name: str, camera: CameraInput, topic: str, control_dt: float,
        drawn: bool, patience: float,
    ) -> None:  # fmt: skip
        self.name = name
        self._topics = _CameraTopics(session, name, camera, topic)
        self.topic = self._topics.topic
        self._judged = JudgedCamera(
            camera, control_dt, drawn=drawn, patience=patience, where=f" on {self.topic}"
        )
        self.fault = ""
        """Reason why the newest picture cannot be used; empty where it can."""

    def poll(self) -> None:
        self._topics.poll()

    def look(self, state: Mapping[str, Pixels], now: float) -> Pixels | None:
        """The newest picture; None, and a fault, where there is none that can be used."""
        judged = self._judged
        try:
            if (taken := self._topics.newest(judged.stamp)) is not None:
                judged.take(*taken, state)
            trouble = self._topics.trouble
            self.fault = f"cannot be used: {trouble}" if trouble else judged.fault(state, now)
        except RobotRLError as error:
            judged.forget()
            self.fault = f"cannot be used: {error}"
        return None if self.fault else judged.picture
