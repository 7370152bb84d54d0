"""Signals that reach a session, and the messages of every package."""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Protocol

from robot_rl.training.ranks import Ranks
from robot_rl.training.reporting.console import Console
from robot_rl.training.runs.run_folder import RunFolder

_logger = logging.getLogger(__name__)


class Stoppable(Protocol):
    """A loop that can be asked to end."""

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


@contextlib.contextmanager
def log_to_stdout(name: str) -> Iterator[None]:
    """Show what a logger tells meanwhile, on the terminal: before a run has a folder for it."""
    logger, handler = logging.getLogger(name), logging.StreamHandler(sys.stdout)
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@contextlib.contextmanager
def show_and_keep_logs(run: RunFolder, console: Console) -> Iterator[None]:
    """Messages of all packages: warnings to the terminal, everything to log.txt.

    A thread of a library that dies (TensorBoard's, on a full disk) is a message too.
    """
    root, level = logging.getLogger(), logging.getLogger().level
    handlers = [run.log_handler(), console.log_handler()]
    logging.raiseExceptions = False  # a full disk must not print a traceback for every message
    root.setLevel(logging.INFO)
    thread_hook = threading.excepthook
    threading.excepthook = lambda died: _logger.info("a thread died: %s", died.exc_value)
    for handler in handlers:
        root.addHandler(handler)
    try:
        yield
    finally:
        threading.excepthook = thread_hook
        root.setLevel(level)
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()
