"""The teleoperator in a thread of its own: 50 setpoints a second beside the web server."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from hardware.teleop.intervention import SegmentKind

_PERIOD = 0.02
_logger = logging.getLogger(__name__)


class Teleoperator(Protocol):
    """A person's stick becomes setpoints of the robot's loop. `now` is the loop's clock [s]."""

    def set_intent(self, intent: Mapping[str, Any] | None, now: float) -> None:
        """Take the state of the stick (axes, clutch, gripper, speed, lock, frame).

        None where the person is gone.
        """
        ...

    def take_over(self, now: float) -> None:
        """Ask for the robot; `status` says what became of it."""
        ...

    def give_back(self, now: float) -> None:
        """Ask that the policy goes on."""
        ...

    def rewind(self, seconds: float, now: float) -> None:
        """Go back along the robot's own path."""
        ...

    def mark(self, kind: SegmentKind, now: float) -> None:
        """Say what the person does from now on: a part of their intervention."""
        ...

    def forget_path(self) -> None:
        """Begin the path that `rewind` goes back along anew: the robot was put elsewhere."""
        ...

    def tick(self, now: float) -> None:
        """Send the setpoint of now."""
        ...

    def status(self, now: float) -> Mapping[str, Any]:
        """State for the page.

        `leads`, `refusal`, `asking`, `handover` in [0, 1], `rewinding`, `segment`, `intervention`.
        """
        ...

    def close(self) -> None:
        """Let go of the robot's channels."""
        ...


class TeleopThread:
    """A `Teleoperator` that ticks by itself; any thread may call it."""

    def __init__(
        self, teleoperator: Teleoperator, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin to tick."""
        self._teleoperator, self._clock = teleoperator, clock
        self._lock, self._ends = threading.Lock(), threading.Event()
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name="teleoperation", daemon=True)
        self._thread.start()

    def set_intent(self, intent: Mapping[str, Any] | None, now: float) -> None:
        """Take the state of the stick."""
        with self._lock:
            self._teleoperator.set_intent(intent, now)

    def take_over(self, now: float) -> None:
        """Ask for the robot."""
        with self._lock:
            self._teleoperator.take_over(now)

    def give_back(self, now: float) -> None:
        """Ask that the policy goes on."""
        with self._lock:
            self._teleoperator.give_back(now)

    def rewind(self, seconds: float, now: float) -> None:
        """Go back along the robot's own path."""
        with self._lock:
            self._teleoperator.rewind(seconds, now)

    def mark(self, kind: SegmentKind, now: float) -> None:
        """Say what the person does from now on."""
        with self._lock:
            self._teleoperator.mark(kind, now)

    def forget_path(self) -> None:
        """Begin the path that `rewind` goes back along anew."""
        with self._lock:
            self._teleoperator.forget_path()

    def tick(self, now: float) -> None:
        """Send the setpoint of now."""
        with self._lock:
            self._teleoperator.tick(now)

    def status(self, now: float) -> Mapping[str, Any]:
        """State for the page; its `refusal` says why no setpoint is sent, where ticks fail."""
        with self._lock:
            status = self._teleoperator.status(now)
        return {**status, "refusal": self._trouble} if self._trouble else status

    def close(self) -> None:
        """End the thread and let go of the robot; allowed more than once."""
        if self._ends.is_set():
            return
        self._ends.set()
        self._thread.join()
        self._teleoperator.close()

    def _run(self) -> None:
        while not self._ends.wait(_PERIOD):
            try:
                self.tick(self._clock())
            except Exception as error:
                # Without a setpoint the robot holds by its lease; the next sample may be sound.
                if not self._trouble:
                    _logger.exception("the teleoperator failed; the robot holds by its lease")
                self._trouble = f"teleoperation fails: {error}"
            else:
                self._trouble = ""
