"""Runs what draws in a child process.

A process can have one GL backend only, chosen before MuJoCo is imported, and a broken graphics
driver may take its process with it. EGL is tried first, then OSMesa. A module that draws is run as
`python -m <module> job.json` and ends with `draw_job`.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robot_rl.core.errors import ConfigError, MissingExtraError, RobotRLError, StorageError
from robot_rl.core.process import clean_environ
from sim.film.files import replacing

_EXIT_NO_GL, _EXIT_STORAGE = 3, 4
_TIME_LIMIT = 600.0  # [s]


class RenderUnavailableError(RobotRLError):
    """This machine cannot draw: it has no working EGL or OSMesa, or they are switched off."""


class DrawingError(RobotRLError):
    """What draws has a defect. A sentence: nothing that a film shows may be lost for it."""


class Recording(Protocol):
    """What is handed to the child in a file."""

    def save(self, path: Path) -> None:
        """Write it."""
        ...


class Stage(Protocol):
    """What draws in the child."""

    def frame(self, time: float) -> NDArray[np.uint8]:
        """Everything at a time [s], (height, width, 3); may be overwritten by the next call."""
        ...

    def sheet(self, times: Sequence[float]) -> NDArray[np.uint8]:
        """A row for each thing, a column for each time [s], (height, width, 3)."""
        ...

    def close(self) -> None:
        """Release GL."""
        ...


def film_size(width: int, height: int, fps: int) -> dict[str, Any]:
    """A film's entries of a job.

    Raises:
        ConfigError: No such film can be encoded.
    """
    if width % 2 or height % 2 or min(width, height) < 16 or fps < 1:
        raise ConfigError(
            f"a film needs an even width and height of 16 or more and fps >= 1; "
            f"got {width} x {height} at {fps}"
        )
    return {"kind": "film", "width": width, "height": height, "fps": fps}


def sheet_size(columns: int, rows: int, cell_width: int, cell_height: int) -> dict[str, Any]:
    """A contact sheet's entries of a job.

    Raises:
        ConfigError: It would be empty.
    """
    if columns < 1 or min(cell_width, cell_height) < 16:
        raise ConfigError(
            f"a contact sheet needs times and cells of 16 pixels or more; "
            f"got {columns} times and {cell_width} x {cell_height}"
        )
    return {"kind": "sheet", "width": cell_width * columns, "height": cell_height * rows}


def draw(module: str, recording: Recording, path: Path, job: dict[str, Any]) -> Path:
    """Hand a recording and a job to a child process, one GL backend after the other.

    Args:
        module: Run as the child.
        recording: What happened.
        path: Picture or film to write; replaced when the new one is complete.
        job: What to draw: `film_size` or `sheet_size`, `times`, and what the module wants.

    Returns:
        `path`.

    Raises:
        RenderUnavailableError: No GL backend works here.
        MissingExtraError: MuJoCo or PyAV is not installed.
        DrawingError: What draws has a defect.
        StorageError: The file cannot be written.
    """
    for package in ("mujoco", "av"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "sim", "drawing")
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="film-") as folder:
        saved, plan = Path(folder) / "recording.npz", Path(folder) / "job.json"
        recording.save(saved)
        for backend in _backends():
            try:
                with replacing(path.absolute()) as unfinished:
                    target = {"recording": str(saved), "path": str(unfinished)}
                    plan.write_text(json.dumps({**job, **target}))
                    _run_child(module, backend, plan)
                return path
            except RenderUnavailableError as error:
                faults.append(f"{backend}: {error}")
    raise RenderUnavailableError(
        f"no picture: no GL backend works here ({'; '.join(faults)}); "
        "on Debian or Ubuntu install libegl1 libegl-mesa0 libgl1-mesa-dri, or libosmesa6"
    )


def draw_job(plan: Path, open_stage: Callable[[dict[str, Any]], Stage]) -> int:
    """Do a job in this process; its exit code. The reason of a failure goes to stderr.

    Args:
        plan: The job's file.
        open_stage: Makes what draws; raises `NoGLError` where this backend cannot.
    """
    try:
        # The parent does without PyAV and GL; importing MuJoCo opens the library of the backend.
        from sim.film.canvas import NoGLError
        from sim.film.encode import write_film, write_png
    except Exception as error:  # noqa: BLE001 - GL libraries raise anything
        return _say_no_gl(error)
    job = json.loads(plan.read_text())
    try:
        stage = open_stage(job)
    except NoGLError as error:
        return _say_no_gl(error)
    try:
        if job["kind"] == "film":
            size = {name: job[name] for name in ("width", "height", "fps")}
            write_film(Path(job["path"]), map(stage.frame, job["times"]), **size)
        else:
            write_png(Path(job["path"]), stage.sheet(job["times"]))
    except OSError as error:
        sys.stderr.write(f"cannot write {job['path']}: {error.strerror or error}\n")
        return _EXIT_STORAGE
    finally:
        stage.close()
    return 0


def _say_no_gl(error: Exception) -> int:
    sys.stderr.write(f"{type(error).__name__}: {' '.join(str(error).split())}\n")
    return _EXIT_NO_GL


def _backends() -> list[str]:
    """What to try, the user's `MUJOCO_GL` first."""
    asked = os.environ.get("MUJOCO_GL", "").lower().strip()
    if asked in ("disable", "disabled", "off", "false", "0"):
        raise RenderUnavailableError(f"no picture: MUJOCO_GL={asked} switches drawing off")
    known = ["egl", "osmesa"]
    return [asked, *[b for b in known if b != asked]] if asked in known else known


def _run_child(module: str, backend: str, plan: Path) -> None:
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
            [sys.executable, "-m", module, str(plan)],
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
