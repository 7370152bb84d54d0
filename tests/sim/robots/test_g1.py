"""The G1's model against published numbers: frames, masses, inertias, motors, left and right."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import mujoco
import numpy as np
import pytest

from sim.physics.mujoco_model import load_model
from sim.robots.joint_robot import JointRobotConfig
from tests.sim.joint_robots import joint_robot

FEET = ["left_foot", "right_foot"]
LEG = ["hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "ankle_roll"]
ARM = ["shoulder_pitch", "shoulder_roll", "shoulder_yaw", "elbow", "wrist_roll", "wrist_pitch",
       "wrist_yaw"]  # fmt: skip
WAIST = ["waist_yaw", "waist_roll", "waist_pitch"]

# Motors by Unitree, as mjlab has them (g1_constants.py): torque [N m], speed [rad/s], inertia
# of rotor, planet carrier and sun of the second stage [1e-4 kg m^2], ratios of both stages.
MOTORS = {
    "5020": (25, 37, (0.139, 0.017, 0.169), (1 + 46 / 18, 1 + 56 / 16)),
    "7520-14": (88, 32, (0.489, 0.098, 0.533), (4.5, 1 + 48 / 22)),
    "7520-22": (139, 20, (0.489, 0.109, 0.738), (4.5, 5)),
    "4010": (5, 22, (0.068, 0, 0), (5, 5)),
}
USES = {
    "hip_pitch": "7520-14", "hip_roll": "7520-22", "hip_yaw": "7520-14", "knee": "7520-22",
    "ankle_pitch": "5020", "ankle_roll": "5020", "waist_yaw": "7520-14", "waist_roll": "5020",
    "waist_pitch": "5020", "wrist_pitch": "4010", "wrist_yaw": "4010",
}  # fmt: skip
"""All others have a 5020."""
PAIRED = ["ankle_pitch", "ankle_roll", "waist_roll", "waist_pitch"]
"""Two motors move two joints."""


@pytest.fixture(scope="module")
def robot() -> JointRobotConfig:
    return joint_robot("g1", "velocity")


@pytest.fixture(scope="module")
def model(robot: JointRobotConfig) -> mujoco.MjModel:
    return load_model(robot.model, robot.spec, physics_dt=robot.physics_dt)


@pytest.mark.slow
def test_joints_have_the_published_order_and_motors(model, robot):
    kinds = [*(f"left_{part}" for part in LEG), *(f"right_{part}" for part in LEG), *WAIST,
             *(f"left_{part}" for part in ARM), *(f"right_{part}" for part in ARM)]  # fmt: skip
    assert robot.spec.joint_names == [f"{kind}_joint" for kind in kinds]
    for joint in robot.spec.joints:
        kind = joint.name.removeprefix("left_").removeprefix("right_").removesuffix("_joint")
        effort, speed, inertias, (first, second) = MOTORS[USES.get(kind, "5020")]
        rotor, carrier, sun = inertias
        armature = 1e-4 * (rotor * (first * second) ** 2 + carrier * second**2 + sun)
        count = 2 if kind in PAIRED else 1
        assert (joint.effort_limit, joint.velocity_limit) == (count * effort, speed)
        found = model.dof_armature[model.joint(joint.name).dofadr[0]]
        assert found == pytest.approx(count * armature, rel=1e-5)
        # mjlab's gains: 10 Hz and a damping ratio of 2 for the armature; four digits.
        rate = 2 * np.pi * 10
        assert joint.stiffness == pytest.approx(found * rate**2, rel=1e-3)
        assert joint.damping == pytest.approx(2 * 2 * found * rate, rel=1e-3)
        axis = {"pitch": [0, 1, 0], "roll": [1, 0, 0], "yaw": [0, 0, 1]}
        turns = axis.get(kind.rpartition("_")[2], [0, 1, 0])  # knees and elbows pitch
        np.testing.assert_array_equal(model.joint(joint.name).axis, turns)


def test_the_whole_weighs_what_its_parts_do(model: mujoco.MjModel) -> None:
    assert model.body_mass.sum() == pytest.approx(33.3411, abs=1e-4)  # [kg]


def test_stretched_legs_end_where_the_published_lengths_put_them(model: mujoco.MjModel) -> None:
    data = mujoco.MjData(model)
    data.qpos[:3] = 0
    mujoco.mj_forward(model, data)
    # The thigh leans by 0.1749 rad in its frame, which brings the knee below the hip again.
    lean = 0.1749
    x, z = 0.025001 - 0.078273, -0.12412 - 0.17734
    knee = np.sin(lean) * x + np.cos(lean) * z
    assert np.cos(lean) * x - np.sin(lean) * z == pytest.approx(0, abs=1e-4)
    sole = -0.1027 - 0.030465 + knee - 0.30001 - 0.017558 - 0.03 - 0.005
    beside = 0.064452 + 0.052 + 0.0021489 - 9.4445e-05
    assert sole == pytest.approx(-0.7919, abs=1e-4)
    for foot, sign in zip(FEET, (1, -1), strict=True):
        corners = [
            f"{foot}_{end}_{side}" for end in ("heel", "toe") for side in ("inside", "outside")
        ]
        soles = np.array([data.geom(name).xpos for name in corners])
        np.testing.assert_allclose(soles[:, 2] - 0.005, sole, atol=1e-4)
        np.testing.assert_allclose(soles.mean(0)[:2], [0.035, sign * beside], atol=1e-4)
        np.testing.assert_allclose(
            data.sensor(f"foot_position_w/{foot}").data, soles.mean(0), atol=1e-12
        )
