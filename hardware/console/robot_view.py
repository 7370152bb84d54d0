"""A running robot process as the console sees it: its state against its limits, and its requests.

The console reads the shared-memory channels and sends datagrams to the loop's own socket; it works
beside every robot process, whoever started it, and without ROS 2.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hardware.control.ipc import ArraySubscriber, StatusSubscriber
from hardware.control.monitors import SafetyLimits
from hardware.control.process import RobotChannels
from hardware.control.request_socket import NoRobotError, is_listening, send_request
from hardware.control.robot_loop import RobotStatus, silence_of
from hardware.control.safety import Condition, SafetyState
from robot_rl.core.robot import RobotSpec

_S = SafetyState
AUTHORITY = {
    _S.POLICY: "policy", _S.HUMAN: "human",
    _S.READY: "paused", _S.HOLD: "paused", _S.ARMING: "paused",
    _S.PASSIVE: "nobody", _S.SAFE_STOP: "nobody", _S.ESTOP: "nobody",
}  # fmt: skip
"""Holder of the robot, by state of the loop."""
MEANING = {
    _S.PASSIVE: "not armed: the robot is damped, nothing holds it up",
    _S.ARMING: "on its way to the pose to arm in",
    _S.HOLD: "holds its pose until somebody arms it again",
    _S.READY: "stands ready for the policy or a person",
    _S.POLICY: "the policy's commands are followed",
    _S.HUMAN: "the person's commands are followed",
    _S.SAFE_STOP: "a controlled stop, then damping",
    _S.ESTOP: "stopped, latched: reset first, then arm",
}
_ONLY_WHILE_STEERING = {Condition.LEASE_LATE, Condition.LEASE_LOST, Condition.HUMAN_JUMP}
_DIGITS = 4


class RobotView:
    """A robot process on this computer; it may come later, go, and come again."""

    def __init__(
        self, robot: str, spec: RobotSpec | None = None, limits: SafetyLimits | None = None
    ) -> None:
        """Look for a robot.

        Args:
            robot: Name of its channels.
            spec: Its description, for joints and their limits; None shows its status alone.
            limits: Of its loop, for what is measured of its base and end effector; the usual ones
                if None.
        """
        self.robot = robot
        self.spec = spec
        self._limits = limits or SafetyLimits()
        self._channels = RobotChannels(robot)
        self._status = StatusSubscriber(self._channels.status)
        self._state = ArraySubscriber(self._channels.state, spec.state_widths) if spec else None
        self._fields: Mapping[str, np.ndarray] = {}
        self._stamp = -math.inf

    @property
    def alive(self) -> bool:
        """True while a robot process takes requests."""
        return is_listening(self._channels.operator)

    @property
    def status(self) -> RobotStatus | None:
        """The loop's newest status; None before the first and after it has ended."""
        return self._status.newest()

    @property
    def safety(self) -> SafetyState | None:
        """State of the loop; None without one."""
        return self._status.safety

    def measured(self) -> tuple[Mapping[str, np.ndarray], float]:
        """Fields of the newest sample, each (1, width), and its time, clock of the loop [s]."""
        if self._state is not None and (newer := self._state.newer()) is not None:
            self._fields, self._stamp = newer
        return self._fields, self._stamp

    def ask(self, request: Condition) -> str:
        """Ask the loop for something; returns the reason where nobody could be asked."""
        try:
            send_request(self._channels.operator, request)
        except NoRobotError as error:
            return str(error)
        return ""

    def snapshot(self, now: float) -> dict[str, Any]:
        """All that the page shows of the robot, as JSON.

        Args:
            now: Clock of the loop [s].
        """
        status = self.status
        if status is None:
            return {
                "name": self.robot, "safety": "none", "authority": "nobody", "joints": [],
                "meaning": "no robot process of this name is running", "silent": "",
                "trip": "", "refused": "", "conditions": [],
            }  # fmt: skip
        hidden = set() if status.safety is _S.HUMAN else _ONLY_WHILE_STEERING
        tick, late = status.latencies.get("tick"), status.latencies.get("lateness")
        age = status.state_age + max(0.0, now - status.time)
        return {
            "name": self.robot,
            "safety": status.safety.value,
            "authority": AUTHORITY[status.safety],
            "meaning": MEANING[status.safety],
            "silent": silence_of(status, now),
            "trip": status.trip,
            "refused": status.refused,
            "conditions": sorted(one.value for one in status.conditions - hidden),
            "state_age": _finite(age),
            "ticks": status.ticks,
            "clamped": status.clamped,
            "missed": status.missed,
            "tick_p99": _finite(tick.p99 if tick else math.nan),
            "late_p99": _finite(late.p99 if late else math.nan),
            "joints": [*self._base(), *self._joints()],
            "gripper": self._gripper(),
            "wrench": self._wrench(),
            "position": self._numbers("end_effector_position_b") or self._numbers("position_w"),
        }

    def close(self) -> None:
        """Let go of the channels."""
        self._status.close()
        if self._state is not None:
            self._state.close()

    def _base(self) -> list[dict[str, Any]]:
        """Lean and place of a base that is not fixed, in rows like those of joints."""
        fields, _ = self.measured()
        if self.spec is None or "orientation_w" not in fields:
            return []
        limits, none = self._limits, np.full((1, 3), np.nan)
        w, x, y, z = np.reshape(fields["orientation_w"], -1)
        lean = limits.tumble if self.spec.rotors else limits.tilt
        roll = math.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
        pitch = math.asin(min(max(2 * (w * y - z * x), -1.0), 1.0))
        rates = fields.get("angular_velocity_b", none)[0]
        rows = [("roll", roll, -lean, lean, rates[0]), ("pitch", pitch, -lean, lean, rates[1])]
        if "position_w" in fields:
            place, speed = fields["position_w"][0], fields.get("linear_velocity_w", none)[0]
            box = zip(limits.workspace_lower, limits.workspace_upper, strict=True)
            rows += [
                (name, place[i], low, high, speed[i])
                for i, (name, (low, high)) in enumerate(zip("xyz", box, strict=True))
            ]
        return [
            {
                "name": name, "q": _finite(value), "lower": _finite(low), "upper": _finite(high),
                "dq": _finite(rate), "dq_limit": None,
            }
            for name, value, low, high, rate in rows
        ]  # fmt: skip

    def _joints(self) -> list[dict[str, Any]]:
        """Joints with their measured position, speed and torque, each beside its limit."""
        fields, _ = self.measured()
        if self.spec is None or "joint_position" not in fields:
            return []
        rows = {
            name: np.asarray(
                fields.get(f"joint_{what}", np.full((1, self.spec.num_joints), np.nan))
            )
            for name, what in (("q", "position"), ("dq", "velocity"), ("tau", "effort"))
        }
        return [
            {
                "name": joint.name,
                "q": _finite(rows["q"][0, i]),
                "lower": _finite(joint.position_limit[0]),
                "upper": _finite(joint.position_limit[1]),
                "dq": _finite(rows["dq"][0, i]),
                "dq_limit": _finite(joint.velocity_limit),
                "tau": _finite(rows["tau"][0, i]),
                "tau_limit": _finite(joint.effort_limit),
            }
            for i, joint in enumerate(self.spec.joints)
        ]

    def _wrench(self) -> dict[str, Any] | None:
        """Force [N] and torque [N m] at the end effector, and the force at which the loop holds."""
        fields, _ = self.measured()
        if "wrench_ee" not in fields:
            return None
        force, torque = np.reshape(fields["wrench_ee"], (2, 3))
        return {
            "force": _finite(float(np.linalg.norm(force))),
            "torque": _finite(float(np.linalg.norm(torque))),
            "force_limit": _finite(self._limits.external_force),
        }

    def _gripper(self) -> float | None:
        opening = self._numbers("gripper_opening")
        return opening[0] if opening else None

    def _numbers(self, name: str) -> list[float | None] | None:
        fields, _ = self.measured()
        if name not in fields:
            return None
        return [_finite(value) for value in np.reshape(fields[name], -1)]


def _finite(value: float) -> float | None:
    """A number for JSON, which has neither NaN nor infinity."""
    return round(float(value), _DIGITS) if math.isfinite(value) else None
