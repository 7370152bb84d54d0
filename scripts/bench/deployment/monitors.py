"""Processes of a deployment that are looked at from within: the same ones, with a clock beside.

Each is called with the parts of the deployment in the place of `run_robot` or `run_policy`.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np

from hardware.control.clock import MonotonicClock
from hardware.control.process import RobotProcess
from hardware.control.robot_loop import STAGES
from hardware.control.safety import Condition, SafetyState
from hardware.ros.policy_node import PolicyNode, PolicyTick
from robot_rl.cli.deployment.options import DeploymentParts
from robot_rl.cli.deployment.processes import run_policy, run_robot
from robot_rl.core.robot_command import JointCommand, RobotCommand, RotorCommand
from scripts.bench.deployment.journal import Journal
from scripts.bench.deployment.lateness import Lateness, compare_lateness
from sim.twin import Twin

_P = ParamSpec("_P")
_R = TypeVar("_R")
_SETTLE_SECONDS = 1.0
"""Time that everything runs before it is measured: longer than the hand-over to the policy."""


@dataclass(frozen=True, kw_only=True)
class TimedRobot:
    """The robot process; measures its loop beside a bare one, in turns, and ends."""

    journal: Path
    windows: int
    """Pairs of windows."""
    seconds: float
    """Length of one window [s]."""
    alone: bool = False
    """It arms by itself and holds; else it waits for a policy in charge."""

    def __call__(self, parts: DeploymentParts) -> None:
        """Run it."""
        run_robot(parts, self._run)

    def _run(self, process: RobotProcess, twin: Twin, until: Callable[[], bool]) -> None:
        clock, loop = MonotonicClock(), process.loop
        wanted = SafetyState.READY if self.alone else SafetyState.POLICY
        since = clock.now()

        def measured() -> bool:
            nonlocal since
            if until():
                return True
            if loop.safety is not wanted:
                since = clock.now()
                if self.alone:
                    loop.requests.ask(Condition.ARM)
            if clock.now() - since < _SETTLE_SECONDS:
                return False
            pairs = compare_lateness(
                loop, clock, twin.period, seconds=self.seconds, windows=self.windows,
                between=lambda: (process.between_ticks(), until()),
            )  # fmt: skip
            Journal(self.journal).write(**_told(pairs), ended=loop.safety.value)
            return True

        process.run(measured)


def _told(pairs: list[Lateness]) -> dict[str, object]:
    """Percentiles of every window, and all samples of every stage [s]."""
    samples = {
        stage: np.concatenate([pair.stages.samples(stage) for pair in pairs]).tolist()
        for stage in STAGES
    }
    return {
        "bare": [(pair.bare.p50, pair.bare.p99) for pair in pairs],
        "loop": [(pair.loop.p50, pair.loop.p99) for pair in pairs],
        "samples": samples,
    }


@dataclass(frozen=True, kw_only=True)
class TimedPolicy:
    """The policy; leaves the durations of its ticks when it ends, those without a command out."""

    journal: Path

    def __call__(self, parts: DeploymentParts) -> None:
        """Run it."""
        ticks: list[float] = []
        acts: list[float] = []

        def watched(node: PolicyNode) -> Callable[[], PolicyTick]:
            node.runner.act = _timed(node.runner.act, acts)
            node.inputs.poll = _timed(node.inputs.poll, looks := [])
            tick = _timed(node.tick, every := [])

            def look() -> PolicyTick:
                done = tick()
                if done.command is not None:
                    ticks.append(looks[-1] + every[-1])  # with taking what is answered
                every.clear()
                looks.clear()
                return done

            return look

        try:
            with _silence():
                run_policy(parts, watched)
        finally:
            Journal(self.journal).write(ticks=ticks, acts=acts)


def quiet_policy(parts: DeploymentParts) -> None:
    """The policy without its lines: whoever measures makes it wait on purpose."""
    with _silence():
        run_policy(parts)


@dataclass(frozen=True, kw_only=True)
class WatchedRobot:
    """The robot process; notes when it changed its state, and its robot stands up when reset.

    The time of an emergency stop is that of the first command that moves nothing any more.
    """

    journal: Path

    def __call__(self, parts: DeploymentParts) -> None:
        """Run it."""
        run_robot(parts, self._run)

    def _run(self, process: RobotProcess, twin: Twin, until: Callable[[], bool]) -> None:
        loop, journal = process.loop, Journal(self.journal)
        before = last = loop.safety
        lies = False

        def look() -> bool:
            nonlocal before, last, lies
            if loop.safety is not last:
                before, last = last, loop.safety
            stopped = loop.safety is not SafetyState.ESTOP or moves_nothing(twin.applied)
            if before is not last and stopped:
                now = time.monotonic()
                journal.write(time=now, before=before.value, after=last.value)
                before = last
            if loop.safety is SafetyState.PASSIVE and lies:
                twin.begin(0)
            lies = loop.safety is not SafetyState.PASSIVE
            return until()

        process.run(look)


def moves_nothing(command: RobotCommand) -> bool:
    """True if joints are damped and nothing else, or rotors stand still."""
    if isinstance(command, JointCommand):
        driving = (command.kp, command.dq, command.tau)
        return not any(np.any(value) for value in driving)
    return isinstance(command, RotorCommand) and not np.any(command.speed)


def _timed(act: Callable[_P, _R], durations: list[float]) -> Callable[_P, _R]:
    def timed(*args: _P.args, **keywords: _P.kwargs) -> _R:
        begin = time.perf_counter()
        try:
            return act(*args, **keywords)
        finally:
            durations.append(time.perf_counter() - begin)

    return timed


@contextmanager
def _silence() -> Iterator[None]:
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        yield
