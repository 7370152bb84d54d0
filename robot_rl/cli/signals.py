"""Ctrl-C and SIGTERM: a run saves and ends."""

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Protocol

from robot_rl.training.ranks import Ranks

_logger = logging.getLogger(__name__)


class Stoppable(Protocol):
    """A loop that can be asked to come to an end."""

    def stop(self) -> None:
        """Save and return after the present step; may be called from a signal."""
        ...


@contextlib.contextmanager
def stop_on_signals(trainer: Stoppable, ranks: Ranks) -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM ask the trainer to save and return; a second one aborts.

    As soon as one rank has ended, torchrun sends SIGTERM to all others, and SIGKILL 30 s later. So
    with several ranks SIGTERM is ignored from the end of the training to that of the process: it
    would cut off whoever is about to say which rank died, and to mark it in the run.

    Yields:
        The signals that came.
    """
    caught: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)
        trainer.stop()
        # Not through the console: the signal may have interrupted it in the middle of a line.
        with contextlib.suppress(OSError):  # the signal may have ended the reader of stderr too
            os.write(2, b"\nstopping after this step, then saving; press Ctrl-C again to abort\n")

    if threading.current_thread() is not threading.main_thread():
        yield caught  # only the main thread may listen
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        if ranks.count > 1:
            before[signal.SIGTERM] = signal.SIG_IGN
        for number, handler in before.items():
            signal.signal(number, handler)
