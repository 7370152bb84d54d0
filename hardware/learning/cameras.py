"""Cameras of a learning environment: judged pictures as stacks of the last frames.

    source: newest pictures ---> judged ---> observation groups `image/<camera>`

A stack moves on by one frame in every control period, also where no new picture has come: then the
last one comes again. At an episode's start all frames are the picture of its start. So the newest
frame of every period says all that the policy saw.
"""

import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from hardware.control.pictures import JudgedCamera, Pixels, TakenPicture
from policies.cameras import CameraInput, FrameStacks
from robot_rl.core.env import GroupSpec
from robot_rl.core.errors import RobotRLError
from robot_rl.core.observation import IMAGE_PREFIX


class PictureSource(Protocol):
    """Newest pictures, wherever they come from."""

    @property
    def troubles(self) -> Mapping[str, str]:
        """Reasons why the newest picture of a camera is of no use, as of the last `newest`."""
        ...

    def newest(self) -> Mapping[str, TakenPicture]:
        """The newest picture of each camera that has sent one, by name. Never waits for one."""
        ...

    def close(self) -> None:
        """Let go of the cameras; allowed more than once."""
        ...


class EpisodeCameras:
    """The cameras that a policy sees."""

    def __init__(
        self, cameras: Mapping[str, CameraInput], source: PictureSource, control_dt: float, *,
        drawn: bool = False, patience: float = 1.0,
    ) -> None:  # fmt: skip
        """Begin with black frames.

        Args:
            cameras: By name, as the policy sees them.
            source: Where their pictures come from; closed with these.
            control_dt: Period of the policy [s].
            drawn: The pictures are drawn: as of `JudgedCamera`, like `patience`.
        """
        self._source = source
        self._judged = {
            name: JudgedCamera(camera, control_dt, drawn=drawn, patience=patience)
            for name, camera in cameras.items()
        }
        self._black = {
            name: np.zeros((*one.picture, len(one.channels)), np.uint8)
            for name, one in cameras.items()
        }
        self._frames = FrameStacks(cameras, 1)
        self.groups = {
            IMAGE_PREFIX + name: GroupSpec(shape=one.shape, dtype=torch.uint8, stack=one.stack)
            for name, one in cameras.items()
        }
        """Observation groups."""
        self.fault = ""
        """Reasons why the newest pictures cannot be used, by camera; empty where all can."""

    @property
    def stacks(self) -> Mapping[str, NDArray[np.uint8]]:
        """Last frames by observation group, (1, S, H, W, C); overwritten by the next period."""
        return self._frames.stacks

    @property
    def stamps(self) -> dict[str, float]:
        """Time at which the newest frame of each group was taken, clock of the loop [s]."""
        return {IMAGE_PREFIX + name: one.stamp for name, one in self._judged.items()}

    def look(self, state: Mapping[str, Pixels], now: float, since: float = -math.inf) -> None:
        """Take what has come, and judge it: says `fault`.

        Args:
            state: Measured state of the robot, (1, width) each.
            now: Clock of the loop [s].
            since: Pictures must be of this time or later [s].
        """
        newest = self._source.newest()
        faults: list[str] = []
        for name, judged in self._judged.items():
            if trouble := self._source.troubles.get(name, ""):
                fault = f"cannot be used: {trouble}"
            else:
                fault = _judge(judged, newest.get(name), state, now)
            if not fault and judged.stamp < since:
                fault = "has sent no picture since the robot is where it begins"
            if fault:
                faults.append(f"camera '{name}' {fault}")
        self.fault = "; ".join(faults)

    def move_on(self, *, starting: bool = False) -> None:
        """Move the stacks on by the newest frames; all frames are the newest with `starting`."""
        found = {
            name: (self._black[name] if one.picture is None else one.picture)[None]
            for name, one in self._judged.items()
        }
        self._frames.update(found, np.array([starting]))

    def close(self) -> None:
        """Let go of the cameras; allowed more than once."""
        self._source.close()


def _judge(
    judged: JudgedCamera, newest: TakenPicture | None, state: Mapping[str, Pixels], now: float
) -> str:
    """Take a picture, if it is a new one; the reason why the camera's last one is of no use."""
    try:
        if newest is not None and newest.stamp > judged.stamp:
            judged.take(*newest, state)
    except RobotRLError as error:
        judged.forget()
        return f"cannot be used: {error}"
    return judged.fault(state, now)
