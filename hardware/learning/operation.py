"""Operation of a simulated robot without a person: armed, and handed to the policy again and again.

Only what went wrong by itself is put right. A robot that a person holds, disarms or stops, or that
lost the person who moved it, stays so until a person hands it over.
"""

from hardware.control.robot_loop import RobotStatus
from hardware.control.safety import Condition, SafetyState

TOWARDS_POLICY = {
    SafetyState.PASSIVE: Condition.ARM,
    SafetyState.HOLD: Condition.ARM,
    SafetyState.READY: Condition.ENABLE_POLICY,
    SafetyState.SAFE_STOP: Condition.RESET,
    SafetyState.ESTOP: Condition.RESET,
}
"""Request that leads from each state towards `POLICY`."""


def request_towards_policy(status: RobotStatus) -> Condition | None:
    """Request that brings the robot nearer to the policy; None where it is, or may not be."""
    return None if status.withheld else TOWARDS_POLICY.get(status.safety)
