"""What is wrong with a measured state: its age, its numbers, and what the robot does."""

import math

import numpy as np

from hardware.control.safety import Condition
from hardware.control.watch.safety_limits import SafetyLimits
from hardware.controllers import turns
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import JointCommand, RobotCommand
from robot_rl.core.robot_state import RobotState

ROUNDING = 1e-9
"""Times are sums of periods: this is less than any period and more than their rounding [s]."""


class Lasting:
    """Whether something has been true for so long without a break."""

    def __init__(self, seconds: float) -> None:
        """Speak after `seconds`."""
        self._seconds = seconds
        self._since: float | None = None

    def __call__(self, true: bool, now: float) -> bool:
        """Whether it is true now and was at every call of the last `seconds`."""
        if not true:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        return now - self._since >= self._seconds - ROUNDING


class StateWatch:
    """Keeps the newest good sample and says what is wrong with it."""

    def __init__(self, spec: RobotSpec, limits: SafetyLimits, period: float) -> None:
        """Watch a robot in a loop with this period [s]."""
        self._spec, self._limits = spec, limits
        self._late = max(limits.state_late, 3 * period)
        self._lost = max(limits.state_lost, self._late)
        self._widths = spec.state_widths
        self._lower, self._upper = (
            np.array([joint.position_limit for joint in spec.joints], float).reshape(-1, 2).T
        )
        self._speed = np.array([joint.velocity_limit for joint in spec.joints], float)
        self._effort = np.array([joint.effort_limit for joint in spec.joints], float)
        self._overspeed, self._overtorque = Lasting(limits.load_time), Lasting(limits.load_time)
        self._tracking, self._leaning = Lasting(limits.tracking_time), Lasting(limits.tilt_time)
        self.state: RobotState | None = None
        """Newest good sample."""
        self.stamp = -math.inf
        """When it was measured [s]."""
        self.details: dict[Condition, str] = {}
        """What there is to say about the conditions of the last tick."""

    def update(
        self, now: float, state: RobotState | None, stamp: float, followed: RobotCommand | None
    ) -> set[Condition]:
        """What is wrong. Real-time: never blocks.

        Args:
            now: Time of the tick [s].
            state: What the driver gave; None where it gave nothing.
            stamp: When that was measured [s].
            followed: Setpoint that was followed last.
        """
        self.details = {}
        found: set[Condition] = set()
        if state is not None and stamp > self.stamp:
            fault = self._fault(state)
            if fault is None:
                self.state, self.stamp = state, stamp
            else:
                self._say(found, Condition.STATE_INVALID, fault)
        age = now - self.stamp
        if age > self._late + ROUNDING:
            self._say(found, Condition.STATE_LATE, f"newest sample is {1e3 * age:.0f} ms old")
        if age > self._lost + ROUNDING:
            self._say(found, Condition.STATE_LOST, f"newest sample is {1e3 * age:.0f} ms old")
        if self.state is not None:
            self._joints(found, now, self.state, followed)
            self._base(found, now, self.state)
            self._reach(found, self.state)
        return found

    def _fault(self, state: RobotState) -> str | None:
        """Why a sample cannot be used; None where it can."""
        for name, width in self._widths.items():
            value = state.fields.get(name)
            if value is None or np.shape(value) != (1, width):
                return (
                    f"'{name}' must be (1, {width}), got {value if value is None else value.shape}"
                )
            if not np.isfinite(value).all():
                return f"'{name}' is {value}"
        return None

    def _joints(
        self, found: set[Condition], now: float, state: RobotState, followed: RobotCommand | None
    ) -> None:
        limits, fields = self._limits, state.fields
        if "joint_position" in fields:
            q, slack = fields["joint_position"][0], limits.range_tolerance
            outside = (q < self._lower - slack) | (q > self._upper + slack)
            if outside.any():
                self._say(found, Condition.OUTSIDE_RANGE, self._named(outside, q))
            far = np.zeros(len(q), bool)
            if isinstance(followed, JointCommand):
                distance = abs(np.asarray(followed.q)[0] - q)
                far = (np.asarray(followed.kp)[0] > 0) & (distance > limits.tracking_error)
            if self._tracking(bool(far.any()), now):
                self._say(found, Condition.TRACKING_ERROR, self._named(far, q))
        if "joint_velocity" in fields:
            dq = fields["joint_velocity"][0]
            fast = abs(dq) > limits.velocity_factor * self._speed
            if self._overspeed(bool(fast.any()), now):
                self._say(found, Condition.OVERSPEED, self._named(fast, dq))
        if "joint_effort" in fields:
            tau = fields["joint_effort"][0]
            strong = abs(tau) > limits.effort_factor * self._effort
            if self._overtorque(bool(strong.any()), now):
                self._say(found, Condition.OVERTORQUE, self._named(strong, tau))

    def _base(self, found: set[Condition], now: float, state: RobotState) -> None:
        if "orientation_w" not in state.fields:
            return
        flies = bool(self._spec.rotors)
        upright = turns.vertical(turns.quaternion(state.orientation_w))[2]
        lean = math.acos(min(max(upright, -1.0), 1.0))
        if self._leaning(lean > (self._limits.tumble if flies else self._limits.tilt), now):
            condition = Condition.TUMBLE if flies else Condition.TILT
            self._say(found, condition, f"leans {math.degrees(lean):.0f} deg")

    def _reach(self, found: set[Condition], state: RobotState) -> None:
        limits, name = self._limits, "end_effector_position_b"
        if self._spec.rotors:
            name = "position_w"
        if name in state.fields:
            place = state.field(name)[0]
            inside = (place >= limits.workspace_lower) & (place <= limits.workspace_upper)
            if not inside.all():
                self._say(found, Condition.OUTSIDE_WORKSPACE, f"{name} is {np.round(place, 3)}")
        if "wrench_ee" in state.fields:
            force = float(np.linalg.norm(state.wrench_ee[0, :3]))
            if force > limits.external_force:
                self._say(found, Condition.EXTERNAL_FORCE, f"{force:.1f} N at the end effector")

    def _named(self, which: np.ndarray, values: np.ndarray) -> str:
        pairs = zip(self._spec.joint_names, which, values, strict=True)
        return ", ".join(f"{name} {value:.3g}" for name, true, value in pairs if true)

    def _say(self, found: set[Condition], condition: Condition, detail: str) -> None:
        found.add(condition)
        self.details[condition] = detail
