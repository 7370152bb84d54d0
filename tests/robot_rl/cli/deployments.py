"""Shared by the tests of deployments: starting them, watching a robot, and what is left behind."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from hardware.control.ipc import ArraySubscriber, CommandLayout, CommandSubscriber, StatusSubscriber
from hardware.control.robot_loop import RobotStatus
from hardware.control.safety import SafetyState
from hardware.ros.compat import inspect_environment, message
from hardware.ros.session import RosSession
from robot_rl.cli.deployment import processes
from robot_rl.cli.deployment.operator import Operator
from robot_rl.cli.deployment.options import DeploymentParts, DeployOptions
from scripts.bench.deployment.endurance import left_behind

PATIENT = 40.0
"""A test machine does not promise that a policy is on time."""
WITHOUT_ROS = inspect_environment().rclpy is None


def within(seconds: float, ready: Callable[[], bool]) -> bool:
    """True once it is ready, which takes so long at most [s]; thrice as long on a slow machine."""
    end = time.monotonic() + 3 * seconds
    while not ready():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def status_of(operator: Operator) -> RobotStatus:
    """Newest status of a loop that has ticked."""
    status = operator.status
    assert status is not None
    return status


@contextmanager
def running(
    domain: int, targets: Mapping[str, Callable[[DeploymentParts], None]] | None = None,
    say: Callable[[str], None] = lambda line: None, **options: Any,
) -> Iterator[Operator]:  # fmt: skip
    """A deployment, ended whatever happens."""
    values = {"patience": PATIENT, "domain": domain, **options}
    values["bundle"] = str(values["bundle"])
    operator = Operator(DeployOptions(**values), say=say, targets=targets)
    try:
        yield operator
    finally:
        operator.stop()
        assert left_behind(domain) == []


def bring_to_policy(operator: Operator) -> Operator:
    status = operator.status
    if status is not None and status.safety is SafetyState.POLICY:
        return operator
    if status is not None and status.safety in (SafetyState.SAFE_STOP, SafetyState.ESTOP):
        operator.reset()
    operator.arm()
    operator.hand_over()
    return operator


@contextmanager
def session(name: str, domain: int, namespace: str = "/go2") -> Iterator[RosSession]:
    """A node beside the deployment."""
    made = RosSession(name, namespace=namespace, domain=domain)
    try:
        yield made
    finally:
        made.close()


def call(domain: int, service: str) -> Any:
    """The answer of a service of the loop to somebody."""
    trigger = message("std_srvs", "Trigger")
    with session("somebody", domain) as somebody:
        return somebody.call(trigger, f"loop/{service}", trigger.Request(), timeout=60)


def impatient_link(parts: DeploymentParts) -> None:
    """The link, which waits a second for its first sample."""
    processes._FIRST_SAMPLE_SECONDS = 1.0  # pyright: ignore[reportPrivateUsage]
    processes.run_link(parts)


class Witness:
    """Sees every state and status that it can, from its own thread, and remembers the worst."""

    def __init__(self, parts: DeploymentParts) -> None:
        """Watch the robot of a deployment."""
        self.spec = parts.robot
        self._slack = parts.limits.range_tolerance
        self.statuses: list[RobotStatus] = []
        """One of each tick that was seen since the state of the machine changed last."""
        self.excess: dict[str, float] = {}
        """By how much a limit was exceeded at worst."""
        self._status = StatusSubscriber(parts.channels.status)
        self._states = ArraySubscriber(parts.channels.state, self.spec.state_widths)
        self._commands = CommandSubscriber(
            parts.channels.policy, CommandLayout(self.spec, self.spec.command, parts.gain_names)
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def entered(self, safety: SafetyState) -> RobotStatus | None:
        """The first status that was seen in a state since the policy was in charge."""
        seen = [*self.statuses]
        states = [one.safety for one in seen]
        begin = states.index(SafetyState.POLICY) if SafetyState.POLICY in states else len(seen)
        return next((one for one in seen[begin:] if one.safety is safety), None)

    @property
    def newest_command(self) -> float:
        """Stamp of the policy's newest command [s]."""
        found = self._commands.newest()
        return -np.inf if found is None else found.stamp

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for channel in (self._status, self._states, self._commands):
            channel.close()

    def _work(self) -> None:
        while not self._over.wait(0.001):
            status = self._status.newest()
            before = self.statuses[-1].safety if self.statuses else None
            if status is not None and status.safety is not before:
                self.statuses.append(status)
            found = self._states.newer()
            if found is not None:
                self._measure(found[0])

    def _measure(self, fields: Any) -> None:
        """Measured values against the joints' limits, beyond five deviations of the noise."""
        for name, limit in (("velocity", "velocity_limit"), ("effort", "effort_limit")):
            sensor = self.spec.sensors[f"joint_{name}"]
            allowed = np.array([getattr(joint, limit) for joint in self.spec.joints])
            over = abs(fields[f"joint_{name}"][0]) - allowed - 5 * sensor.noise
            self.excess[name] = max(self.excess.get(name, -np.inf), float(over.max()))
        low, high = np.array([joint.position_limit for joint in self.spec.joints]).T
        q, noise = fields["joint_position"][0], 5 * self.spec.sensors["joint_position"].noise
        over = np.maximum(low - q, q - high) - noise - self._slack
        self.excess["position"] = max(self.excess.get("position", -np.inf), float(over.max()))
