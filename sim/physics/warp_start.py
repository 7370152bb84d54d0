"""Warp, imported in one place and started quietly when an engine first needs it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from robot_rl.core.errors import MissingExtraError

try:
    import warp as wp
except ImportError as error:
    raise MissingExtraError("warp-lang", "sim", "the multirotor engine") from error

__all__ = ["start", "wp"]


@cache
def start() -> None:
    """Initialise Warp without its banner; a second call does nothing."""
    wp.config.log_level = wp.LOG_WARNING
    with _silenced_stderr():
        wp.init()


@contextmanager
def _silenced_stderr() -> Iterator[None]:
    """Silence Warp's warning about a missing GPU where torch sees none either."""
    if torch.cuda.is_available():
        yield
        return
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
