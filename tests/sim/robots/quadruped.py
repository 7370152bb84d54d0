"""Quadrupeds of configs/robot beside what is published: joints, and feet by geometry."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import mujoco
import numpy as np

from sim.robots.joint_robot import JointRobotConfig
from tests.compositions import composed


def quadruped(name: str) -> JointRobotConfig:
    """The robot of configs/robot, stepped by one thread."""
    robot = composed(["task=velocity", f"robot={name}"]).config.robot
    return replace(robot, physics_threads=1)


@dataclass(frozen=True)
class LegGeometry:
    """Where the joints of a leg are."""

    hip_place: tuple[float, float]
    """x and y of the front left hip in the base [m]."""
    thigh_shift: float
    """y of the left thigh in its hip [m]."""
    shank_length: float
    """The calf lies this far below the thigh [m]."""
    foot: tuple[float, float, float]
    """The foot in the calf [m]."""


def joint_names(legs: Sequence[str]) -> list[str]:
    """Hip, thigh and calf of every leg."""
    return [f"{leg}_{part}_joint" for leg in legs for part in ("hip", "thigh", "calf")]


def assert_joints(
    model: mujoco.MjModel,
    robot: JointRobotConfig,
    *,
    legs: Sequence[str],
    limits: Mapping[str, Mapping[str, tuple[float, float]]],
    efforts: Sequence[float],
    speeds: Sequence[float],
) -> None:
    """The model's joints have the published order, axes, limits and motors.

    Args:
        model: Compiled.
        robot: Its config.
        legs: In order.
        limits: Of positions [rad], by F or R for front or rear, then by hip, thigh and calf.
        efforts: Torques of hip, thigh and calf [N m].
        speeds: Of the same [rad/s].
    """
    names = joint_names(legs)
    assert [model.joint(i).name for i in range(model.njnt)] == ["base", *names]
    for name in names:
        axis = [1, 0, 0] if "hip" in name else [0, 1, 0]
        np.testing.assert_array_equal(model.joint(name).axis, axis)
        part = name.split("_")[1]
        np.testing.assert_allclose(model.joint(name).range, limits[name[0]][part])
    np.testing.assert_allclose(model.actuator_forcerange[:, 1], [*efforts] * len(legs))
    assert [joint.velocity_limit for joint in robot.spec.joints] == [*speeds] * len(legs)


def assert_feet(model: mujoco.MjModel, legs: Sequence[str], geometry: LegGeometry) -> None:
    """In random poses the model's feet, and their sensors, are where the lengths put them."""
    data = mujoco.MjData(model)
    data.qpos[:3] = 0
    rng = np.random.default_rng(0)
    for _ in range(20):
        data.qpos[7:] = rng.uniform(*model.jnt_range[1:].T)
        mujoco.mj_forward(model, data)
        for i, leg in enumerate(legs):
            foot = _foot_by_hand(leg, data.qpos[7 + 3 * i : 10 + 3 * i], geometry)
            np.testing.assert_allclose(data.geom(leg).xpos, foot, atol=1e-12)
            np.testing.assert_allclose(data.sensor(f"foot_position_w/{leg}").data, foot, atol=1e-12)


def _foot_by_hand(leg: str, angles: Sequence[float], geometry: LegGeometry) -> np.ndarray:
    """A foot in the base's axes: hip about x, thigh and calf about y.

    Args:
        leg: F or R for front or rear, L or R for left or right.
        angles: Hip, thigh, calf [rad].
        geometry: Lengths.
    """
    ahead, left = (1 if leg[0] == "F" else -1), (1 if leg[1] == "L" else -1)
    hip, thigh, calf = angles
    place = _about_y(calf) @ np.array(geometry.foot) + np.array([0, 0, -geometry.shank_length])
    place = _about_y(thigh) @ place + np.array([0, left * geometry.thigh_shift, 0])
    x, y = geometry.hip_place
    return _about_x(hip) @ place + np.array([ahead * x, left * y, 0])


def _about_x(angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[1, 0, 0], [0, c, -s], [0, s, c]])


def _about_y(angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])
