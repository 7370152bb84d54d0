"""The person's part: start the processes, arm, hand over, watch, stop softly."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Collection
from multiprocessing.process import BaseProcess
from typing import Any

from deploying.plan import LOOP_NODE, Deployment, DeployOptions
from deploying.processes import run_bridge, run_policy, run_robot
from hardware.control.safety import SafetyState
from hardware.control.status_mail import StatusReceiver, ToldStatus
from hardware.ros.compat import message
from hardware.ros.session import RosSession
from robot_rl.core.errors import RobotRLError

_START_SECONDS, _ACT_SECONDS, _STOP_SECONDS = 60.0, 15.0, 15.0
_LINE_SECONDS = 0.5


class DeploymentError(RobotRLError):
    """A robot, its neighbour or a policy did not do what was asked."""


class Operator:
    """Starts and ends the processes of a deployment, and asks the robot for things."""

    def __init__(self, options: DeployOptions, say: Callable[[str], None] = print) -> None:
        """Check bundle and robot, then start everything.

        Raises:
            RobotRLError: The bundle is not for this robot, ROS 2 is missing, and so on.
        """
        self.plan = Deployment(options)
        _ = self.plan.gain_sets  # reads the bundle, refuses another robot's
        self._say = say
        self._session = RosSession(
            "operator", namespace=self.plan.namespace, domain=self.plan.domain
        )
        self._status = StatusReceiver(self.plan.mailboxes.status)
        self._since = time.monotonic()
        context = multiprocessing.get_context("spawn")
        self.processes: dict[str, BaseProcess] = {
            name: context.Process(target=target, args=(options,), name=name, daemon=True)
            for name, target in (("robot", run_robot), ("bridge", run_bridge),
                                 ("policy", run_policy))
        }  # fmt: skip
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is ours, not the children's
        try:
            for process in self.processes.values():
                process.start()
        finally:
            signal.signal(signal.SIGINT, before)

    @property
    def status(self) -> ToldStatus | None:
        """What the loop told last; None before it has ticked, or of a process that died before."""
        status = self._status.newest()
        return status if status is not None and status.time >= self._since else None

    def arm(self) -> None:
        """Wait for the robot, stand it up, and make it ready.

        Raises:
            DeploymentError: It does not get there; says why.
        """
        self._wait(lambda: self.status is not None, "the robot process", _START_SECONDS)
        self._say("robot process is up; arming")
        self._act("arm", {SafetyState.HOLD, SafetyState.READY}, wanted=True)
        self._act("arm", {SafetyState.READY}, wanted=True)

    def hand_over(self) -> None:
        """Let the policy command.

        Raises:
            DeploymentError: The robot refuses; says why.
        """
        self._act("policy", {SafetyState.POLICY})
        self._say("the policy is in charge; Ctrl-C stops softly")

    def watch(self, seconds: float) -> None:
        """Print a line now and then until time is over or the policy is no longer in charge.

        Args:
            seconds: How long; 0 for ever.

        Raises:
            DeploymentError: The policy lost the robot, or a process ended.
        """
        end = time.monotonic() + (seconds or float("inf"))
        wanted = self.status and self.status.safety
        while time.monotonic() < end:
            status = self.status
            if status is None:
                raise DeploymentError("the robot process has ended")
            self._say(line_of(status))
            if status.safety is not wanted:
                raise DeploymentError(f"the robot went to '{status.safety.value}': {status.trip}")
            time.sleep(_LINE_SECONDS)

    def stop(self) -> None:
        """Stop the robot softly, then end every process; allowed more than once."""
        robot = self.processes["robot"]
        if robot.is_alive() and robot.pid:
            self._say("stopping softly")
            signal_process(robot, signal.SIGINT)  # works without ROS, too
            robot.join(_STOP_SECONDS)
        for process in self.processes.values():
            if process.is_alive():
                process.terminate()
        for process in self.processes.values():
            process.join(_STOP_SECONDS)
            if process.is_alive():
                process.kill()
        self._status.close()
        self._session.close()

    def _act(
        self, service: str, states: Collection[SafetyState], *, wanted: bool | None = None
    ) -> None:
        """Ask for something until the robot is in one of the states."""
        kind = message("std_srvs", "Trigger" if wanted is None else "SetBool")
        request: Any = kind.Request()
        if wanted is not None:
            request.data = wanted
        end: float | None = None
        asked_in: SafetyState | None = None
        while (status := self.status) is None or status.safety not in states:
            if status is not None and status.safety in (SafetyState.SAFE_STOP, SafetyState.ESTOP):
                raise DeploymentError(f"the robot is in '{status.safety.value}': {status.trip}")
            if end is not None and time.monotonic() > end:
                why = status.refused if status else "it does not answer"
                raise DeploymentError(f"'{service}' did not lead to {_names(states)}: {why}")
            if (status is not None and status.safety is not asked_in) or _may_repeat(status):
                self._session.call(kind, f"{LOOP_NODE}/{service}", request, timeout=_START_SECONDS)
                asked_in = status.safety if status else None
                end = end or time.monotonic() + _ACT_SECONDS
            self._wait_for_child()
            time.sleep(0.05)

    def _wait(self, ready: Callable[[], bool], what: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not ready():
            self._wait_for_child()
            if time.monotonic() > end:
                raise DeploymentError(f"waited {seconds:g} s for {what}")
            time.sleep(0.05)

    def _wait_for_child(self) -> None:
        for name, process in self.processes.items():
            if process.exitcode is not None:
                raise DeploymentError(
                    f"the process '{name}' ended with exit code {process.exitcode}; its message "
                    "stands above"
                )


def signal_process(process: BaseProcess, number: int) -> None:
    """Send a signal to a child."""
    if process.pid is not None:
        os.kill(process.pid, number)


def line_of(status: ToldStatus) -> str:
    """One line of the terminal."""
    lateness = status.latencies.get("lateness")
    late = (
        f"late p50 {1e6 * lateness.p50:.0f} us p99 {1e6 * lateness.p99:.0f} us" if lateness else ""
    )
    held = ", ".join(sorted(condition.value for condition in status.conditions)) or "-"
    parts = [
        f"{status.safety.value:9}", f"state {1e3 * status.state_age:4.1f} ms old",
        f"clamped {status.clamped}", f"missed {status.missed}", late, held,
    ]  # fmt: skip
    return "  ".join(part for part in parts if part)


def _may_repeat(status: ToldStatus | None) -> bool:
    """An act that was refused may be asked for again: what forbade it may have passed."""
    return bool(status and status.refused)


def _names(states: Collection[SafetyState]) -> str:
    return " or ".join(sorted(f"'{state.value}'" for state in states))
