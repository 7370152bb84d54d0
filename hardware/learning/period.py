"""Account of a control period on a robot: who moved it, by which action, and what paused it."""

import numpy as np

from hardware.control.monitors import COMMANDED_STATES
from hardware.control.robot_loop import silence_of
from hardware.learning.port import Readings
from robot_rl.core.action import ActionMap
from robot_rl.core.pose_target import PoseTarget
from robot_rl.core.robot_command import RobotCommand

_SLACK = 1e-3
"""Part of an action beyond [-1, 1] that is rounding."""


def action_of(
    followed: RobotCommand, action_map: ActionMap, target: PoseTarget | None
) -> tuple[np.ndarray, bool]:
    """Action that leads to a setpoint, (1, A), in [-1, 1]; True if it is only the nearest one.

    Args:
        followed: The setpoint at a period's end.
        action_map: Of its kind.
        target: Target before the period, for a map of poses.
    """
    if target is not None:
        action, beyond = target.executed(followed)
        return action, bool(beyond.any())
    exact = np.asarray(action_map.from_command(followed), dtype=np.float64)
    return exact.clip(-1.0, 1.0), bool((abs(exact) > 1 + _SLACK).any())


def silence(readings: Readings) -> str:
    """Sentence about a robot process that does not answer; empty where it does."""
    if readings.status is None or readings.executed is None:
        return "the robot process does not run"
    return silence_of(readings.status, readings.now)


def happened(before: Readings, after: Readings) -> tuple[bool, str]:
    """True if a person moved the robot between two readings, and the pause that there was."""
    trouble = silence(after)
    first, last = before.executed, after.executed
    if trouble or first is None or last is None:
        return False, trouble or "the robot process was started meanwhile"
    counts = [
        new - old
        for new, old in zip(
            (last.policy_ticks, last.human_ticks, last.other_ticks),
            (first.policy_ticks, first.human_ticks, first.other_ticks),
            strict=True,
        )
    ]
    if min(counts) < 0:
        return False, "the robot process was started anew"
    policy, human, other = counts
    if other or last.safety not in COMMANDED_STATES:
        status = after.status
        why = f" ({status.trip})" if status is not None and status.trip else ""
        return human > 0, f"paused in '{last.safety.value}'{why}"
    if not policy + human:
        return False, "the robot's loop did not tick in a control period"
    return human > 0, ""
