"""Where a camera looks while worlds are filmed: at the whole robot, calmly."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sim.film.recording import WorldRecording
from sim.viewing.framing import bounding_box, marks_of, robot_geoms, view_radius
from sim.viewing.goals import Mark
from sim.viewing.worlds import Model

_CALM = 0.15
"""Deviation of the Gaussian that smooths the camera's way [s]."""
_ROOM = 1.6
"""Radii of a moving robot that are seen at least: it shall be seen to move."""


@dataclass(frozen=True)
class CameraWay:
    """What one world asks of the camera at every moment."""

    centre: NDArray[np.float32]
    """Where it looks, (T + 1, 3) [m]."""
    radius: NDArray[np.float32]
    """What it must show around it, (T + 1,) [m]."""
    marks: list[list[Mark]]
    """Goals at every moment."""


def camera_way(recording: WorldRecording, world: int, model: Model) -> CameraWay:
    """Follow a robot that moves; look at all that a robot on a fixed base reaches."""
    data = recording.data_for(model)
    geoms = robot_geoms(model, recording.base)
    boxes: list[tuple[NDArray, NDArray]] = []
    marks: list[list[Mark]] = []
    for moment in range(recording.pose.shape[1]):
        recording.put(world, moment, model, data)
        boxes.append(bounding_box(model, data, geoms))
        goal = {name: values[world, moment] for name, values in recording.goal.items()}
        marks.append(marks_of(goal, data, recording.base, boxes[-1]))
    low, high = (np.stack(corners) for corners in zip(*boxes, strict=True))
    count = len(marks)
    if not recording.floats:
        lowest, highest = low.min(axis=0), high.max(axis=0)
        centre = np.tile(0.5 * (lowest + highest), (count, 1))
        radius = np.full(count, 0.5 * float((highest - lowest).max()))
        return CameraWay(centre.astype(np.float32), radius.astype(np.float32), marks)
    middle = 0.5 * (low + high)
    size = float(np.median(0.5 * (high - low).max(axis=1)))
    centre = np.zeros((count, 3), np.float32)
    radius = np.zeros(count, np.float32)
    for part in _episodes(recording.seconds[world]):
        deviation = _CALM / recording.control_dt
        centre[part] = smooth(middle[None, part], deviation)[0]
        seen = [
            view_radius(centre[t], size, marks[t], room=_ROOM) for t in range(part.start, part.stop)
        ]
        radius[part] = smooth(np.array(seen)[None, :, None], deviation)[0, :, 0]
    lag = np.linalg.norm(middle - centre, axis=1) + size  # a calm camera must not lose the robot
    return CameraWay(centre, np.maximum(radius, lag), marks)


def _episodes(seconds: NDArray) -> list[slice]:
    """Moments of each episode: a camera must not glide from one to the next."""
    starts = [0, *(np.flatnonzero(np.diff(seconds) < 0) + 1), len(seconds)]
    return [slice(int(start), int(stop)) for start, stop in pairwise(starts)]


def distance_to_show(radius: float, field_of_view: float, *, margin: float = 1.1) -> float:
    """Distance from which a ball fills the height of the picture but for a margin.

    Args:
        radius: Of the ball [m].
        field_of_view: Vertical [rad].
        margin: Height of the picture in diameters.
    """
    return margin * radius / math.sin(field_of_view / 2)


def smooth(values: NDArray, deviation: float) -> NDArray[np.float32]:
    """Gaussian mean along time of (K, T, D), ends repeated; `deviation` in steps."""
    reach = math.ceil(3 * deviation)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / max(deviation, 1e-9)) ** 2)
    padded = np.pad(values, ((0, 0), (reach, reach), (0, 0)), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, len(weights), axis=1)
    return (windows @ (weights / weights.sum())).astype(np.float32)
