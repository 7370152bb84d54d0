"""What the tests of deployments share: patience, what is left behind, and watching a robot."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hardware.control.ipc import (
    ArraySubscriber,
    CommandLayout,
    CommandSubscriber,
    StatusSubscriber,
)
from hardware.control.process import RobotChannels
from hardware.control.robot_loop import RobotStatus
from hardware.control.safety import SafetyState
from robot_rl.core.robot import RobotSpec

PATIENT = 40.0
"""Nobody promises a test machine that a policy is on time."""


def left_behind(domain: int) -> list[str]:
    """Channels of a domain's deployments."""
    return [name for name in os.listdir("/dev/shm") if f".{domain}." in name]


def within(seconds: float, ready: Callable[[], bool]) -> bool:
    """Whether something comes true in time."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


class Witness:
    """Sees every state and status that it can, from its own thread, and remembers the worst."""

    def __init__(
        self, spec: RobotSpec, boxes: RobotChannels, gain_sets: list[str], slack: float
    ) -> None:
        """Wait; `slack` is how far a robot that lies presses into its stops [rad]."""
        self.spec, self._slack = spec, slack
        self.statuses: list[RobotStatus] = []
        """One of each tick that was seen since the state of the machine changed last."""
        self.excess: dict[str, float] = {}
        """By how much a limit was exceeded at worst."""
        self._status = StatusSubscriber(boxes.status)
        self._states = ArraySubscriber(boxes.state, spec.state_widths)
        self._commands = CommandSubscriber(
            boxes.policy, CommandLayout(spec, spec.command, gain_sets)
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
        for box in (self._status, self._states, self._commands):
            box.close()

    def __enter__(self) -> "Witness":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _work(self) -> None:
        while not self._over.wait(0.001):
            status = self._status.newest()
            before = self.statuses[-1].safety if self.statuses else None
            if status is not None and status.safety is not before:
                self.statuses.append(status)
            found = self._states.newer()
            if found is not None:
                self._judge(found[0])

    def _judge(self, fields: Any) -> None:
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
