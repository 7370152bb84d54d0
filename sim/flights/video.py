"""Pictures and films of recorded flights: MuJoCo draws, PyAV encodes.

    render_flight(recording, Path("flight.mp4"))
    contact_sheet(recording, Path("flight.png"))

The work is done by a child process (`python -m sim.flights.video job.json`); why, says
`sim.film.process`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sim.film.process import Stage, draw, draw_job, film_size, sheet_size
from sim.flights.recording import FlightRecording

_MODULE = "sim.flights.video"


def render_flight(
    recording: FlightRecording,
    path: Path,
    *,
    width: int = 854,
    height: int = 480,
    fps: int = 30,
    title: str = "",
    near: float = 0.1,
) -> Path:
    """Film all flights of a recording side by side, h264 in mp4, in real time.

    Args:
        recording: What happened.
        path: The mp4 to write; an older one is replaced when the new one is complete.
        width: Of the film [pixels], even.
        height: Of the film [pixels], even.
        fps: Pictures per second.
        title: Written in the upper right corner.
        near: Distance from the goal that counts as reached [m].

    Returns:
        `path`.

    Raises:
        RenderUnavailableError: No GL backend works here.
        MissingExtraError: MuJoCo or PyAV is not installed.
        StorageError: The file cannot be written.
    """
    size = film_size(width, height, fps)
    duration = recording.control_dt * recording.steps
    times = np.arange(max(1, round(duration * fps))) / fps
    job = {**size, "title": title, "near": near, "times": times.tolist()}
    return draw(_MODULE, recording, path, job)


def contact_sheet(
    recording: FlightRecording,
    path: Path,
    *,
    times: Sequence[float] = (0.0, 0.3, 0.7, 1.2, 3.0),
    cell_width: int = 320,
    cell_height: int = 200,
    title: str = "",
    near: float = 0.1,
) -> Path:
    """Draw one row of pictures per flight, one column per time, as a PNG.

    Args:
        recording: What happened.
        path: The PNG to write.
        times: Since the flights' start [s].
        cell_width: Of one picture [pixels].
        cell_height: Of one picture [pixels].
        title: Written in the upper right corner.
        near: Distance from the goal that counts as reached [m].

    Returns:
        `path`.

    Raises:
        RenderUnavailableError: No GL backend works here.
        MissingExtraError: MuJoCo or PyAV is not installed.
        StorageError: The file cannot be written.
    """
    size = sheet_size(len(times), recording.flights, cell_width, cell_height)
    job = {**size, "title": title, "near": near, "times": list(times)}
    return draw(_MODULE, recording, path, job)


def _open(job: dict[str, Any]) -> Stage:
    from sim.flights.scene import FlightScene  # opens GL: in the child only

    recording = FlightRecording.load(Path(job["recording"]))
    return FlightScene(recording, job["width"], job["height"], title=job["title"], near=job["near"])


if __name__ == "__main__":
    sys.exit(draw_job(Path(sys.argv[1]), _open))
