"""What a launcher runs wherever it places a job: the command, in a process of its own.

A process of its own, because what kills one job (memory, a driver) must not take with it the worker
that runs the next. Needs the standard library only: nothing else is imported beside the launcher.
"""

import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Worker:
    """Runs a job by its number; travels to other processes and machines."""

    commands: Sequence[Sequence[str]]
    """One per job."""
    labels: Sequence[str]
    """What is said of them, such as `[2/3] seed=1`."""
    logs: Sequence[str]
    """Files that take what they say."""
    folder: str
    """Where they run."""

    def __call__(self, config: Any) -> int:
        """Run the job that `config.job` names; returns its exit code."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever launches sees to it
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # jobs would inherit it
        number = int(config.job)
        label, log = self.labels[number], self.logs[number]
        print(f"{label}: begins", flush=True)
        with Path(log).open("ab") as output:
            code = _wait(self.commands[number], self.folder, output)
        how = "ended" if code == 0 else f"failed with exit code {code}, see {log}"
        print(f"{label}: {how}", flush=True)
        return code


def _wait(command: Sequence[str], folder: str, output: Any) -> int:
    """Run a command; whoever stops the worker lets it save first, once."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C reaches it once: a second signal would abort it
    )
    try:
        return process.wait()
    except BaseException:  # the queue's signal before it ends or moves the job
        process.terminate()
        process.wait()
        raise
