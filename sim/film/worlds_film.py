"""Films and contact sheets of any worlds that can be drawn.

    recording = record_worlds(player, worlds=4, seconds=5)
    render_film(recording, Path("worlds.mp4"), title="reach")
    contact_sheet(recording, Path("worlds.png"), title="reach")

The work is done by a child process (`python -m sim.film.worlds_film job.json`).
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from sim.film.process import Stage, draw, draw_job, film_size, sheet_size
from sim.film.recording import WorldRecording

_MODULE = "sim.film.worlds_film"


def render_film(
    recording: WorldRecording,
    path: Path,
    *,
    width: int = 854,
    height: int = 480,
    fps: int = 30,
    title: str = "",
) -> Path:
    """Film all worlds side by side, h264 in mp4, in real time.

    Args:
        recording: What happened.
        path: The mp4 to write; an older one is replaced when the new one is complete.
        width: Of the film [pixels], even.
        height: Of the film [pixels], even.
        fps: Pictures per second.
        title: Written in the upper right corner.

    Returns:
        `path`.

    Raises:
        RenderUnavailableError: No GL backend works here.
        MissingExtraError: MuJoCo or PyAV is not installed.
        StorageError: The file cannot be written.
    """
    times = np.arange(max(1, round(recording.duration * fps))) / fps
    job = {**film_size(width, height, fps), "title": title, "times": times.tolist()}
    return draw(_MODULE, recording, path, job)


def contact_sheet(
    recording: WorldRecording,
    path: Path,
    *,
    columns: int = 5,
    cell_width: int = 320,
    cell_height: int = 200,
    title: str = "",
) -> Path:
    """Draw one row of pictures per world, from its start to its end, as a PNG.

    Args:
        recording: What happened.
        path: The PNG to write.
        columns: Pictures per world, the same time apart, the last before the end.
        cell_width: Of one picture [pixels].
        cell_height: Of one picture [pixels].
        title: Written in the upper right corner.

    Returns:
        `path`.

    Raises:
        RenderUnavailableError: No GL backend works here.
        MissingExtraError: MuJoCo or PyAV is not installed.
        StorageError: The file cannot be written.
    """
    size = sheet_size(columns, recording.worlds, cell_width, cell_height)
    # The last moment may be the first of another episode.
    times = np.linspace(0.0, recording.duration - recording.control_dt, columns)
    return draw(_MODULE, recording, path, {**size, "title": title, "times": times.tolist()})


def _open(job: dict[str, Any]) -> Stage:
    from sim.film.stage import WorldStage  # opens GL: in the child only

    recording = WorldRecording.load(Path(job["recording"]))
    return WorldStage(recording, job["width"], job["height"], title=job["title"])


if __name__ == "__main__":
    sys.exit(draw_job(Path(sys.argv[1]), _open))
