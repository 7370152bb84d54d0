"""Pictures and films of recorded flights: MuJoCo draws, PyAV encodes.

    render_flight(recording, Path("flight.mp4"))
    contact_sheet(recording, Path("flight.png"))

The work is done by a child process (`python -m sim.flights.video job.json`): a process can have one
GL backend only, chosen before MuJoCo is imported, and a broken graphics driver may take its process
with it. EGL is tried first, then OSMesa.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import ConfigError, MissingExtraError, RobotRLError, StorageError
from robot_rl.core.process import clean_environ
from sim.flights.recording import FlightRecording, replacing

_EXIT_NO_GL, _EXIT_STORAGE = 3, 4
_TIME_LIMIT = 600.0  # [s]


class RenderUnavailableError(RobotRLError):
    """This machine cannot draw: it has no working EGL or OSMesa, or they are switched off."""


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
    if width % 2 or height % 2 or min(width, height) < 16 or fps < 1:
        raise ConfigError(
            f"a film needs an even width and height of 16 or more and fps >= 1; "
            f"got {width} x {height} at {fps}"
        )
    duration = recording.control_dt * recording.steps
    times = np.arange(max(1, round(duration * fps))) / fps
    return _draw(
        recording,
        path,
        {
            "kind": "film", "width": width, "height": height, "fps": fps, "title": title,
            "near": near, "times": times.tolist(),
        },
    )  # fmt: skip


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
    if not times or min(cell_width, cell_height) < 16:
        raise ConfigError(
            f"a contact sheet needs times and cells of 16 pixels or more; "
            f"got {len(times)} times and {cell_width} x {cell_height}"
        )
    width, height = cell_width * len(times), cell_height * recording.flights
    return _draw(
        recording,
        path,
        {
            "kind": "sheet", "width": width, "height": height, "title": title, "near": near,
            "times": list(times),
        },
    )  # fmt: skip


def _draw(recording: FlightRecording, path: Path, job: dict[str, Any]) -> Path:
    """Hand a job to a child process, one GL backend after the other."""
    for package in ("mujoco", "av"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "sim", "drawing flights")
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="flight-") as folder:
        flown, plan = Path(folder) / "recording.npz", Path(folder) / "job.json"
        recording.save(flown)
        for backend in _backends():
            try:
                with replacing(path.absolute()) as unfinished:
                    target = {"recording": str(flown), "path": str(unfinished)}
                    plan.write_text(json.dumps({**job, **target}))
                    _run_child(backend, plan)
                return path
            except RenderUnavailableError as error:
                faults.append(f"{backend}: {error}")
    raise RenderUnavailableError(
        f"no picture of the flight: no GL backend works here ({'; '.join(faults)}); "
        "on Debian or Ubuntu install libegl1 libegl-mesa0 libgl1-mesa-dri, or libosmesa6"
    )


def _backends() -> list[str]:
    """What to try, the user's `MUJOCO_GL` first."""
    asked = os.environ.get("MUJOCO_GL", "").lower().strip()
    if asked in ("disable", "disabled", "off", "false", "0"):
        raise RenderUnavailableError(
            f"no picture of the flight: MUJOCO_GL={asked} switches drawing off"
        )
    known = ["egl", "osmesa"]
    return [asked, *[b for b in known if b != asked]] if asked in known else known


def _run_child(backend: str, plan: Path) -> None:
    """Run a job.

    Raises:
        RenderUnavailableError: The backend does not work; another may.
        StorageError: Another backend would not help.
    """
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    environ = clean_environ({"MUJOCO_GL": backend, "PYTHONPATH": path})
    environ.pop("PYOPENGL_PLATFORM", None)  # left behind by another backend in this process
    try:
        done = subprocess.run(
            [sys.executable, "-m", "sim.flights.video", str(plan)],
            env=environ, cwd=plan.parent, capture_output=True, text=True, timeout=_TIME_LIMIT,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise RenderUnavailableError(f"not ready after {_TIME_LIMIT:.0f} s") from error
    if done.returncode == 0:
        return
    lines = done.stderr.strip().splitlines()
    reason = lines[-1] if lines else f"ended with code {done.returncode}"
    if done.returncode == _EXIT_STORAGE:
        raise StorageError(reason)
    raise RenderUnavailableError(reason)


def _child(plan: Path) -> int:
    """Do a job in this process; its exit code. The reason of a failure goes to stderr."""
    job = json.loads(plan.read_text())
    recording = FlightRecording.load(Path(job["recording"]))
    try:
        from sim.flights.scene import FlightScene

        scene = FlightScene(
            recording, job["width"], job["height"], title=job["title"], near=job["near"]
        )
    except Exception as error:  # noqa: BLE001 - GL libraries raise anything; all mean "cannot"
        sys.stderr.write(f"{type(error).__name__}: {' '.join(str(error).split())}\n")
        return _EXIT_NO_GL
    try:
        if job["kind"] == "film":
            _write_film(Path(job["path"]), map(scene.frame, job["times"]), job)
        else:
            _write_png(Path(job["path"]), scene.sheet(job["times"]))
    except OSError as error:
        sys.stderr.write(f"cannot write {job['path']}: {error.strerror or error}\n")
        return _EXIT_STORAGE
    finally:
        scene.close()
    return 0


def _write_film(path: Path, frames: Iterable[NDArray[np.uint8]], job: dict[str, Any]) -> None:
    import av

    with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as film:
        # crf 20 is visually clean; yuv420p is what every player and browser shows.
        stream = film.add_stream(
            "libx264", rate=Fraction(job["fps"]), options={"crf": "20", "preset": "veryfast"}
        )
        stream.width, stream.height, stream.pix_fmt = job["width"], job["height"], "yuv420p"
        for pixels in frames:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
            film.mux(stream.encode(frame))
        film.mux(stream.encode())


def _write_png(path: Path, pixels: NDArray[np.uint8]) -> None:
    import av

    encoder = av.CodecContext.create("png", "w")
    assert isinstance(encoder, av.VideoCodecContext)
    encoder.height, encoder.width = pixels.shape[:2]
    encoder.pix_fmt, encoder.time_base = "rgb24", Fraction(1, 1)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
    packets = [*encoder.encode(frame), *encoder.encode(None)]
    path.write_bytes(b"".join(bytes(packet) for packet in packets))


if __name__ == "__main__":
    sys.exit(_child(Path(sys.argv[1])))
