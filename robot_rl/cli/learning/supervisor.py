"""Starts learner and robot on one computer, starts again what dies, and ends both in order.

A process that was killed is started again after a pause; one that refuses (exit code 2) ends all,
with its reason on the terminal. If this process is killed, the others notice and end by themselves.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from robot_rl.cli.command_line import EXIT_USAGE
from robot_rl.core.process import clean_environ

PARENT = "ROBOT_RL_PARENT"
"""Environment variable with the id of the process that supervises this one."""
EXIT_AGAIN = 75
"""Exit code of a process that may succeed later (EX_TEMPFAIL of sysexits.h): it starts again."""
_LOOK_SECONDS = 0.1
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
_SETTLED_SECONDS = 30.0
"""Life after which a process counts as healthy again."""
_END_SECONDS = 30.0


def is_supervised() -> bool:
    """True if this process was started by a supervisor."""
    return PARENT in os.environ


def orphaned() -> bool:
    """True if this process was started by a supervisor, which is gone."""
    parent = os.environ.get(PARENT)
    return parent is not None and os.getppid() != int(parent)


@dataclass
class _Child:
    name: str
    words: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    pause: float = _FIRST_PAUSE
    due: float = field(default_factory=time.monotonic)


def supervise(commands: Mapping[str, Sequence[str]]) -> int:
    """Run processes until Ctrl-C or SIGTERM, or until one refuses.

    Args:
        commands: Words behind `robot-rl`, by the name of the process.

    Returns:
        Exit code: 0 after Ctrl-C, else that of the process that refused.
    """
    children = [_Child(name, words) for name, words in commands.items()]
    asked: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: asked.append(number))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    code: int | None = None
    try:
        while not asked and code is None:
            for child in children:
                code = _look_after(child) if code is None else code
            time.sleep(_LOOK_SECONDS)
        return code or 0
    finally:
        _end(children)
        for number, handler in before.items():
            signal.signal(number, handler)


def _look_after(child: _Child) -> int | None:
    """Start a process that is due, and look at one that ended; an exit code ends everything."""
    now = time.monotonic()
    if child.process is None:
        if now >= child.due:
            environ = clean_environ({PARENT: str(os.getpid())})
            command = [sys.executable, "-m", "robot_rl.cli", *child.words]
            # A session of its own: Ctrl-C reaches this process, which ends the others in order.
            child.process = subprocess.Popen(command, env=environ, start_new_session=True)
            child.started = now
        return None
    status = child.process.poll()
    if status is None:
        return None
    if status in (0, EXIT_USAGE):
        return status
    if now > child.started + _SETTLED_SECONDS:
        child.pause = _FIRST_PAUSE
    how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
    print(f"the {child.name} died ({how}); it starts again in {child.pause:g} s", flush=True)
    child.process, child.due = None, now + child.pause
    child.pause = min(2 * child.pause, _LONGEST_PAUSE)
    return None


def _end(children: Sequence[_Child]) -> None:
    """End the robot first, so that the learner can store its last steps."""
    end = time.monotonic() + _END_SECONDS
    for child in reversed(children):
        process = child.process
        if process is None or process.poll() is not None:
            continue
        process.terminate()
        try:
            process.wait(max(1.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
