"""Warp, imported in one place and started quietly when first needed, and programs as graphs."""

# Warp types its functions loosely:
# pyright: reportAttributeAccessIssue=false

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch

from robot_rl.core.errors import MissingExtraError
from robot_rl.core.process import nothing_collected

try:
    import warp as wp
except ImportError as error:
    raise MissingExtraError("warp-lang", "sim", "the multirotor engine") from error

__all__ = ["Graphs", "start", "wp"]


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


class Graphs:
    """Programs of kernels that are captured as graphs; a graph holds addresses.

    No array is replaced after it was captured, or `forget` is called.
    """

    def __init__(self, device: torch.device) -> None:
        """Nothing is captured yet."""
        # A device without a number is the present one, which Warp takes for none.
        self.device: Any = wp.device_from_torch(torch.empty(0, device=device).device)
        """Warp's name of the device."""
        self._graphs: dict[str, Any] = {}

    def run(self, name: str, program: Callable[[], None]) -> None:
        """Run a program: at first as it is, which compiles its kernels, then as a graph."""
        with self.in_order():
            if name not in self._graphs:
                program()
                self._graphs[name] = None
                return
            if self._graphs[name] is None:
                # Records and runs nothing; torch's default stream of a GPU cannot be recorded.
                cuda = self.device.is_cuda
                aside = wp.ScopedStream(wp.Stream(self.device)) if cuda else nullcontext()
                with nothing_collected(), aside, wp.ScopedCapture(device=self.device) as capture:
                    program()
                self._graphs[name] = capture.graph
            wp.capture_launch(self._graphs[name])

    def forget(self) -> None:
        """Drop the graphs: an array that they know was replaced."""
        self._graphs.clear()

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """Work on the device, on a GPU in the stream that torch works in."""
        with wp.ScopedDevice(self.device):
            if not self.device.is_cuda:
                yield
                return
            stream = torch.cuda.current_stream(wp.device_to_torch(self.device))
            with wp.ScopedStream(wp.stream_from_torch(stream)):
                yield
