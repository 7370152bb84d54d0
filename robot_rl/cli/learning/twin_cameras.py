"""Cameras of a simulated robot that is learned on: drawn in its process, or in one beside it.

    robot process --- channel `scene`: positions ---> drawing --- channel `pictures` ---> actor

In real time drawing, which takes milliseconds to tens of them, must not hold up the loop, which
ticks every few: another process draws, at the cameras' period, as fast as the machine lets it. A
picture that comes late is old, and delays nobody.
"""

from collections.abc import Callable, Mapping

import numpy as np

from hardware.control.clock import MonotonicClock
from hardware.control.ipc import ArrayPublisher, ArraySubscriber
from hardware.control.pictures import TakenPicture
from hardware.control.process import RobotChannels
from robot_rl.cli.simulated_cameras import CONTENT, as_sent
from sim.cameras.config import CameraConfig, ImageRenderer
from sim.twin import Twin
from sim.twin_cameras import TwinCameras, scene_fields, scene_widths

_STAMP = "stamp/"


class DrawnPictures:
    """A `PictureSource` that draws a simulated robot of this process when it is asked."""

    def __init__(
        self, twin: Twin, cameras: Mapping[str, CameraConfig], renderer: ImageRenderer
    ) -> None:
        """Draw nothing yet: a renderer is made for the first picture, which takes seconds.

        Args:
            twin: The robot, with these cameras in its model.
        """
        self._twin, self._cameras, self._renderer = twin, dict(cameras), renderer
        self._drawing: TwinCameras | None = None
        self._taken: dict[str, TakenPicture] = {}
        self.troubles: dict[str, str] = {}
        """None: what is drawn can be used."""

    def newest(self) -> Mapping[str, TakenPicture]:
        """Pictures of now, of the cameras whose period is over."""
        stamp = self._twin.stamp
        due = [name for name in self._cameras if self._is_due(name, stamp)]
        if due:
            if self._drawing is None:
                self._drawing = TwinCameras(self._twin.simulation, self._cameras, self._renderer)
            drawn = self._drawing.draw(scene_fields(self._twin.simulation))
            self._taken |= {name: _taken(drawn[name], self._cameras[name], stamp) for name in due}
        return self._taken

    def close(self) -> None:
        """Release the renderer."""
        if self._drawing is not None:
            self._drawing.close()
        self._drawing = None

    def _is_due(self, name: str, stamp: float) -> bool:
        if name not in self._taken:
            return True
        periods = (stamp - self._taken[name].stamp) / self._twin.control_dt
        return periods > self._cameras[name].period - 0.5


class ReceivedPictures:
    """A `PictureSource` of what another process draws."""

    def __init__(self, channels: str, cameras: Mapping[str, CameraConfig]) -> None:
        """Wait for the pictures of the robot process with this name of channels."""
        self._cameras = dict(cameras)
        self._channel = ArraySubscriber(RobotChannels(channels).pictures, _widths(cameras))
        self._taken: dict[str, TakenPicture] = {}
        self.troubles: dict[str, str] = {}
        """None: what is drawn can be used."""

    def newest(self) -> Mapping[str, TakenPicture]:
        """Pictures that have come."""
        if (found := self._channel.newer()) is not None:
            fields, _ = found
            for name, camera in self._cameras.items():
                pixels = fields[name].reshape(_shape(camera)).astype(np.uint8)
                stamp = float(fields[_STAMP + name][0, 0])
                self._taken[name] = _taken(pixels, camera, stamp)
        return self._taken

    def close(self) -> None:
        """Let go of the channel; allowed more than once."""
        self._channel.close()


class ShownCamera:
    """A `FrameSource` of what another process draws for a policy, for the console."""

    drawn = True

    def __init__(self, name: str, channels: str, cameras: Mapping[str, CameraConfig]) -> None:
        """Wait for pictures.

        Args:
            name: Of the camera that is shown.
            channels: Name of the robot's.
            cameras: All that are drawn, by name.
        """
        self.name = name
        self._camera = cameras[name]
        self._channel = ArraySubscriber(RobotChannels(channels).pictures, _widths(cameras))
        self._newest: tuple[np.ndarray, float] | None = None

    def newest(self) -> tuple[np.ndarray, float] | None:
        """RGB, (H, W, 3) uint8, and when it was taken [s]; None before any."""
        if (found := self._channel.newer()) is not None:
            fields, _ = found
            pixels = fields[self.name].reshape(_shape(self._camera)).astype(np.uint8)
            colours = np.broadcast_to(pixels, (*pixels.shape[:2], 3))  # grey three times
            self._newest = np.ascontiguousarray(colours), float(fields[_STAMP + self.name][0, 0])
        return self._newest

    def close(self) -> None:
        """Let go of the channel; allowed more than once."""
        self._channel.close()


def draw_pictures(
    twin: Twin, cameras: Mapping[str, CameraConfig], renderer: ImageRenderer, channels: str,
    until: Callable[[], bool],
) -> None:  # fmt: skip
    """Draw what the robot process tells of until asked to end; may die at any time.

    Args:
        twin: Built as the robot of that process, with these cameras in its model; never moves.
        channels: Name of that robot's channels.
        until: True to end; asked once per picture.

    Raises:
        ChannelBusyError: Another process draws for this robot.
    """
    names, simulation = RobotChannels(channels), twin.simulation
    drawing = TwinCameras(simulation, cameras, renderer)
    drawing.draw(scene_fields(simulation))  # compiles; nobody hears of a camera before
    clock = MonotonicClock()
    scene = ArraySubscriber(names.scene, scene_widths(simulation))
    sender = ArrayPublisher(names.pictures, _widths(cameras))
    fastest = min(camera.period for camera in cameras.values())
    fields: dict[str, np.ndarray] = {}
    count, due = 0, clock.now()
    try:
        while not until():
            if (found := scene.newer()) is not None:
                drawn, stamp = drawing.draw(found[0]), np.array([[found[1]]])
                for name, camera in cameras.items():
                    if name not in fields or count % max(1, round(camera.period / fastest)) == 0:
                        fields |= {name: drawn[name], _STAMP + name: stamp}
                sender.send(fields, found[1])
                count += 1
            due = max(due + fastest * twin.control_dt, clock.now())
            clock.sleep_until(due)
    finally:
        scene.close()
        sender.close()
        drawing.close()


def _taken(picture: np.ndarray, camera: CameraConfig, stamp: float) -> TakenPicture:
    return TakenPicture(as_sent(picture, camera), CONTENT[camera.kind], stamp)


def _shape(camera: CameraConfig) -> tuple[int, int, int]:
    """Of a whole picture, whatever part of it a policy sees."""
    return (camera.height, camera.width, camera.channels)


def _widths(cameras: Mapping[str, CameraConfig]) -> dict[str, int]:
    """Fields of the channel `pictures`."""
    pixels = {name: int(np.prod(_shape(camera))) for name, camera in cameras.items()}
    return pixels | dict.fromkeys([_STAMP + name for name in cameras], 1)
