"""Models of quadrupeds against published numbers: frames, masses, inertias, limits."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

from collections.abc import Sequence
from typing import NamedTuple

import mujoco
import numpy as np
import pytest

from robot_rl.core import quaternion
from sim.physics.mujoco_model import load_model
from tests.sim.joint_robots import joint_robot
from tests.sim.robots.published import Link, assert_link, mirrored, principal

PARTS = ("hip", "thigh", "calf")


class LegGeometry(NamedTuple):
    """Places of a leg's joints [m]: x and y of the front left hip in the base, y of the left thigh
    in its hip, how far the calf lies below the thigh, and the foot in the calf."""

    hip_place: tuple[float, float]
    thigh_shift: float
    shank_length: float
    foot: tuple[float, float, float]


class Published(NamedTuple):
    """Links by leg and part, limits [rad] by F or R and part, torques [N m] and speeds [rad/s] of
    hip, thigh and calf, the mass of all [kg], tolerance of inertias [kg m^2]."""

    legs: Sequence[str]
    base: Link
    links: dict[str, dict[str, Link]]
    limits: dict[str, dict[str, tuple[float, float]]]
    efforts: Sequence[float]
    speeds: Sequence[float]
    geometry: LegGeometry
    mass: float
    atol: float


# MuJoCo Menagerie, unitree_go1/go1.xml, as in mjlab 1.6.0 (BSD-3-Clause, Unitree Robotics): mass
# [kg], centre of mass [m], attitude wxyz of the principal axes, principal moments [kg m^2].
TRUNK = principal(
    5.204, (0.0223, 0.002, -0.0005), (-0.00342088, 0.705204, 0.000106698, 0.708996),
    (0.0716565, 0.0630105, 0.0168101),
)  # fmt: skip
HIP_MOMENTS = (0.000734064, 0.000468438, 0.000398719)
HIPS = {
    leg: principal(0.68, (x, y, -8.865e-05), axes, HIP_MOMENTS)
    for leg, x, y, axes in (
        ("FR", -0.0049166, 0.00762615, (0.507341, 0.514169, 0.495027, 0.482891)),
        ("FL", -0.0049166, -0.00762615, (0.482891, 0.495027, 0.514169, 0.507341)),
        ("RR", 0.0049166, 0.00762615, (0.495027, 0.482891, 0.507341, 0.514169)),
        ("RL", 0.0049166, -0.00762615, (0.514169, 0.507341, 0.482891, 0.495027)),
    )
}
THIGH_MOMENTS = (0.00478717, 0.00460903, 0.000709268)
THIGHS = {
    side: principal(1.009, (-0.00304722, y, -0.0305004), axes, THIGH_MOMENTS)
    for side, y, axes in (
        ("R", 0.019315, (0.65243, -0.0272313, 0.0775126, 0.753383)),
        ("L", -0.019315, (0.753383, 0.0775126, -0.0272313, 0.65243)),
    )
}
CALF = principal(
    0.195862, (0.00429862, 0.000976676, -0.146197), (0.691246, 0.00357467, 0.00511118, 0.722592),
    (0.00149767, 0.00148468, 3.58427e-05),
)  # fmt: skip
GO1_LIMITS = {"hip": (-0.863, 0.863), "thigh": (-0.686, 4.501), "calf": (-2.818, -0.888)}
ROTOR_INERTIA, GEAR = 0.000111842, {"hip": 6, "thigh": 6, "calf": 9}
"""mjlab 1.6.0, unitree_go1/go1_constants.py, after the manufacturer's URDF [kg m^2]."""

# Manufacturer's URDF: unitree_ros, go2_description.urdf, links base, FL_hip, FL_thigh.
BASE = Link(
    6.921, (0.021112, 0, -0.005366), (0.02448, 0.098077, 0.107, 0.00012166, 0.0014849, -3.12e-05)
)
FRONT_LEFT_HIP = Link(
    0.678, (-0.0054, 0.00194, -0.000105),
    (0.00048, 0.000884, 0.000596, -3.01e-06, 1.11e-06, -1.42e-06),
)  # fmt: skip
LEFT_THIGH = Link(
    1.152, (-0.00374, -0.0223, -0.0327), (0.00584, 0.0058, 0.00103, 8.72e-05, -0.000289, 0.000808)
)
# MuJoCo Menagerie, unitree_go2/go2.xml, FL_calf: the URDF's calf, lower calf and foot together.
LEFT_CALF = principal(
    0.241352, (0.00629595, -0.000622121, -0.141417),
    (0.710672, 0.00154099, -0.00450087, 0.703508), (0.0014901, 0.00146356, 5.31397e-05),
)  # fmt: skip
HIP_LIMIT, CALF_LIMIT = (-1.0472, 1.0472), (-2.7227, -0.83776)
GO2_LEGS = ["FL", "FR", "RL", "RR"]
PUBLISHED = {
    "go1": Published(
        legs=["FR", "FL", "RR", "RL"], base=TRUNK,
        links={
            leg: {"hip": hip, "thigh": THIGHS[leg[1]], "calf": CALF} for leg, hip in HIPS.items()
        },
        limits={"F": GO1_LIMITS, "R": GO1_LIMITS}, efforts=[23.7, 23.7, 35.55],
        speeds=[30.1, 30.1, 20.06], mass=12.7434, atol=1e-12,
        # Origins of hip, thigh and calf (the same in the manufacturer's go1.urdf), and the foot.
        geometry=LegGeometry((0.1881, 0.04675), 0.08, 0.213, (0, 0, -0.213)),
    ),
    "go2": Published(
        legs=GO2_LEGS, base=BASE,
        # Principal moments are published with six digits, the URDF's with three to six.
        links={
            leg: {
                "hip": mirrored(FRONT_LEFT_HIP, x=leg[0] == "R", y=leg[1] == "R"),
                "thigh": mirrored(LEFT_THIGH, y=leg[1] == "R"),
                "calf": mirrored(LEFT_CALF, y=leg[1] == "R"),
            }
            for leg in GO2_LEGS
        },
        limits={
            "F": {"hip": HIP_LIMIT, "thigh": (-1.5708, 3.4907), "calf": CALF_LIMIT},
            "R": {"hip": HIP_LIMIT, "thigh": (-0.5236, 4.5379), "calf": CALF_LIMIT},
        },
        efforts=[23.7, 23.7, 45.43], speeds=[30.1, 30.1, 15.7], mass=15.2064, atol=5e-7,
        # Origins of hip, thigh and calf in the URDF, and the middle of the foot in the calf.
        geometry=LegGeometry((0.1934, 0.0465), 0.0955, 0.213, (-0.002, 0, -0.213)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_joints_links_and_feet_are_the_published_ones(name: str) -> None:
    robot, numbers = joint_robot(name, "velocity"), PUBLISHED[name]
    model = load_model(robot.model, robot.spec, physics_dt=robot.physics_dt)
    names = [f"{leg}_{part}_joint" for leg in numbers.legs for part in PARTS]
    assert [model.joint(i).name for i in range(model.njnt)] == ["base", *names]
    for joint in names:
        leg, part, _ = joint.split("_")
        np.testing.assert_array_equal(model.joint(joint).axis, [part == "hip", part != "hip", 0])
        np.testing.assert_allclose(model.joint(joint).range, numbers.limits[leg[0]][part])
        if name == "go1":
            armature = model.dof_armature[model.joint(joint).dofadr[0]]
            assert armature == pytest.approx(ROTOR_INERTIA * GEAR[part] ** 2)
    np.testing.assert_allclose(model.actuator_forcerange[:, 1], [*numbers.efforts] * 4)
    assert [joint.velocity_limit for joint in robot.spec.joints] == [*numbers.speeds] * 4
    assert_link(model, "base", numbers.base, atol=numbers.atol)
    for leg, links in numbers.links.items():
        for part, link in links.items():
            assert_link(
                model,
                f"{leg}_{part}",
                link,
                atol=min(numbers.atol, 2e-8 if part == "thigh" else 1e-8),
            )
    assert model.body_mass.sum() == pytest.approx(numbers.mass, abs=1e-4)
    assert_feet(model, numbers.legs, numbers.geometry)


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
    place = _turn(0, calf, 0) @ np.array(geometry.foot) + np.array([0, 0, -geometry.shank_length])
    place = _turn(0, thigh, 0) @ place + np.array([0, left * geometry.thigh_shift, 0])
    x, y = geometry.hip_place
    return _turn(hip, 0, 0) @ place + np.array([ahead * x, left * y, 0])


def _turn(*vector: float) -> np.ndarray:
    """Matrix of a rotation vector [rad]."""
    return quaternion.rotation_matrix(quaternion.from_rotation_vector(np.array(vector))).reshape(
        3, 3
    )
