"""The Go2's model against published numbers: frames, masses, inertias, limits."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import mujoco
import numpy as np
import pytest

from sim.physics.mujoco_model import load_model
from tests.sim.robots.published import (
    Link,
    assert_link,
    assert_same_mechanism,
    mirrored,
    principal,
    published_model,
)
from tests.sim.robots.quadruped import LegGeometry, assert_feet, assert_joints, quadruped

LEGS = ["FL", "FR", "RL", "RR"]

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
GEOMETRY = LegGeometry((0.1934, 0.0465), 0.0955, 0.213, (-0.002, 0, -0.213))
"""Origins of hip, thigh and calf in the URDF, and the middle of the foot in the calf [m]."""
HIP_LIMIT, CALF_LIMIT = (-1.0472, 1.0472), (-2.7227, -0.83776)
LIMITS = {
    "F": {"hip": HIP_LIMIT, "thigh": (-1.5708, 3.4907), "calf": CALF_LIMIT},
    "R": {"hip": HIP_LIMIT, "thigh": (-0.5236, 4.5379), "calf": CALF_LIMIT},
}


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    robot = quadruped("go2")
    return load_model(robot.model, robot.spec, physics_dt=robot.physics_dt)


def test_joints_have_the_published_order_axes_limits_and_motors(model: mujoco.MjModel) -> None:
    assert_joints(
        model, quadruped("go2"), legs=LEGS, limits=LIMITS,
        efforts=[23.7, 23.7, 45.43], speeds=[30.1, 30.1, 15.7],
    )  # fmt: skip


@pytest.mark.parametrize("leg", LEGS)
def test_links_weigh_what_the_manufacturer_says(model: mujoco.MjModel, leg: str) -> None:
    right, rear = leg[1] == "R", leg[0] == "R"
    # Principal moments are published with six digits, the URDF's with three to six.
    assert_link(model, f"{leg}_hip", mirrored(FRONT_LEFT_HIP, x=rear, y=right), atol=1e-8)
    assert_link(model, f"{leg}_thigh", mirrored(LEFT_THIGH, y=right), atol=2e-8)
    assert_link(model, f"{leg}_calf", mirrored(LEFT_CALF, y=right), atol=1e-8)


def test_the_trunk_weighs_and_every_foot_lies_as_published(model):
    assert_link(model, "base", BASE, atol=5e-7)
    assert model.body_mass.sum() == pytest.approx(6.921 + 4 * (0.678 + 1.152 + 0.241352))
    assert model.body_mass.sum() == pytest.approx(15.2064, abs=1e-4)  # [kg]
    assert_feet(model, LEGS, GEOMETRY)


def test_links_joints_and_frames_are_those_of_the_published_model(model: mujoco.MjModel) -> None:
    theirs = published_model("go2.xml")
    bodies = ["base", *(f"{leg}_{part}" for leg in LEGS for part in ("hip", "thigh", "calf"))]
    same = {name: name for name in bodies}
    assert_same_mechanism(model, theirs, bodies=same, inertia_atol=1e-12)
    for leg in LEGS:
        np.testing.assert_allclose(model.geom(leg).pos, theirs.geom(leg).pos)
        assert model.geom(leg).size[0] == theirs.geom(leg).size[0]
    np.testing.assert_allclose(model.site("imu").pos, theirs.site("imu").pos)
