"""Ends of the processes of a deployment: signals, and a terminal that is gone.

Ctrl-C, Ctrl-Z and a closed terminal reach every process of the terminal. The process of the
operator answers them (`TerminalSignals`); the others hear only its SIGTERM (`StopRequest`). If it
dies without a word (SIGKILL, no memory left), they notice that they are orphans: the robot stops
softly, and everything ends.
"""

import functools
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from robot_rl.core.errors import RobotRLError

EXIT_REFUSED = 2
_HURRY_SECONDS = 0.5
"""Signals that come together are one: a terminal that closes sends several."""
_Options = TypeVar("_Options")
_More = ParamSpec("_More")


def orphaned() -> bool:
    """True if the process that started this one is gone. Real-time: never blocks."""
    parent = multiprocessing.parent_process()
    return parent is not None and os.getppid() != parent.pid


def tell(line: str) -> bool:
    """Print a line; returns whether anybody can read it.

    A terminal that was closed, or a pipe that nobody reads, must not keep a process from its work.
    """
    try:
        print(line, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


class TerminalSignals:
    """Wishes of the person at the terminal: the first Ctrl-C stops softly, a second one at once.

    SIGTERM and a closed terminal are a Ctrl-C too, as is a line that nobody can read any more.
    """

    def __init__(self) -> None:
        self._stops = False
        self._heard = -float("inf")
        self.left = False
        """The robot shall be stopped. Look at it: an interrupt may be lost on its way up, in code
        of libraries that ends while it passes."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._hear)
        signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # nobody stands by a robot in his sleep

    def tell(self, line: str) -> None:
        """Print a line."""
        self.left = not tell(line) or self.left

    def interrupt_if_asked(self) -> None:
        """Interrupt somebody who waits, where the person has left."""
        if self.left:
            raise KeyboardInterrupt

    def stopping(self) -> None:
        """From now on the first Ctrl-C interrupts nothing: what it asks for is under way."""
        self._stops = True

    def _hear(self, number: int, frame: Any) -> None:
        del frame
        now, first = time.monotonic(), not self.left
        again = number == signal.SIGINT and now > self._heard + _HURRY_SECONDS
        self.left, self._heard = True, now
        if (first and not self._stops) or (not first and again):
            raise KeyboardInterrupt


class StopRequest:
    """Request to this process to end."""

    def __init__(self) -> None:
        self._careful = False
        self.asked = False
        """SIGTERM has come."""
        signal.signal(signal.SIGTERM, self._hear)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTSTP):
            signal.signal(number, signal.SIG_IGN)

    @property
    def orphaned(self) -> bool:
        """The process that started this one is gone."""
        return orphaned()

    def __call__(self) -> bool:
        """True if it is time to end. Real-time: never blocks."""
        return self.asked or self.orphaned

    def with_care(self) -> "StopRequest":
        """From now on SIGTERM only asks; before, and when it comes twice, it interrupts."""
        self._careful = True
        return self

    def interrupt_if_asked(self) -> None:
        """Interrupt somebody who waits, where it is time to end."""
        if self():
            raise KeyboardInterrupt

    def _hear(self, number: int, frame: Any) -> None:
        del number, frame
        if self.asked or not self._careful:
            raise KeyboardInterrupt
        self.asked = True


def as_process(
    work: Callable[Concatenate[_Options, StopRequest, _More], None],
) -> Callable[Concatenate[_Options, _More], None]:
    """Make the main function of a process: it ends in order, or in a sentence and exit code 2."""

    @functools.wraps(work)
    def run(options: _Options, *more: _More.args, **named: _More.kwargs) -> None:
        stop = StopRequest()
        try:
            work(options, stop, *more, **named)
        except KeyboardInterrupt:
            return
        except RobotRLError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            raise SystemExit(EXIT_REFUSED) from None

    return run
