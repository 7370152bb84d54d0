"""Operation of a simulated robot without a person: armed, and handed to the policy again and again.

Only what went wrong by itself is put right. A robot that a person holds, disarms or stops, or that
lost the person who moved it, stays so until a person says otherwise. A robot that is held or
stopped when this begins, and that no trouble held or stopped, was by a person.
"""

from hardware.control.monitors import COMMANDED_STATES
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
_OF_PEOPLE = (Condition.ESTOP_PRESSED.value, Condition.LEASE_LOST.value)


class UnattendedOperation:
    """Decides what to ask a robot's loop for; look at every status, whatever it says."""

    def __init__(self) -> None:
        self._ticks: int | None = None
        self._led = False
        self._trips = 0

    def request(self, status: RobotStatus) -> Condition | None:
        """Request that brings the robot nearer to the policy; None where it is, or may not be."""
        if self._ticks is None:  # where no trouble brought the robot here, a person did
            held = status.safety in (SafetyState.HOLD, SafetyState.SAFE_STOP)
            self._led = held and f"-> {status.safety.value}:" not in status.trip
            self._trips = status.trips
        elif status.ticks < self._ticks:  # another process: nobody has touched its robot yet
            self._led = False
        self._ticks = status.ticks
        if status.safety in COMMANDED_STATES:
            self._led, self._trips = True, status.trips
            return None
        # Only trouble trips the loop; requests of people do not, but for the emergency stop.
        asked = self._led and status.trips == self._trips
        if asked or any(condition in status.trip for condition in _OF_PEOPLE):
            return None
        return TOWARDS_POLICY.get(status.safety)
