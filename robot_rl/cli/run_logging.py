"""Messages of every package during a run: to the terminal, and into the run's folder."""

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator

from robot_rl.training.reporting.console import Console
from robot_rl.training.runs.run_folder import RunFolder

_logger = logging.getLogger(__name__)


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
