"""Drawing of a robot in its measured state as a camera of the console; a child process draws.

MuJoCo needs a GL backend that is chosen before it is imported, and software GL takes a core for a
tenth of a second per picture: neither belongs into the process that answers a stick. The child
reads the robot's state from its channel itself; pictures come back through a pipe.
"""

import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from hardware.control.ipc import ArraySubscriber
from hardware.control.process import RobotChannels

_PERIOD = 0.125
"""Between two pictures [s]."""
_NICENESS = 5
"""Of the child: a picture waits for the robot, never the other way round."""
_BACKENDS = ("egl", "osmesa")
_READY_SECONDS = 60.0
_CHOSEN_BEFORE = "PYOPENGL_PLATFORM"
"""Left in the environment by another backend."""


class RobotCamera:
    """A `FrameSource` that draws a robot from the states that it measures."""

    name = "robot"
    drawn = True

    def __init__(self, robot: Any, channels: str, say: Callable[[str], None]) -> None:
        """Begin to draw, in the background.

        Args:
            robot: Config of a robot with joints or rotors.
            channels: Name of its channels.
            say: Is told in a sentence if nothing can be drawn.
        """
        self._robot, self._channels, self._say = robot, channels, say
        self._newest: tuple[np.ndarray, float] | None = None
        self._child: Any = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="robot camera", daemon=True)
        self._thread.start()

    def newest(self) -> tuple[np.ndarray, float] | None:
        """The last picture, (H, W, 3), and the time of the state that it shows [s]."""
        return self._newest

    def close(self) -> None:
        """End the child."""
        self._ends.set()
        if self._child is not None:
            self._child.kill()
        self._thread.join()

    def _run(self) -> None:
        faults: list[str] = []
        for backend in _BACKENDS:
            if self._ends.is_set() or self._drawn_by(backend, faults):
                return
        self._say(f"the robot is not drawn: {'; '.join(faults)}")

    def _drawn_by(self, backend: str, faults: list[str]) -> bool:
        """Take pictures until the end; False where this backend draws nothing here."""
        ours, theirs = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("spawn")
        child = context.Process(
            target=_draw_for_ever,
            args=(self._robot, self._channels, theirs),
            daemon=True,
        )
        with _environment(MUJOCO_GL=backend):  # read when MuJoCo is imported
            child.start()
        self._child = child
        theirs.close()
        with contextlib.suppress(EOFError, OSError):
            if not ours.poll(_READY_SECONDS):
                faults.append(f"{backend}: not ready after {_READY_SECONDS:.0f} s")
                child.kill()
                return False
            while not self._ends.is_set():
                if not ours.poll(0.2):
                    continue
                found = ours.recv()
                if isinstance(found, str):
                    faults.append(f"{backend}: {found}")
                    return False
                self._newest = found
        if not self._ends.is_set():
            faults.append(f"{backend}: the drawing process ended")
        return self._ends.is_set()


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Environment that a child is started with."""
    before = {name: os.environ.get(name) for name in (*values, _CHOSEN_BEFORE)}
    os.environ.pop(_CHOSEN_BEFORE, None)
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _draw_for_ever(robot: Any, channels: str, pipe: Connection) -> None:
    """Draw in a process of its own until nobody reads."""
    os.nice(_NICENESS)
    try:
        from sim.physics.mujoco_model import load_model
        from sim.rendering.flight_scene import flight_scene
        from sim.rendering.stage import RobotPictures

        model = (
            flight_scene(robot.model.rotor_position).tree.compile()
            if robot.spec.rotors
            else load_model(
                robot.model,
                robot.spec,
                physics_dt=robot.physics_dt,
                menagerie=robot.menagerie,
                gripper=robot.gripper_model,
                passive_joints=robot.passive_joints,
            )
        )
        pictures = RobotPictures(model, robot.spec)
    except Exception as error:  # noqa: BLE001 - GL libraries raise anything
        pipe.send(" ".join(str(error).split())[:200] or type(error).__name__)
        return
    states = ArraySubscriber(RobotChannels(channels).state, robot.spec.state_widths)
    with contextlib.suppress(OSError, KeyboardInterrupt):
        while True:
            began = time.monotonic()
            if (newer := states.newer()) is not None:
                fields, stamp = newer
                pipe.send((pictures.draw(fields), stamp))
            time.sleep(max(0.01, _PERIOD - (time.monotonic() - began)))
