"""Setpoints of a robot that stands or is led somewhere: joint targets or poses, with a gripper."""

from dataclasses import replace

import numpy as np

from hardware.control.stopping import MIN_JERK_PEAK
from hardware.controllers.handover import min_jerk
from robot_rl.core import quaternion
from robot_rl.core.action import ActionMap
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.pose_target import rotation_between
from robot_rl.core.robot_command import CommandKind, JointCommand, PoseCommand, RobotCommand

LedCommand = JointCommand | PoseCommand
"""Commands that hold a robot where it is."""


def standing(action_map: ActionMap, state: RobotState, opening: float | None = None) -> LedCommand:
    """Command that holds the measured pose, (1, ...).

    Args:
        action_map: Of the kind `joint` or `pose`.
        opening: Of the gripper; None for the measured one, where actions move it.

    Raises:
        ConfigError: The kind holds no pose: a drone is hovered by a policy.
    """
    gripper = None if opening is None else np.array([[opening]])
    if gripper is None and action_map.gripper:
        gripper = np.array(state.gripper_opening, dtype=np.float64).clip(0.0, 1.0)
    if action_map.kind is CommandKind.pose:
        return PoseCommand(
            position_w=np.array(state.end_effector_position_b, dtype=np.float64),
            orientation_w=quaternion.normalize(
                np.array(state.end_effector_orientation_b, dtype=np.float64)
            ),
            gripper=gripper,
        )
    if action_map.kind is CommandKind.joint:
        q = np.array(state.joint_position, dtype=np.float64)
        return JointCommand(
            q=q, dq=np.zeros_like(q), tau=np.zeros_like(q), gripper=gripper,
            kp=np.array([action_map.stiffness], dtype=np.float64),
            kd=np.array([action_map.damping], dtype=np.float64),
        )  # fmt: skip
    raise ConfigError(
        f"a learning environment leads a robot by 'joint' or 'pose' commands, got an action map of "
        f"kind '{action_map.kind.value}'"
    )


def between(start: LedCommand, end: LedCommand, share: float) -> LedCommand:
    """Command on the way from one to another of the same kind, at a share of minimum jerk."""
    done = min_jerk(min(max(share, 0.0), 1.0))
    if isinstance(start, PoseCommand) and isinstance(end, PoseCommand):
        turn = done * rotation_between(start.orientation_w, end.orientation_w)
        return replace(
            end,
            position_w=start.position_w + done * (end.position_w - start.position_w),
            orientation_w=quaternion.multiply(
                quaternion.from_rotation_vector(turn), start.orientation_w
            ),
        )
    assert isinstance(start, JointCommand)
    assert isinstance(end, JointCommand)
    return replace(end, q=start.q + done * (end.q - start.q))


def travel_time(start: LedCommand, end: LedCommand, speed: float, turn_speed: float) -> float:
    """Shortest time of that way [s].

    Args:
        start: Where it begins.
        end: Where it ends.
        speed: Largest speed of the end effector [m/s].
        turn_speed: Largest speed of its rotation, and of each joint [rad/s].
    """
    way, turn = distance(start, end)
    return MIN_JERK_PEAK * max(way / speed, turn / turn_speed)


def distance(one: LedCommand, other: LedCommand) -> tuple[float, float]:
    """Distance of two end effectors [m], and their angle or the largest of two joints [rad]."""
    if isinstance(one, PoseCommand) and isinstance(other, PoseCommand):
        way = float(np.linalg.norm(other.position_w - one.position_w))
        turn = float(np.linalg.norm(rotation_between(one.orientation_w, other.orientation_w)))
        return way, turn
    assert isinstance(one, JointCommand)
    assert isinstance(other, JointCommand)
    return 0.0, float(np.max(np.abs(other.q - one.q), initial=0.0))


def same(one: RobotCommand, other: RobotCommand, tolerance: float = 1e-9) -> bool:
    """True if two commands ask for the same targets, to rounding."""
    if isinstance(one, PoseCommand) and isinstance(other, PoseCommand):
        pairs = [
            (one.position_w, other.position_w), (one.orientation_w, other.orientation_w),
            (one.gripper, other.gripper),
        ]  # fmt: skip
    elif isinstance(one, JointCommand) and isinstance(other, JointCommand):
        pairs = [(one.q, other.q), (one.gripper, other.gripper)]
    else:
        return False
    return all(_close(a, b, tolerance) for a, b in pairs)


def _close(one: np.ndarray | None, other: np.ndarray | None, tolerance: float) -> bool:
    if one is None or other is None:
        return one is other
    return bool(np.max(np.abs(one - other), initial=0.0) <= tolerance)
