"""Pauses of the machine itself, beside which a robot's loop is judged.

On a virtual machine the host takes processors away, and a kernel without PREEMPT_RT keeps one for
itself: whatever a program does, it does not run then.
"""

import multiprocessing
import os
import time
from multiprocessing.sharedctypes import Synchronized
from types import TracebackType
from typing import Any

_PRIORITY = 99
"""Of SCHED_FIFO: before everything that a deployment runs."""
_PERIOD = 0.002
"""Between two looks [s]."""


class MachinePauses:
    """Longest time for which a thread of the highest priority, which only sleeps, did not run.

    One such thread for each processor; use it as a context.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._longest: list[Synchronized[float]] = []
        self._watchers: list[Any] = []
        for processor in sorted(os.sched_getaffinity(0)):
            longest = context.Value("d", 0.0)
            self._longest.append(longest)
            self._watchers.append(
                context.Process(target=_watch, args=(processor, longest), daemon=True)
            )

    def __enter__(self) -> "MachinePauses":
        for watcher in self._watchers:
            watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        for watcher in self._watchers:
            watcher.kill()
            watcher.join()

    def take(self) -> float:
        """Longest pause since the last call, of any processor [s]."""
        found = 0.0
        for longest in self._longest:
            found, longest.value = max(found, longest.value), 0.0
        return found


def _watch(processor: int, longest: "Synchronized[float]") -> None:
    parent = os.getppid()
    os.sched_setaffinity(0, [processor])
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    due = time.monotonic()
    while os.getppid() == parent:
        due += _PERIOD
        time.sleep(max(0.0, due - time.monotonic()))
        now = time.monotonic()
        longest.value = max(longest.value, now - due)
        due = max(due, now - _PERIOD)
