"""Privileges that a process asks the system for to be on time: reported, never required.

Containers, limits and other systems refuse some of it. A loop without it runs with a longer tail of
lateness, which `timing` shows.
"""

import ctypes
import gc
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_MCL_CURRENT, _MCL_FUTURE = 1, 2

LOOP_PRIORITY, BRIDGE_PRIORITY, POLICY_PRIORITY = 80, 70, 60
"""Of SCHED_FIFO: the loop before those who talk to it, who can stop it before the policy."""
SWITCH_INTERVAL = 2e-4
"""After how long a waiting Python thread gets its turn [s]; Python's own 5 ms are ten ticks."""


@dataclass(frozen=True)
class Privilege:
    """One thing that was asked for."""

    name: str
    granted: bool
    """The system gave it."""
    detail: str
    """Details of what was given, or why not and what to do."""


def request_realtime(priority: int = LOOP_PRIORITY) -> list[Privilege]:
    """Ask for everything that helps this process to be on time.

    Call it once, in the thread of the loop, after everything has been built: what exists then is
    never looked at again by the garbage collector, and what is made afterwards is not collected.

    Args:
        priority: Of the scheduling class SCHED_FIFO, in 1 .. 99.
    """
    steps: tuple[tuple[str, Callable[[], str]], ...] = (
        ("SCHED_FIFO", lambda: _fifo(priority)),
        ("mlockall", _lock_memory),
        ("gc", _freeze_garbage),
        ("switch interval", _switch_quickly),
    )
    return [_tried(name, step) for name, step in steps]


def request_priority(priority: int) -> Privilege:
    """Ask for SCHED_FIFO alone, for a process beside the loop.

    Call it before anything is built: threads inherit it, those of DDS that receive messages too.

    Args:
        priority: Below that of the loop, in 1 .. 99.
    """
    return _tried("SCHED_FIFO", lambda: _fifo(priority))


def freeze_existing_objects() -> None:
    """Let the garbage collector never look again at what exists now; call it after building.

    What is made afterwards is collected as usual, which then takes microseconds instead of tens of
    milliseconds.
    """
    gc.collect()
    gc.freeze()


def real_time_kernel(folder: Path = Path("/")) -> Privilege:
    """The kernel's own promise to be on time, which no process can ask for.

    Args:
        folder: Of the system's files.
    """
    flag = folder / "sys/kernel/realtime"
    if flag.is_file() and flag.read_text().strip() == "1":
        return Privilege("kernel", True, "PREEMPT_RT")
    return Privilege(
        "kernel", False,
        "beside other programs a tick may come milliseconds late, whatever its priority: take a "
        "kernel with PREEMPT_RT, or keep this computer for the robot",
    )  # fmt: skip


def release_realtime() -> None:
    """Give everything back that can be given back; for programs that go on without a loop."""
    gc.enable()
    gc.unfreeze()
    sys.setswitchinterval(5e-3)
    if sys.platform == "linux":
        ctypes.CDLL(None).munlockall()
        if os.sched_getscheduler(0) != os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _tried(name: str, step: Callable[[], str]) -> Privilege:
    try:
        return Privilege(name, True, step())
    except OSError as error:
        return Privilege(name, False, str(error))


def _fifo(priority: int) -> str:
    if sys.platform != "linux":
        raise OSError("this system has no SCHED_FIFO")
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except PermissionError as error:
        raise OSError(
            f"priority {priority} was refused; allow it with the line "
            f"'@realtime - rtprio {priority}' in /etc/security/limits.conf"
        ) from error
    return f"priority {priority}"


def _lock_memory() -> str:
    if sys.platform != "linux":
        raise OSError("this system has no mlockall")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(_MCL_CURRENT | _MCL_FUTURE) != 0:
        raise OSError(
            f"{os.strerror(ctypes.get_errno())}; allow it with the line "
            "'@realtime - memlock unlimited' in /etc/security/limits.conf"
        )
    return "no page of this process is swapped out"


def _freeze_garbage() -> str:
    gc.collect()
    gc.freeze()
    gc.disable()
    return f"{gc.get_freeze_count()} objects frozen, no collection until asked"


def _switch_quickly() -> str:
    sys.setswitchinterval(SWITCH_INTERVAL)
    return f"{1e3 * SWITCH_INTERVAL:g} ms"
