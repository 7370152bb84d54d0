"""Quadrupeds of configs/robot, and where their feet are by geometry."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from configs.compose import compose
from sim.joints.joint_robot import JointRobotConfig


def quadruped(name: str) -> JointRobotConfig:
    """The robot of configs/robot, stepped by one thread."""
    robot = compose(["task=velocity", f"robot={name}"]).config.robot
    return replace(robot, physics_threads=1)


def foot_by_hand(
    leg: str,
    angles: Sequence[float],
    hip_place: tuple[float, float],
    thigh_shift: float,
    shank_length: float,
    foot: tuple[float, float, float],
) -> np.ndarray:
    """A foot in the base's axes: hip about x, thigh and calf about y.

    Args:
        leg: F or R for front or rear, L or R for left or right.
        angles: Hip, thigh, calf [rad].
        hip_place: x and y of the front left hip in the base [m].
        thigh_shift: y of the left thigh in its hip [m].
        shank_length: The calf lies this far below the thigh [m].
        foot: The foot in the calf [m].
    """
    ahead, left = (1 if leg[0] == "F" else -1), (1 if leg[1] == "L" else -1)
    hip, thigh, calf = angles
    place = _about_y(calf) @ np.array(foot) + np.array([0, 0, -shank_length])
    place = _about_y(thigh) @ place + np.array([0, left * thigh_shift, 0])
    return _about_x(hip) @ place + np.array([ahead * hip_place[0], left * hip_place[1], 0])


def _about_x(angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[1, 0, 0], [0, c, -s], [0, s, c]])


def _about_y(angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])
