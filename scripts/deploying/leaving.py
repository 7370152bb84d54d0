"""How a process of a deployment ends: when it is asked to, and when the person's process is gone.

Ctrl-C, Ctrl-Z and a closed terminal reach every process of the terminal. The process of the person
answers them; the others hear only its SIGTERM. If it dies without a word (SIGKILL, no memory left),
they notice that they are orphans: the robot stops softly, and everything ends.
"""

import functools
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from robot_rl.core.errors import RobotRLError

EXIT_REFUSED = 2
_Options = TypeVar("_Options")
_More = ParamSpec("_More")


def orphaned() -> bool:
    """Whether the process that started this one is gone. Real-time: never blocks."""
    parent = multiprocessing.parent_process()
    return parent is not None and os.getppid() != parent.pid


class Leaving:
    """Whether this process shall end."""

    def __init__(self) -> None:
        """Hear SIGTERM, and nothing else."""
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
        """Whether to end. Real-time: never blocks."""
        return self.asked or self.orphaned

    def with_care(self) -> "Leaving":
        """From now on SIGTERM only asks; before, and when it comes twice, it interrupts."""
        self._careful = True
        return self

    def give_up(self) -> None:
        """Interrupt somebody who waits, where it is time to end."""
        if self():
            raise KeyboardInterrupt

    def _hear(self, number: int, frame: Any) -> None:
        del number, frame
        if self.asked or not self._careful:
            raise KeyboardInterrupt
        self.asked = True


def as_process(
    work: Callable[Concatenate[_Options, Leaving, _More], None],
) -> Callable[Concatenate[_Options, _More], None]:
    """Make the main function of a process: it ends in order, or in a sentence and exit code 2."""

    @functools.wraps(work)
    def run(options: _Options, *more: _More.args, **named: _More.kwargs) -> None:
        leaving = Leaving()
        try:
            work(options, leaving, *more, **named)
        except KeyboardInterrupt:
            return
        except RobotRLError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            raise SystemExit(EXIT_REFUSED) from None

    return run
