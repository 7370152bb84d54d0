"""Writers of data sets that are killed: anywhere, and where it hurts most."""

import multiprocessing
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import robot_rl.datasets.writer as writing
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.writer import DatasetWriter

fork = multiprocessing.get_context("fork")
Tell = Callable[[int], None]


def write_and_kill(
    folder: Path, make: Callable[[int], Episode], first: int, *, after: float | None
) -> int:
    """Let a child add episodes from `first` on; kill it so long [s] after its first report.

    None kills it when the files of an episode are written, and not yet the manifest's line that
    counts them. Returns the last episode that it reported as added; `first - 1` for none.
    """
    reports, child_end = fork.Pipe(duplex=False)
    child = fork.Process(
        target=write_for_ever, args=(folder, make, first, child_end.send, after is None)
    )
    child.start()
    child_end.close()
    assert reports.poll(20)
    child.join(timeout=after or 0.0)
    child.kill()
    child.join()
    last = first - 1
    while reports.poll():
        try:
            last = reports.recv()
        except EOFError:
            break
    return last


def write_for_ever(
    folder: Path, make: Callable[[int], Episode], first: int, tell: Tell, stop: bool = False
) -> None:
    """Add episodes and tell their numbers; `stop` before the manifest knows the first."""
    if stop:  # in this child only

        def wait(*_: Any) -> None:
            tell(first - 1)
            threading.Event().wait()

        writing.append = wait
    with DatasetWriter.append_to(folder) as writer:
        number = first
        while True:
            writer.add(make(number))
            tell(number)
            number += 1
