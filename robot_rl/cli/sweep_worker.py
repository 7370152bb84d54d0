"""Worker that a launcher runs wherever it places a job: the command, in a process of its own.

A process of its own, because what kills one job (memory, a driver) must not take with it the worker
that runs the next. Needs the standard library only: nothing else is imported beside the launcher.
"""

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WARNING_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals by which queues say that a job's time is nearly over, or that it is moved."""

_LATER_OVERRIDES = {"once=false": "once=true"}
"""Overrides of a job's first session alone -> those of later sessions."""


@dataclass(frozen=True, kw_only=True)
class Worker:
    """Runs a job by its number; travels to other processes and machines."""

    commands: Sequence[Sequence[str]]
    """One per job."""
    labels: Sequence[str]
    """Labels in messages, such as `[2/3] seed=1`."""
    logs: Sequence[str]
    """Files that take what they say."""
    folder: str
    """Working directory."""

    def __call__(self, config: Any) -> int:
        """Run the job that `config.job` names; returns its exit code."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever launches sees to it
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # jobs would inherit it
        number = int(config.job)
        label, log = self.labels[number], self.logs[number]
        print(f"{label}: begins", flush=True)
        command = self.commands[number]
        with Path(log).open("ab") as output:
            if output.tell():  # its queue took it back: it goes on with the run that it has begun
                command = [_LATER_OVERRIDES.get(word, word) for word in command]
            code = _wait(command, self.folder, output)
        how = "ended" if code == 0 else f"failed with exit code {code}, see {log}"
        print(f"{label}: {how}", flush=True)
        return code


def _wait(command: Sequence[str], folder: str, output: Any) -> int:
    """Run a command; whoever stops the worker lets it save first, once."""
    with _heard() as warned:
        # A queue warns every process of a job. The job inherits that these are blocked, and hears
        # of it from here alone.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, warned.listeners)
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches it once: a second signal would abort it
            )
            warned.job = process
            if warned.number is not None:  # before it began
                process.terminate()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if warned.number is not None:
        warned.listeners[warned.number](warned.number, None)  # may queue the job again, and exit
    return code


@dataclass(kw_only=True)
class _Warned:
    """Warnings of a queue."""

    listeners: dict[int, Callable[[int, Any], Any]]
    """Previous handlers, by signal."""
    number: int | None = None
    """The first signal that came."""
    job: "subprocess.Popen[bytes] | None" = None
    """Is asked to save when it comes."""

    def hear(self, number: int, frame: Any) -> None:
        """Take a signal; later ones say nothing new."""
        if self.number is None:
            self.number = number
            if self.job is not None:
                self.job.terminate()


@contextmanager
def _heard() -> Iterator[_Warned]:
    """Warnings are taken note of meanwhile, where somebody listened to them."""
    listeners: dict[int, Callable[[int, Any], Any]] = {}
    if threading.current_thread() is threading.main_thread():
        found = {number: signal.getsignal(number) for number in _WARNING_SIGNALS}
        listeners = {number: one for number, one in found.items() if callable(one)}
    warned = _Warned(listeners=listeners)
    for number in listeners:
        signal.signal(number, warned.hear)
    try:
        yield warned
    finally:
        for number, listener in listeners.items():
            signal.signal(number, listener)
