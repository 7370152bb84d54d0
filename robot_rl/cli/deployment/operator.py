"""The operator: start the processes, arm, hand over, watch, stop softly."""

import multiprocessing
import signal
import time
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from hardware.control.ipc import SharedMemoryReader, StatusSubscriber
from hardware.control.request_socket import is_listening
from hardware.control.robot_loop import RobotStatus, silence_of
from hardware.control.safety import DRIVEN, Condition, SafetyState
from hardware.ros.compat import message
from hardware.ros.session import RosSession
from robot_rl.cli.deployment.options import LOOP_NODE, DeploymentParts, DeployOptions
from robot_rl.cli.deployment.plan import Deployment
from robot_rl.cli.deployment.processes import (
    run_bridge,
    run_estop,
    run_link,
    run_policy,
    run_robot,
)
from robot_rl.cli.deployment.status_line import line_of
from robot_rl.core.errors import RobotRLError

_START_SECONDS, _ACT_SECONDS, _STOP_SECONDS = 60.0, 15.0, 15.0
_MOST_PATIENCE = 4.0
"""Beyond this factor a person does not wait longer for a process or a request."""
_LINE_SECONDS, _ASK_SECONDS, _LOOK_SECONDS = 0.5, 0.2, 0.05
_LONG_WAY = 0.05
"""Distance of two poses that is worth a word [rad]."""
_STOPPED = (SafetyState.SAFE_STOP, SafetyState.ESTOP)
_OF_A_PERSON = {
    SafetyState.HOLD: "somebody asked to hold; robot-rl arm and then robot-rl policy go on",
    SafetyState.SAFE_STOP: "somebody asked to stop softly; robot-rl reset, arm and policy go on",
    SafetyState.ESTOP: "an emergency stop; robot-rl reset, arm and policy go on",
    SafetyState.POLICY: "the policy is in charge again",
}
"""Sentences for states that a person asked for."""


class DeploymentError(RobotRLError):
    """A robot, its node or a policy did not do what was asked."""


class Operator:
    """Starts and ends the processes of a deployment, and asks the robot for things."""

    def __init__(
        self, options: DeployOptions, say: Callable[[str], None] = print,
        targets: Mapping[str, Callable[[DeploymentParts], None]] | None = None,
        attend: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Check bundle and robot, then start everything.

        Args:
            options: Of the deployment.
            say: Takes lines about the progress.
            targets: What runs in the place of a process, by its name; measurements look on so.
            attend: Called again and again while anything is waited for; interrupts it by raising.

        Raises:
            RobotRLError: The bundle is not for this robot, ROS 2 is missing, and so on.
        """
        self._say, self._attend = say, attend
        say(f"checking {options.bundle}")
        self.plan = Deployment(options)
        self.parts = self.plan.parts()
        """Parts that the processes were given."""
        if is_listening(self.plan.channels.operator):
            raise DeploymentError(
                f"a robot process runs {self.plan.namespace} in ROS domain {self.plan.domain} "
                "already and goes on; stop it (robot-rl disarm, then Ctrl-C in its terminal), or "
                "choose another namespace= or domain="
            )
        for remark in self.plan.remarks:
            say(remark)
        self._session = RosSession(
            "operator", namespace=self.plan.namespace, domain=self.plan.domain
        )
        self._status = StatusSubscriber(self.plan.channels.status)
        self._button = SharedMemoryReader(self.plan.channels.estop, 2)
        self._since = time.monotonic()
        self._wanted = SafetyState.READY
        self._trip, self._withheld = "", 0
        self._starting = True
        context = multiprocessing.get_context("spawn")
        others = {name: (target, self.parts) for name, target in (targets or {}).items()}
        self.processes: dict[str, BaseProcess] = {
            name: context.Process(target=target, args=(what,), name=name, daemon=True)
            for name, (target, what) in {**_targets(self.parts), **others}.items()
        }
        self.exit_codes: dict[str, int | None] = {}
        """Exit codes of processes, by name; filled by `stop`."""
        say(f"starting {', '.join(self.processes)}: up to 15 s")
        ours = (signal.SIGINT, signal.SIGHUP)  # from the first moment on: see `processes`
        before = {number: signal.signal(number, signal.SIG_IGN) for number in ours}
        try:
            for process in self.processes.values():
                process.start()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @property
    def status(self) -> RobotStatus | None:
        """Newest status of the loop; None before it has ticked."""
        status = self._status.newest()
        return status if status is not None and status.time >= self._since else None

    def arm(self) -> None:
        """Wait for the robot, stand it up, and make it ready.

        Raises:
            DeploymentError: It does not get there; says why.
        """
        self._wait(lambda: self.status is not None, "the robot process", self._patience)
        if self.parts.drawn_cameras:
            self._wait(self._cameras_are_up, "pictures of the cameras", self._patience)
        if self.parts.estop is not None:  # silent until its process was up, it counted as pressed
            if self._starting:
                self._check_button()
            self.reset()
        self._starting = False
        self._withheld = self.status.withheld if self.status else 0
        self._say(f"robot process is up; arming{self._where}")
        self._act("arm", SafetyState.READY)
        self._wanted = SafetyState.READY
        self._trip = self.status.trip if self.status else ""

    def _check_button(self) -> None:
        """Wait for the stop button's process, and refuse to arm where the button was pressed.

        Raises:
            DeploymentError: It was, or nothing is heard of it.
        """
        self._wait(
            lambda: self._button.newest_message() is not None, "the stop button", self._patience
        )
        message = self._button.newest_message()
        if message is not None and message.values.any():  # down, or pressed since it is watched
            self._ask("estop")  # the loop does not know of a press that was over before it began
            raise DeploymentError(
                "the stop button was pressed while the robot started: release it, and deploy again"
            )

    def _cameras_are_up(self) -> bool:
        topics = [self.parts.cameras[name] for name in self.parts.drawn_cameras]
        return all(self._session.node.count_publishers(topic) > 0 for topic in topics)

    @property
    def _where(self) -> str:
        """Remark on the pose to arm in, if the robot's default pose is not the policy's."""
        if self.parts.arms_in_place:
            return " where it lies; the policy gets it up"
        detour = self.plan.detour
        if detour < _LONG_WAY:
            return ""
        if self.parts.arming_pose:
            return f" in the policy's pose, {detour:.2f} rad from the robot's default one"
        return (
            f"; the policy's targets lie around a pose that is {detour:.2f} rad away, and its "
            "first one may be refused as a jump: without arm_at=robot it arms there"
        )

    def reset(self) -> None:
        """Let a robot that was stopped be armed again; it stays passive.

        Raises:
            DeploymentError: It does not end its stop; says why.
        """
        kind = message("std_srvs", "Trigger")
        end = time.monotonic() + _STOP_SECONDS
        while (status := self.status) is None or status.safety in _STOPPED:
            if time.monotonic() > end:
                why = f"in '{status.safety.value}': {status.refused}" if status else "silent"
                raise DeploymentError(f"'reset_estop' did not end the stop; the robot is {why}")
            self._session.call(kind, f"{LOOP_NODE}/reset_estop", kind.Request())
            self._check()
            time.sleep(0.05)

    def hand_over(self) -> None:
        """Let the policy command.

        Raises:
            DeploymentError: The robot refuses; says why.
        """
        self._act("policy", SafetyState.POLICY)
        self._wanted = SafetyState.POLICY
        self._trip = self.status.trip if self.status else ""
        self._say("the policy is in charge; Ctrl-C stops softly")

    def watch(self, seconds: float) -> bool:
        """Print a line now and then until time is over or trouble takes the robot from the policy.

        What a person asks for in another terminal (hold, estop, ...) ends nothing: the processes
        stay, and the person may let the policy go on. A robot process that stops answering, or
        answers again, has a line of its own at once.

        Returns:
            Whether the robot is where `arm` or `hand_over` led it when time is over.

        Raises:
            DeploymentError: Trouble stopped the robot, or its process ended.
        """
        end = time.monotonic() + (seconds or float("inf"))
        told, line_at, silent = self._wanted, 0.0, False
        while (now := time.monotonic()) < end:
            self._attend()
            status = self.status
            if status is None or self.processes["robot"].exitcode is not None:
                raise DeploymentError("the robot process has ended")
            before, silent = silent, bool(silence_of(status, now))
            if silent is not before or status.safety is not told or now >= line_at:
                self._say(line_of(status, now))
                line_at = now + _LINE_SECONDS
            if status.safety is not told:
                self._check_trip(status)
                told = status.safety
                if told in _OF_A_PERSON:
                    self._say(_OF_A_PERSON[told])
            time.sleep(_LOOK_SECONDS)
        return told is self._wanted

    def _check_trip(self, status: RobotStatus) -> None:
        """Go on only where it was no trouble that changed the robot's state."""
        if status.trip != self._trip and Condition.ESTOP_PRESSED.value not in status.trip:
            raise DeploymentError(f"the robot went to '{status.safety.value}': {status.trip}")
        self._trip = status.trip

    def stop(self) -> None:
        """Stop the robot softly, then end every process; allowed more than once."""
        robot, status = self.processes.get("robot"), self.status
        if status is not None and status.oldest_command > 0:
            self._say(
                f"the oldest command of the policy that was followed was "
                f"{1e3 * status.oldest_command:.0f} ms old; the robot pauses at "
                f"{1e3 * self.parts.limits.command_late:.0f} ms"
            )
        if robot is not None and robot.is_alive():
            robot.terminate()  # the loop's own soft stop; works without ROS, too
            self._say("stopping softly")
            self._dismiss_policy(robot)
            robot.join(_STOP_SECONDS)
        for process in self.processes.values():
            if process.is_alive():
                process.terminate()
        for process in self.processes.values():
            process.join(_STOP_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
        self.exit_codes |= {name: one.exitcode for name, one in self.processes.items()}
        for process in self.processes.values():
            process.close()  # each holds files of ours
        if "recorder" in self.processes and (code := self.exit_codes["recorder"]):
            self._say(f"the recorder ended with exit code {code}; robot-rl record repairs a bag")
        self.plan.channels.remove_dead()
        self.processes.clear()
        self._status.close()
        self._button.close()
        self._session.close()

    def _dismiss_policy(self, robot: BaseProcess) -> None:
        """End the policy once the robot stops, before what it listens to ends."""
        end = time.monotonic() + _STOP_SECONDS
        while robot.is_alive() and (now := time.monotonic()) < end:
            status = self.status
            if status is None or status.safety not in DRIVEN or silence_of(status, now):
                break
            time.sleep(_LOOK_SECONDS)
        policy = self.processes["policy"]
        if policy.is_alive():
            policy.terminate()

    def _act(self, service: str, goal: SafetyState) -> None:
        """Ask for something again and again until the robot is in a state.

        What forbade it may pass, and one request may take several steps: a robot that had to hold
        before anybody moved it is made ready again. Asked once too often a request does nothing.
        Where a person holds the robot meanwhile, that person lets it go on.
        """
        end: float | None = None
        told = False
        while (status := self.status) is None or status.safety is not goal:
            self._check()
            if status is not None and status.safety in _STOPPED:
                raise DeploymentError(f"the robot is in '{status.safety.value}': {status.trip}")
            if status is not None and status.withheld > self._withheld:
                if not told:
                    self._say("a person holds the robot: robot-rl arm, then robot-rl policy go on")
                told = True
                time.sleep(_LOOK_SECONDS)
                continue
            if end is not None and time.monotonic() > end:
                why = "it does not answer"
                if status is not None:
                    why = silence_of(status, time.monotonic()) or status.refused
                raise DeploymentError(f"'{service}' did not lead to '{goal.value}': {why}")
            if status is not None and status.safety is not SafetyState.ARMING:
                self._ask("arm" if status.safety is SafetyState.HOLD else service)
                end = end or time.monotonic() + _ACT_SECONDS * self._factor
            time.sleep(_ASK_SECONDS)

    def _ask(self, service: str) -> None:
        kind = message("std_srvs", "SetBool" if service == "arm" else "Trigger")
        request: Any = kind.Request()
        if service == "arm":
            request.data = True
        self._session.call(kind, f"{LOOP_NODE}/{service}", request, timeout=self._patience)

    def _wait(self, ready: Callable[[], bool], what: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not ready():
            self._check()
            if time.monotonic() > end:
                raise DeploymentError(f"waited {seconds:g} s for {what}")
            time.sleep(0.05)

    @property
    def _patience(self) -> float:
        """For processes to start [s]."""
        return _START_SECONDS * self._factor

    @property
    def _factor(self) -> float:
        return min(self.plan.options.patience, _MOST_PATIENCE)

    def _check(self) -> None:
        """Go on only while everything runs and the person wants it."""
        self._attend()
        for name, process in self.processes.items():
            if process.exitcode is not None:
                raise DeploymentError(
                    f"the process '{name}' ended with exit code {process.exitcode}; its message "
                    "stands above"
                )


def _targets(parts: DeploymentParts) -> dict[str, tuple[Any, Any]]:
    """Targets of the processes with their argument; a recorder, where it is wanted, first."""
    options = parts.options
    targets = {"robot": run_robot, "bridge": run_bridge, "policy": run_policy}
    if options.driver == "ros2":
        targets["link"] = run_link
    if parts.drawn_cameras:
        from robot_rl.cli.deployment.twin_cameras import run_cameras  # of an extra

        targets["cameras"] = run_cameras
    if parts.estop is not None:
        targets = {"estop": run_estop, **targets}
    processes: dict[str, tuple[Any, Any]] = {n: (run, parts) for n, run in targets.items()}
    if not options.record:
        return processes
    from robot_rl.cli.deployment.recording import (  # of an extra that others do without
        Recording,
        run_recorder,
    )

    what = Recording(
        bundle=options.bundle, namespace=parts.namespace, domain=parts.domain,
        folder=Path(options.record),
    )  # fmt: skip
    return {"recorder": (run_recorder, what), **processes}
