"""The G1's model against published numbers: frames, masses, inertias, motors, left and right."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from robot_rl.core.mirror import RobotMirror
from sim.physics.mujoco_model import load_model
from sim.robots.joint_robot import JointRobotConfig
from tests.sim.joint_robots import joint_robot
from tests.sim.robots.published import (
    MODELS,
    Link,
    assert_link,
    assert_same_mechanism,
    mirrored,
    published_model,
)

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

# Manufacturer's URDF: unitree_ros, g1_29dof_rev_1_0.urdf; of pairs the left one.
MIDDLE = {
    "pelvis": Link(3.813, (0, 0, -0.07605), (0.010549, 0.0093089, 0.0079184, 0, 2.1e-06, 0)),
    "waist_yaw_link": Link(
        0.214, (0.003494, 0.000233, 0.018034),
        (0.00010673, 0.00010422, 0.0001625, 2.703e-06, -7.631e-06, -2.01e-07),
    ),
    "waist_roll_link": Link(0.086, (0, 2.3e-05, 0), (7.079e-06, 6.339e-06, 8.245e-06, 0, 0, 0)),
}  # fmt: skip
SIDES = {
    "hip_pitch_link": Link(
        1.35, (0.002741, 0.047791, -0.02606),
        (0.001811, 0.0014193, 0.0012812, 3.68e-05, -3.44e-05, 0.000171),
    ),
    "hip_roll_link": Link(
        1.52, (0.029812, -0.001045, -0.087934),
        (0.0023773, 0.0024123, 0.0016595, -3.8e-06, -0.0003908, 1.84e-05),
    ),
    "hip_yaw_link": Link(
        1.702, (-0.057709, -0.010981, -0.15078),
        (0.0057774, 0.0076124, 0.003149, -0.0005411, -0.0023948, -0.0007072),
    ),
    "ankle_pitch_link": Link(
        0.074, (-0.007269, 0, 0.011137), (8.4e-06, 1.89e-05, 1.26e-05, 0, -2.9e-06, 0)
    ),
    "ankle_roll_link": Link(
        0.608, (0.026505, 0, -0.016425),
        (0.0002231, 0.0016161, 0.0016667, 2e-07, 8.91e-05, -1e-07),
    ),
}  # fmt: skip
# The URDF mirrors the knee's inertia with a wrong sign of xz; only the left one is compared.
LEFT_KNEE = Link(
    1.932, (0.005457, 0.003964, -0.12074),
    (0.011329, 0.011277, 0.0015168, 4.82e-05, -4.49e-05, -0.0007146),
)  # fmt: skip


def g1() -> JointRobotConfig:
    """The robot of configs/robot/g1.yaml, stepped by one thread."""
    return joint_robot("g1", "velocity")


def load(robot: JointRobotConfig) -> mujoco.MjModel:
    return load_model(
        robot.model, robot.spec, physics_dt=robot.physics_dt, menagerie=robot.menagerie
    )


@pytest.fixture(scope="module")
def robot() -> JointRobotConfig:
    return g1()


@pytest.fixture
def model(robot: JointRobotConfig) -> mujoco.MjModel:
    return load(robot)


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


@pytest.mark.parametrize("name", MIDDLE)
def test_links_in_the_middle_weigh_what_the_manufacturer_says(model, name):
    assert_link(model, name, MIDDLE[name], atol=1e-8)


@pytest.mark.parametrize("name", SIDES)
def test_legs_weigh_what_the_manufacturer_says(model, name):
    # Principal moments are published with six digits, the URDF's with two to five.
    assert_link(model, f"left_{name}", SIDES[name], atol=6e-8)
    assert_link(model, f"right_{name}", mirrored(SIDES[name], y=True), atol=6e-8)


def test_the_whole_weighs_what_its_parts_do(model: mujoco.MjModel) -> None:
    assert_link(model, "left_knee_link", LEFT_KNEE, atol=6e-8)
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


def test_links_joints_and_frames_are_those_of_the_published_model(model: mujoco.MjModel) -> None:
    theirs = published_model("g1.xml")
    bodies = [model.body(i).name for i in range(1, model.nbody)]
    assert_same_mechanism(model, theirs, bodies={name: name for name in bodies}, inertia_atol=1e-12)
    assert len(bodies) == theirs.nbody - 1 == 30
    np.testing.assert_allclose(model.actuator_forcerange, theirs.jnt_actfrcrange[1:])
    np.testing.assert_allclose(model.site("imu").pos, theirs.site("imu_in_pelvis").pos)
    for side in ("left", "right"):
        link = f"{side}_ankle_roll_link"
        ours = {tuple(model.geom_pos[i]) for i in model.body(link).geomadr + np.arange(6)}
        first = int(theirs.body(link).geomadr[0])
        assert {tuple(theirs.geom_pos[i]) for i in range(first, first + 4)} <= ours


def test_the_published_mechanism_carries_our_motors_and_sensors(robot, tmp_path, monkeypatch):
    if not (MODELS / "g1.xml").is_file():
        pytest.skip("no published g1.xml beside the repository")
    monkeypatch.setenv("MENAGERIE_ROOT", str(tmp_path))
    (tmp_path / "unitree_g1").mkdir()
    (tmp_path / "unitree_g1" / "g1.xml").write_text((MODELS / "g1.xml").read_text())
    readings = []
    for each in (load(replace(robot, model="menagerie")), load(robot)):
        data = mujoco.MjData(each)
        data.qpos[2] = 1.5  # in the air
        data.qpos[7:] = [joint.default_position for joint in robot.spec.joints]
        data.qvel[:6] = np.linspace(-1, 1, 6)
        mujoco.mj_forward(each, data)
        seen = [data.sensor(f"foot_{what}_w/{foot}").data.copy()
                for foot in FEET for what in ("position", "velocity")]  # fmt: skip
        contacts = [data.sensor(f"foot_force/{foot}").data.copy() for foot in FEET]
        readings.append([*seen, *contacts, data.sensor("body_contact/torso_link").data.copy()])
    for one, other in zip(*readings, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4)


def test_left_and_right_are_mirror_images(robot: JointRobotConfig, model: mujoco.MjModel) -> None:
    mirror = RobotMirror(robot.spec)
    rng = np.random.default_rng(0)
    one, other = mujoco.MjData(model), mujoco.MjData(model)
    names = [model.body(i).name for i in range(1, model.nbody)]
    for _ in range(10):
        pose = rng.uniform(*model.jnt_range[1:].T)
        image = pose[list(mirror.joints.source)] * np.array(mirror.joints.sign)
        one.qpos[7:], other.qpos[7:] = pose, image
        mujoco.mj_kinematics(model, one)
        mujoco.mj_kinematics(model, other)
        for name, counterpart in zip(names, mirror.counterparts(names), strict=True):
            expected = one.body(name).xpos * [1, -1, 1]
            # The manufacturer's shoulders are 10 micrometres askew.
            np.testing.assert_allclose(other.body(names[counterpart]).xpos, expected, atol=5e-5)
    assert [robot.spec.feet[i] for i in mirror.feet.source] == FEET[::-1]
