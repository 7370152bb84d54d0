"""The process that draws what the cameras of a simulated robot see, and sends it over ROS 2.

    robot process --- channel `scene`: positions ---> this process --- image_raw ---> policy

It draws at the cameras' period, as fast as the machine lets it: a picture that comes late is old,
and delays nobody.
"""

import math
import os
from collections.abc import Mapping

import numpy as np

from hardware.control.clock import Clock, MonotonicClock
from hardware.control.ipc import ArraySubscriber
from hardware.control.realtime import freeze_existing_objects
from hardware.ros.image_publisher import ImagePublisher
from hardware.ros.message_parts import clock_offset
from hardware.ros.session import RosSession
from robot_rl.cli.deployment.options import DeploymentParts
from robot_rl.cli.deployment.signals import StopRequest, as_process
from robot_rl.cli.simulated_cameras import CONTENT, as_sent
from sim.cameras.config import CameraConfig
from sim.twin_cameras import TwinCameras, scene_fields, scene_widths

_NICENESS = 5
"""Of the process: a picture waits for the robot, never the other way round."""


@as_process
def run_cameras(parts: DeploymentParts, stop: StopRequest) -> None:
    """Draw and send until asked to end; may die at any time: then the policy gets no pictures."""
    import torch  # and the simulator: not for the processes beside this one

    from robot_rl.cli.deployment.plan import Deployment

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    os.nice(_NICENESS)
    plan = Deployment(parts.options)
    cameras = {name: plan.simulated_cameras[name] for name in parts.drawn_cameras}
    simulation = plan.make_twin(cameras).simulation
    drawing = TwinCameras(simulation, cameras, plan.config.env.renderer)
    drawing.draw(scene_fields(simulation))  # compiles; nobody hears of a camera before
    clock = MonotonicClock()
    stop.with_care()
    session = RosSession("cameras", namespace=parts.namespace, domain=parts.domain)
    scene = ArraySubscriber(parts.channels.scene, scene_widths(simulation))
    sender = _Sender(session, cameras, parts.cameras, parts.control_dt)
    freeze_existing_objects()
    try:
        _draw_until(stop, clock, scene, drawing, sender)
    finally:
        session.close()
        drawing.close()


def _draw_until(
    stop: StopRequest, clock: Clock, scene: ArraySubscriber, drawing: TwinCameras,
    sender: "_Sender",
) -> None:  # fmt: skip
    due = clock.now()
    while not stop():
        found = scene.newer()
        if found is not None:
            fields, stamp = found
            sender.send(drawing.draw(fields), stamp, clock)
        due = max(due + sender.period, clock.now())
        clock.sleep_until(due)


class _Sender:
    """The cameras' topics; a camera that is slower than others leaves pictures out."""

    def __init__(
        self, session: RosSession, cameras: Mapping[str, CameraConfig], topics: Mapping[str, str],
        control_dt: float,
    ) -> None:  # fmt: skip
        self._session, self._cameras = session, cameras
        self._publishers = {
            name: ImagePublisher(
                session, topics[name], content=CONTENT[camera.kind],
                field_of_view=camera.field_of_view,
                frame=f"{session.frame_prefix}camera_{name}_optical_frame",
            )
            for name, camera in cameras.items()
        }  # fmt: skip
        step = math.gcd(*(camera.period for camera in cameras.values()))
        self.period = step * control_dt
        """Between two pictures [s]."""
        self._every = {name: camera.period // step for name, camera in cameras.items()}
        self._count = 0

    def send(self, pictures: Mapping[str, np.ndarray], stamp: float, clock: Clock) -> None:
        """Send pictures of a time of the loop's clock [s]."""
        taken = round(stamp * 1e9) + clock_offset(self._session.now, clock.now)
        for name, picture in pictures.items():
            if self._count % self._every[name] == 0:
                self._publishers[name].publish(as_sent(picture, self._cameras[name]), taken)
        self._count += 1
