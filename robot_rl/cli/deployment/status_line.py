"""A robot's status in one line of a terminal."""

from hardware.control.robot_loop import RobotStatus, silence_of
from hardware.control.safety import Condition, SafetyState

_OF_A_PERSON = {Condition.LEASE_LATE, Condition.LEASE_LOST, Condition.HUMAN_JUMP}
"""Of no interest while nobody steers."""


def line_of(status: RobotStatus, now: float) -> str:
    """One line of the terminal.

    Args:
        now: Clock of the loop [s]; everything is shown as old as it is then.
    """
    silence = silence_of(status, now)
    age = status.state_age + max(0.0, now - status.time)
    lateness, answer = (status.latencies.get(name) for name in ("lateness", "answer"))
    late = (
        f"late p50 {1e6 * lateness.p50:.0f} us p99 {1e6 * lateness.p99:.0f} us" if lateness else ""
    )
    answers = (
        f"answers p50 {1e3 * answer.p50:.1f} ms p99 {1e3 * answer.p99:.1f} ms" if answer else ""
    )
    unasked = set() if status.safety is SafetyState.HUMAN else _OF_A_PERSON
    held = ", ".join(sorted(condition.value for condition in status.conditions - unasked)) or "-"
    parts = [
        f"{silence}; before:" if silence else "",
        f"{status.safety.value:9}", f"state {1e3 * age:4.1f} ms old",
        f"clamped {status.clamped}", f"missed {status.missed}", late, answers, held,
    ]  # fmt: skip
    return "  ".join(part for part in parts if part)
