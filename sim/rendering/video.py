"""Videos and contact sheets of recordings: MuJoCo draws, PyAV encodes, in a child process.

    render_video(recording, Path("reach.mp4"), title="reach")
    contact_sheet(recording, Path("reach.png"), title="reach")

A process can have one GL backend only, chosen before MuJoCo is imported, and a broken graphics
driver may take its process with it. So a child draws, `python -m sim.rendering.video job.json`;
EGL is tried first, then OSMesa.
"""

import importlib.util
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from fractions import Fraction
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import ConfigError, MissingExtraError, RobotRLError, StorageError
from robot_rl.core.process import clean_environ
from sim.rendering.files import replacing
from sim.rendering.flight_recording import FlightRecording

if TYPE_CHECKING:  # MuJoCo is imported by the child
    from sim.rendering.canvas import Stage
    from sim.rendering.recording import EnvRecording

_MODULE = "sim.rendering.video"
_EXIT_NO_GL, _EXIT_STORAGE = 3, 4
_TIME_LIMIT = 600.0  # [s]
_FRAMES_PER_PROCESS, _MOST_PROCESSES = 30, 8
"""Opening a GL context takes as long as some tens of frames."""
_OVERSAMPLING = 1.5
"""Of a video, see `Canvas`. Contact sheets are few pictures: they are multisampled."""
_AHEAD = 32
"""Pictures of a process that may wait in memory to be encoded."""

Picture = NDArray[np.uint8]
"""(height, width, 3)."""


class RenderUnavailableError(RobotRLError):
    """This machine cannot draw: it has no working EGL or OSMesa, or they are switched off."""


class DrawingError(RobotRLError):
    """Drawing has a defect. A sentence: nothing that a video shows may be lost for it."""


def render_video(
    recording: "EnvRecording | FlightRecording",
    path: Path,
    *,
    width: int = 854,
    height: int = 480,
    fps: int = 30,
    title: str = "",
    near: float = 0.1,
) -> Path:
    """Draw all of a recording side by side, h264 in mp4, in real time.

    Args:
        width: Of the video [pixels], even.
        height: Of the video [pixels], even.
        near: Distance from a flight's goal that counts as reached [m].

    Raises:
        ConfigError: No such video can be encoded.
        RenderUnavailableError: No GL backend works here.
        MissingExtraError: MuJoCo or PyAV is not installed.
        DrawingError: Drawing has a defect.
        StorageError: The file cannot be written.
    """
    if width % 2 or height % 2 or min(width, height) < 16 or fps < 1:
        raise ConfigError(
            f"a video needs an even width and height of 16 or more and fps >= 1; "
            f"got {width} x {height} at {fps}"
        )
    times = np.arange(max(1, round(recording.duration * fps))) / fps
    job = {"kind": "video", "width": width, "height": height, "fps": fps, "title": title}
    look = {"near": near, "oversampling": _OVERSAMPLING}
    return _draw(recording, path, {**job, **look, "times": times.tolist()})


def contact_sheet(
    recording: "EnvRecording | FlightRecording",
    path: Path,
    *,
    times: Sequence[float] | None = None,
    cell_width: int = 320,
    cell_height: int = 200,
    title: str = "",
    near: float = 0.1,
) -> Path:
    """Draw one row of pictures per env or flight, one column per time, as a PNG.

    Args:
        times: Since the start [s]; None takes five, the same time apart, the last before the end.
        cell_width: Of one picture [pixels].
        near: Distance from a flight's goal that counts as reached [m].

    Raises:
        ConfigError: The sheet would be empty.
        RenderUnavailableError, MissingExtraError, DrawingError, StorageError: As `render_video`.
    """
    if times is None:  # the last moment may be the first of another episode
        last = recording.duration - recording.control_dt
        times = [float(time) for time in np.linspace(0.0, last, 5)]
    if not times or min(cell_width, cell_height) < 16:
        raise ConfigError(
            f"a contact sheet needs times and cells of 16 pixels or more; "
            f"got {len(times)} times and {cell_width} x {cell_height}"
        )
    size = {"width": cell_width * len(times), "height": cell_height * recording.tiles}
    job = {"kind": "sheet", **size, "title": title, "near": near, "oversampling": 1.0}
    return _draw(recording, path, {**job, "times": list(times)})


def write_video(
    path: Path, frames: Iterable[Picture], *, width: int, height: int, fps: int
) -> None:
    """Encode pictures, whose width and height are even, as h264 in mp4."""
    import av  # in the child only

    with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as video:
        # crf 20 is visually clean; yuv420p is what every player and browser shows.
        stream = video.add_stream(
            "libx264", rate=Fraction(fps), options={"crf": "20", "preset": "veryfast"}
        )
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for pixels in frames:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
            video.mux(stream.encode(frame))
        video.mux(stream.encode())


def write_png(path: Path, pixels: Picture) -> None:
    """Encode one picture."""
    import av

    encoder = av.CodecContext.create("png", "w")
    assert isinstance(encoder, av.VideoCodecContext)
    encoder.height, encoder.width = pixels.shape[:2]
    encoder.pix_fmt, encoder.time_base = "rgb24", Fraction(1, 1)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
    packets = [*encoder.encode(frame), *encoder.encode(None)]
    path.write_bytes(b"".join(bytes(packet) for packet in packets))


def _draw(recording: "EnvRecording | FlightRecording", path: Path, job: dict[str, Any]) -> Path:
    """Hand a recording and a job to a child process, one GL backend after the other."""
    for package in ("mujoco", "av"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "sim", "drawing")
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="video-") as folder:
        saved, plan = Path(folder) / "recording.npz", Path(folder) / "job.json"
        recording.save(saved, compressed=False)  # read once, a moment later
        flight = isinstance(recording, FlightRecording)
        for backend in gl_backends():
            try:
                with replacing(path.absolute()) as unfinished:
                    target = {"recording": str(saved), "path": str(unfinished), "flight": flight}
                    plan.write_text(json.dumps({**job, **target}))
                    _run_child(backend, plan)
                return path
            except RenderUnavailableError as error:
                faults.append(f"{backend}: {error}")
    raise RenderUnavailableError(
        f"no picture: no GL backend works here ({'; '.join(faults)}); "
        "on Debian or Ubuntu install libegl1 libegl-mesa0 libgl1-mesa-dri, or libosmesa6"
    )


def gl_backends() -> list[str]:
    """Backends to try, the user's `MUJOCO_GL` first if it is one of them."""
    asked = os.environ.get("MUJOCO_GL", "").lower().strip()
    if asked in ("disable", "disabled", "off", "false", "0"):
        raise RenderUnavailableError(f"no picture: MUJOCO_GL={asked} switches drawing off")
    known = ["egl", "osmesa"]
    return [asked, *[b for b in known if b != asked]] if asked in known else known


def _run_child(backend: str, plan: Path) -> None:
    """Run a job.

    Raises:
        RenderUnavailableError: The backend does not work; another may.
        DrawingError, StorageError: Another backend would not help.
    """
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    environ = clean_environ({"MUJOCO_GL": backend, "PYTHONPATH": path})
    environ.pop("PYOPENGL_PLATFORM", None)  # left behind by another backend in this process
    try:
        done = subprocess.run(
            [sys.executable, "-m", _MODULE, str(plan)],
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
    if done.returncode == _EXIT_NO_GL or done.returncode < 0:  # a driver may crash, too
        raise RenderUnavailableError(reason)
    raise DrawingError(f"drawing failed, which is a defect of robot_rl: {reason}")


def _draw_job(plan: Path) -> int:
    """Do a job in this process; its exit code. The reason of a failure goes to stderr."""
    try:
        # The parent does without PyAV and GL; importing MuJoCo opens the library of the backend.
        import av  # noqa: F401

        from sim.rendering.canvas import NoGLError
    except Exception as error:  # noqa: BLE001 - GL libraries raise anything
        return _say_no_gl(error)
    job = _job(plan)
    try:
        if job["kind"] == "video":
            size = {name: job[name] for name in ("width", "height", "fps")}
            with _frames(plan, job["times"]) as frames:
                write_video(Path(job["path"]), frames, **size)
        else:
            write_png(Path(job["path"]), _stage(plan).sheet(job["times"]))
    except (NoGLError, BrokenProcessPool) as error:  # a driver may crash
        return _say_no_gl(error)
    except OSError as error:
        sys.stderr.write(f"cannot write {job['path']}: {error.strerror or error}\n")
        return _EXIT_STORAGE
    finally:
        if _stage.cache_info().currsize:
            _stage(plan).close()
    return 0


@contextmanager
def _frames(plan: Path, times: Sequence[float]) -> Iterator[Iterator[Picture]]:
    """Pictures of a video, drawn by as many processes as help: software GL uses one core each."""
    draw = partial(_frame, plan)
    processes = min(os.cpu_count() or 1, _MOST_PROCESSES, len(times) // _FRAMES_PER_PROCESS)
    if processes < 2:
        yield map(draw, times)
        return
    # Forked, they need not import everything again; nothing here has opened GL or threads yet.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    with ProcessPoolExecutor(processes, context) as pool:
        ahead = _AHEAD * processes
        parts = (times[first : first + ahead] for first in range(0, len(times), ahead))
        yield chain.from_iterable(pool.map(draw, part, chunksize=4) for part in parts)


def _frame(plan: Path, time: float) -> Picture:
    """A picture of a video: means over what was drawn of each of its pixels."""
    import av  # in the child only

    job, drawn = _job(plan), _stage(plan).frame(time)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(drawn), format="rgb24")
    frame = frame.reformat(job["width"], job["height"], "rgb24", interpolation="AREA")
    return np.asarray(frame.to_ndarray(), dtype=np.uint8)


@cache
def _job(plan: Path) -> dict[str, Any]:
    return json.loads(plan.read_text())


@cache
def _stage(plan: Path) -> "Stage":
    """Open GL for what is drawn, once in a process."""
    job = _job(plan)
    saved, size = Path(job["recording"]), (job["width"], job["height"])
    look = {name: job[name] for name in ("title", "oversampling")}
    if job["flight"]:
        from sim.rendering.flight_stage import FlightStage

        flights = FlightRecording.load(saved)
        return FlightStage(flights, *size, **look, near=job["near"])
    from sim.rendering.recording import EnvRecording
    from sim.rendering.stage import EnvStage

    return EnvStage(EnvRecording.load(saved), *size, **look)


def _say_no_gl(error: Exception) -> int:
    sys.stderr.write(f"{type(error).__name__}: {' '.join(str(error).split())}\n")
    return _EXIT_NO_GL


if __name__ == "__main__":
    sys.exit(_draw_job(Path(sys.argv[1])))
