"""The Go1's model against published numbers: frames, masses, inertias, limits."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import mujoco
import pytest

from sim.physics.mujoco_model import load_model
from tests.sim.robots.published import assert_link, principal
from tests.sim.robots.quadruped import (
    LegGeometry,
    assert_feet,
    assert_joints,
    joint_names,
    quadruped,
)

LEGS = ["FR", "FL", "RR", "RL"]

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
GEOMETRY = LegGeometry((0.1881, 0.04675), 0.08, 0.213, (0, 0, -0.213))
"""Origins of hip, thigh and calf (the same in the manufacturer's go1.urdf), and the foot [m]."""
LIMITS = {"hip": (-0.863, 0.863), "thigh": (-0.686, 4.501), "calf": (-2.818, -0.888)}
ROTOR_INERTIA, GEAR = 0.000111842, {"hip": 6, "thigh": 6, "calf": 9}
"""mjlab 1.6.0, unitree_go1/go1_constants.py, after the manufacturer's URDF [kg m^2]."""


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    robot = quadruped("go1")
    return load_model(robot.model, robot.spec, physics_dt=robot.physics_dt)


def test_joints_have_the_published_order_axes_limits_and_motors(model: mujoco.MjModel) -> None:
    assert_joints(
        model, quadruped("go1"), legs=LEGS, limits={"F": LIMITS, "R": LIMITS},
        efforts=[23.7, 23.7, 35.55], speeds=[30.1, 30.1, 20.06],
    )  # fmt: skip
    for name in joint_names(LEGS):
        armature = model.dof_armature[model.joint(name).dofadr[0]]
        assert armature == pytest.approx(ROTOR_INERTIA * GEAR[name.split("_")[1]] ** 2)


@pytest.mark.parametrize("leg", LEGS)
def test_links_weigh_what_is_published(model: mujoco.MjModel, leg: str) -> None:
    assert_link(model, f"{leg}_hip", HIPS[leg], atol=1e-12)
    assert_link(model, f"{leg}_thigh", THIGHS[leg[1]], atol=1e-12)
    assert_link(model, f"{leg}_calf", CALF, atol=1e-12)


def test_the_trunk_weighs_and_every_foot_lies_as_published(model):
    assert_link(model, "base", TRUNK, atol=1e-12)
    assert model.body_mass.sum() == pytest.approx(12.7434, abs=1e-4)  # [kg]
    assert_feet(model, LEGS, GEOMETRY)
