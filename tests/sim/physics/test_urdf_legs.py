"""A walking robot's URDF becomes a model that stands on its feet; what it lacks is told."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import mujoco
import numpy as np
import pytest

from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import RobotMirror
from robot_rl.core.robot import CommandKind, RobotSpec
from sim.physics.mujoco_model import load_model
from sim.physics.urdf import joint_urdf
from sim.physics.urdf_legs import ImportedLegs, import_legs, stands
from tests.compositions import composed
from tests.urdf_dog import FEET, LEGS, MASS, RADIUS, SHANK, THIGH, TIP, four_legged_urdf


def imported(folder, text: str, feet=FEET) -> ImportedLegs:
    file = folder / "dog.urdf"
    file.write_text(text)
    return import_legs(file, name="dog", feet=feet, mesh_folder="dog_meshes")


def written(folder, robot: ImportedLegs) -> tuple[str, RobotSpec]:
    file = folder / "dog.xml"
    file.write_text(robot.mjcf)
    spec = RobotSpec(name="dog", joints=robot.joints, feet=robot.feet, command=CommandKind.joint)
    return str(file), spec


def in_pose(robot: ImportedLegs) -> tuple[mujoco.MjModel, mujoco.MjData]:
    model = mujoco.MjModel.from_xml_string(robot.mjcf)
    data = mujoco.MjData(model)
    data.qpos[:3] = 0, 0, robot.height
    data.qpos[7:] = [joint.default_position for joint in robot.joints]
    mujoco.mj_forward(model, data)
    return model, data


@pytest.mark.parametrize("floating", [False, True])
def test_a_robot_stands_on_its_feet_below_its_hips(tmp_path, floating):
    robot = imported(tmp_path, four_legged_urdf(floating=floating))
    assert robot.mass == pytest.approx(MASS)
    assert robot.payload_body == "trunk"
    assert robot.offsets == [0.0, 0.5, 0.5, 0.0]  # a trot
    assert robot.foot_height == pytest.approx(RADIUS, abs=1e-3)
    longest = np.hypot(THIGH + SHANK * np.cos(0.3), SHANK * np.sin(0.3))
    assert robot.height == pytest.approx(0.8 * longest + RADIUS, rel=0.03)
    _, data = in_pose(robot)
    for leg, (x, y) in LEGS.items():
        np.testing.assert_allclose(
            data.site(f"{leg}_foot").xpos, [0.18 * x, 0.11 * y, RADIUS], atol=5e-3
        )
    by_name = {joint.name: joint for joint in robot.joints}
    for joint in robot.joints:
        low, high = joint.position_limit
        assert low <= joint.default_position <= high
        assert joint.effort_limit == joint.velocity_limit == 20
    assert len({by_name[f"{leg}_knee"].default_position for leg in LEGS}) == 1
    settled = stands(*written(tmp_path, robot), physics_dt=0.005, height=robot.height + 0.01)
    assert settled == pytest.approx(robot.height, abs=0.02)


def test_feet_feel_the_ground_and_nothing_else_touches_it(tmp_path):
    robot = imported(tmp_path, four_legged_urdf())
    model = load_model(*written(tmp_path, robot), physics_dt=0.005)
    data = mujoco.MjData(model)
    data.qpos[2] = robot.height
    data.qpos[7:] = [joint.default_position for joint in robot.joints]
    data.ctrl[:] = [joint.stiffness * joint.default_position for joint in robot.joints]
    while data.time < 2:
        mujoco.mj_step(model, data)
    felt = sum(data.sensor(f"foot_force/{foot}").data.item() for foot in FEET)
    assert felt == pytest.approx(9.81 * MASS, rel=0.02)
    assert data.sensor("body_contact/trunk").data.item() == 0
    data.qpos[:3], data.qpos[3:7] = [0, 0, 0.05], [0, 1, 0, 0]  # on its back
    mujoco.mj_forward(model, data)
    assert data.sensor("body_contact/trunk").data.item() > 0
    assert data.sensor("foot_force/front_left_foot").data.item() == 0


def published(robot: str) -> RobotSpec:
    return composed(["task=velocity", f"robot={robot}"]).config.robot.spec


def round_trip(tmp_path, name: str, feet: list[str]) -> ImportedLegs:
    config = composed(["task=velocity", f"robot={name}"]).config.robot
    model = load_model(config.model, config.spec, physics_dt=0.005)
    return imported(tmp_path, joint_urdf(model, config.spec), feet)


@pytest.mark.parametrize(
    ("name", "feet"),
    [
        ("go2", ["FL_calf", "FR_calf", "RL_calf", "RR_calf"]),
        ("g1", ["left_ankle_roll_link", "right_ankle_roll_link"]),
    ],
)
def test_left_and_right_of_our_own_robots_are_found_as_they_are_described(tmp_path, name, feet):
    own, robot = published(name), round_trip(tmp_path, name, feet)
    assert [joint.name for joint in robot.joints] == own.joint_names
    assert own.mirror is not None
    assert robot.mirror is not None
    assert robot.mirror.swap == own.mirror.swap
    assert set(robot.mirror.reversed) == set(own.mirror.reversed)
    RobotMirror(
        RobotSpec(name="dog", joints=robot.joints, feet=feet, mirror=robot.mirror)
    )  # refuses poses that are no mirror images of themselves


def test_a_humanoid_keeps_its_feet_level_and_its_knees_bent_alike(tmp_path):
    robot = round_trip(tmp_path, "g1", ["left_ankle_roll_link", "right_ankle_roll_link"])
    _, data = in_pose(robot)
    for foot in robot.feet:
        assert data.site(foot).xmat[8] > 0.999
    knees = [joint.default_position for joint in robot.joints if "knee" in joint.name]
    assert knees[0] == knees[1] > 0.2
    assert 0.7 < robot.height < 0.79
    assert robot.offsets == [0.0, 0.5]


def test_legs_that_cannot_bend_enough_stand_as_near_to_it_as_they_can(tmp_path):
    robot = imported(tmp_path, four_legged_urdf(knees="-0.5"))
    assert any("m off, as limits allow" in line for line in robot.missing)
    _, data = in_pose(robot)
    for foot in FEET:
        assert data.site(foot).xpos[2] < 0.03
    assert 0.24 < robot.height < 0.34  # not with its legs spread on its belly
    assert stands(*written(tmp_path, robot), physics_dt=0.005, height=robot.height + 0.01)


def test_a_foot_may_have_the_name_of_our_inertial_sensor(tmp_path):
    text = four_legged_urdf().replace("front_left_foot", "imu")
    robot = imported(tmp_path, text, ["imu", *FEET[1:]])
    assert robot.feet[0] == "imu"
    assert "imu_of_base" in robot.mjcf


def with_spine(text: str) -> str:
    """The dog with its rear legs behind a joint that turns about z."""
    rear = (
        '<link name="rump"><inertial><mass value="1"/><inertia ixx="0.01" ixy="0" ixz="0" '
        'iyy="0.01" iyz="0" izz="0.01"/></inertial></link><joint name="spine" type="revolute">'
        '<parent link="trunk"/><child link="rump"/><axis xyz="0 0 1"/><limit lower="-0.6" '
        'upper="0.6" effort="20" velocity="20"/></joint></robot>'
    )
    for side in ("left", "right"):
        text = text.replace(
            f'<parent link="trunk"/><child link="rear_{side}_hip"/>',
            f'<parent link="rump"/><child link="rear_{side}_hip"/>',
        )
    return text.replace("</robot>", rear)


def test_a_joint_of_several_feet_stays_and_every_foot_is_below_its_hip(tmp_path):
    robot = imported(tmp_path, with_spine(four_legged_urdf()))
    by_name = {joint.name: joint for joint in robot.joints}
    assert by_name["spine"].default_position == 0
    _, data = in_pose(robot)
    for leg, (x, y) in LEGS.items():
        np.testing.assert_allclose(
            data.site(f"{leg}_foot").xpos, [0.18 * x, 0.11 * y, RADIUS], atol=5e-3
        )
    assert robot.mirror is not None
    assert "spine" in robot.mirror.reversed
    assert not any("as limits allow" in line for line in robot.missing)


def test_frames_above_the_body_are_none_of_its_height(tmp_path):
    frames = (
        '<link name="base_footprint"/><joint name="up" type="fixed"><parent '
        'link="base_footprint"/><child link="base_link"/><origin xyz="0 0 0.3"/></joint>'
        '<link name="base_link"/><joint name="same" type="fixed"><parent link="base_link"/>'
        '<child link="trunk"/></joint></robot>'
    )
    plain = imported(tmp_path, four_legged_urdf())
    robot = imported(tmp_path, four_legged_urdf().replace("</robot>", frames))
    assert (robot.height, robot.mjcf) == (plain.height, plain.mjcf)


def test_the_sole_is_what_is_lowest_in_the_pose_not_at_zero(tmp_path):
    shanks = [f"{leg}_shank" for leg in LEGS]
    robot = imported(tmp_path, four_legged_urdf(forward=True), shanks)
    assert robot.foot_height == pytest.approx(TIP, abs=1e-3)
    model, data = in_pose(robot)
    for leg, shank in zip(LEGS, shanks, strict=True):
        np.testing.assert_allclose(model.site(shank).pos, [0, 0, -SHANK], atol=1e-6)
        place, hip = data.site(shank).xpos, data.body(f"{leg}_thigh").xpos
        np.testing.assert_allclose(place, [hip[0], hip[1], TIP], atol=5e-3)


def test_a_joint_that_slides_is_stiff_enough_to_stand(tmp_path):
    text = four_legged_urdf(knees="-0.5")
    for leg in LEGS:
        at = text.index(f'<joint name="{leg}_knee" type="revolute">')
        knee = text[at:].replace("revolute", "prismatic", 1).replace("0 1 0", "0 0 1", 1)
        knee = knee.replace('lower="-0.5" upper="-0.3"', 'lower="-0.05" upper="0.1"', 1)
        text = text[:at] + knee.replace('effort="20"', 'effort="60"', 1)
    robot = imported(tmp_path, text)
    assert {joint.stiffness for joint in robot.joints if "knee" in joint.name} == {1200.0}
    settled = stands(*written(tmp_path, robot), physics_dt=0.001, height=robot.height + 0.01)
    assert settled == pytest.approx(robot.height, rel=0.1)


def test_a_shape_may_have_the_name_of_our_floor(tmp_path):
    text = four_legged_urdf().replace("<collision>", '<collision name="floor">')
    assert imported(tmp_path, text).mjcf == imported(tmp_path, four_legged_urdf()).mjcf


def test_sides_are_found_by_places_too(tmp_path):
    text = four_legged_urdf()
    at = text.index('<joint name="rear_left_abduction"')
    aside = text[:at] + text[at:].replace("0.06", "0.09", 1)
    robot = imported(tmp_path, aside)
    assert robot.mirror is None
    assert any("being each other's mirror images" in line for line in robot.missing)
    # A dog that looks along y: its left is in front.
    turned = text.replace('name="trunk"', 'name="body"', 1).replace(
        '<robot name="Small Dog">',
        '<robot name="Small Dog"><link name="trunk">'
        '<inertial><mass value="1"/><inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" '
        'izz="0.01"/></inertial></link><joint name="turn" type="fixed"><parent link="trunk"/>'
        '<child link="body"/></joint>',
    )
    turned = turned.replace(
        '<parent link="trunk"/><child link="f', '<parent link="body"/><child link="f'
    )
    turned = turned.replace(
        '<parent link="trunk"/><child link="r', '<parent link="body"/><child link="r'
    )
    turned = turned.replace(
        '<child link="body"/></joint>', '<child link="body"/><origin rpy="0 0 1.5707963"/></joint>'
    )
    assert imported(tmp_path, turned).mirror is None


def test_pairs_of_either_order_of_the_letters_are_known(tmp_path):
    letters = {"front_left": "LF", "front_right": "RF", "rear_left": "LB", "rear_right": "RB"}
    text, feet = four_legged_urdf(), FEET
    for name, short in letters.items():
        text, feet = text.replace(name, short), [foot.replace(name, short) for foot in feet]
    robot = imported(tmp_path, text, feet)
    assert robot.mirror is not None
    assert robot.mirror.swap == {"LF": "RF", "LB": "RB"}


def test_names_or_axes_without_a_mirror_are_told(tmp_path):
    text = four_legged_urdf()
    nameless = imported(
        tmp_path, text.replace("left", "port"), [f.replace("left", "port") for f in FEET]
    )
    assert nameless.mirror is None
    assert any("left and right: not found in the names" in line for line in nameless.missing)
    at = text.index('<joint name="rear_left_knee"')
    turned = text[:at] + text[at:].replace("0 1 0", "0 0.6 0.8", 1)
    assert any(
        "no" in line and "mirror images" in line for line in imported(tmp_path, turned).missing
    )
    narrow = text[:at] + text[at:].replace('upper="-0.3"', 'upper="-0.2"', 1)
    assert any("different limits" in line for line in imported(tmp_path, narrow).missing)


@pytest.mark.parametrize(
    ("feet", "told"),
    [
        (["paw", *FEET], r"has no link \['paw'\] for feet; links at an end are: front"),
        (FEET[:1], "feet: expected two or more different links"),
        ([FEET[0], FEET[0]], "feet: expected two or more different links"),
        (["trunk", FEET[0]], r"0 joint\(s\) move foot 'trunk'; a leg needs two or more"),
        (["front_left_hip", FEET[0]], r"1 joint\(s\) move foot 'front_left_hip'"),
    ],
)
def test_feet_that_cannot_be_are_refused(tmp_path, feet, told):
    with pytest.raises(ConfigError, match=told):
        imported(tmp_path, four_legged_urdf(), feet)


def test_a_foot_without_a_shape_and_a_floating_joint_elsewhere_are_refused(tmp_path):
    text = four_legged_urdf()
    bare = text.replace(f'<sphere radius="{RADIUS}"/>', "", 1)
    start = bare.index("<collision>", bare.index('name="front_left_foot"'))
    end = bare.index("</collision>", start) + len("</collision>")
    told = "'front_left_foot' has no shape to stand on; .* above it that has: front_left_shank"
    with pytest.raises(ConfigError, match=told):
        imported(tmp_path, bare[:start] + bare[end:])
    loose = text.replace('name="rear_left_knee" type="revolute"', 'name="k" type="floating"')
    with pytest.raises(ConfigError, match="joint 'k' is floating; expected one such joint at most"):
        imported(tmp_path, loose)
    wheel = text.replace('name="rear_left_ankle" type="fixed"', 'name="wheel" type="continuous"')
    at = wheel.index('name="wheel"')
    limits = '<limit effort="5" velocity="50"/></joint>'
    wheel = wheel[:at] + wheel[at:].replace("</joint>", limits, 1)
    with pytest.raises(ConfigError, match="joint 'wheel' of foot 'rear_left_foot' is continuous"):
        imported(tmp_path, wheel)
