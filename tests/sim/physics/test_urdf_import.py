"""An arm's URDF becomes a model of ours, and what it lacks is told, not guessed in silence."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import mujoco
import numpy as np
import pytest

from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import RobotSpec
from sim.physics.mujoco_model import load_model
from sim.physics.urdf import joint_urdf
from sim.physics.urdf_import import ImportedArm, import_urdf
from tests.compositions import composed
from tests.urdf_arm import EFFORTS, JOINTS, LENGTHS, six_joint_urdf, tetrahedron_stl


def imported(folder, text: str, **options: str) -> ImportedArm:
    file = folder / "arm.urdf"
    file.write_text(text)
    return import_urdf(file, name="six", mesh_folder="six_meshes", **options)


def compiled(arm: ImportedArm) -> mujoco.MjModel:
    assets = {f"six_meshes/{name}": path.read_bytes() for name, path in arm.meshes.items()}
    return mujoco.MjModel.from_xml_string(arm.mjcf, assets)


def test_limits_efforts_speeds_and_masses_are_those_of_the_urdf(tmp_path):
    arm = imported(tmp_path, six_joint_urdf())
    assert [joint.name for joint in arm.joints] == list(JOINTS)
    assert [joint.position_limit for joint in arm.joints] == [
        [-(2 + i / 10), 2.5] for i in range(6)
    ]
    assert [joint.velocity_limit for joint in arm.joints] == [3 + i / 10 for i in range(6)]
    assert [joint.effort_limit for joint in arm.joints] == list(EFFORTS)
    for joint in arm.joints:
        assert joint.position_limit[0] <= joint.default_position <= joint.position_limit[1]
        assert joint.stiffness > 0 < joint.damping
    assert (arm.end_effector, arm.payload_body) == ("tool0", "link_6")
    assert arm.mass == pytest.approx(6.0)
    assert 0 < arm.tip[2] < arm.reach <= 0.1 + sum(LENGTHS) + 1e-6
    model = compiled(arm)
    assert model.nu == 0  # motors are the spec's
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)  # stretched upwards
    tip = data.sensor("end_effector_position_b").data
    np.testing.assert_allclose(tip, [0, 0, 0.1 + sum(LENGTHS)], atol=1e-6)
    np.testing.assert_allclose(model.dof_damping.ravel(), 0.5)
    assert any(line.startswith("gains") for line in arm.missing)
    assert "visual shapes: 7 left out, collision shapes are drawn" in arm.missing


def gripper_urdf(**changed):
    """The arm with two fingers at its tool, the second of which follows the first."""
    finger = '<link name="{0}"><inertial><mass value="0.1"/>{1}</inertial></link>'
    inertia = '<inertia ixx="1e-4" ixy="0" ixz="0" iyy="1e-4" iyz="0" izz="1e-4"/>'
    joint = (
        '<joint name="{0}" type="{3}"><parent link="tool0"/><child link="{1}"/>'
        '<axis xyz="1 0 0"/><limit lower="{4}" upper="0.04" effort="20" velocity="0.2"/>{2}</joint>'
    )
    of = {"kind": "prismatic", "lower": "0", "leader": "f1"} | changed
    mimic = f'<mimic joint="{of["leader"]}" multiplier="1"/>'
    parts = [
        *(finger.format(name, inertia) for name in ("left", "right")),
        joint.format("f1", "left", "", "prismatic", "0"),
        joint.format("f2", "right", mimic, of["kind"], of["lower"]),
    ]
    return six_joint_urdf().replace("</robot>", "".join(parts) + "</robot>")


def test_a_finger_that_follows_another_is_fixed_and_is_no_end_effector(tmp_path):
    with pytest.raises(ConfigError, match="several links at its end"):
        imported(tmp_path, gripper_urdf())
    arm = imported(tmp_path, gripper_urdf(), end_effector="tool0")
    assert [joint.name for joint in arm.joints] == [*JOINTS, "f1"]
    assert "joint 'f2': it mimics 'f1', and stands fixed at 0" in arm.missing


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"leader": "nowhere"}, "mimics 'nowhere', which is no joint of this URDF"),
        ({"lower": "0.01"}, "would be fixed at 0, which lies outside its limits of 0.01 to 0.04"),
        ({"kind": "floating"}, "'f2' is floating"),
        ({"kind": "banana"}, "'f2' is banana; expected"),
    ],
)
def test_a_joint_that_cannot_stand_in_for_one_that_follows_is_refused(tmp_path, changed, told):
    with pytest.raises(ConfigError, match=told):
        imported(tmp_path, gripper_urdf(**changed), end_effector="tool0")


def test_a_joint_that_follows_another_in_the_arm_itself_is_refused(tmp_path):
    text = six_joint_urdf()
    at = text.index('<joint name="elbow"')
    text = text[:at] + text[at:].replace("<dynamics", '<mimic joint="pan"/><dynamics', 1)
    with pytest.raises(ConfigError, match="'elbow' mimics 'pan' and moves the end effector"):
        imported(tmp_path, text)


def test_a_continuous_joint_gets_limits_which_are_told_or_keeps_its_own(tmp_path):
    text = six_joint_urdf().replace("revolute", "continuous", 1)
    own = imported(tmp_path, text)
    assert own.joints[0].position_limit == [-2.0, 2.5]
    assert not any("continuous" in line for line in own.missing)
    arm = imported(tmp_path, text.replace('lower="-2.0" upper="2.5" ', "", 1))
    assert arm.joints[0].position_limit == pytest.approx([-2 * np.pi, 2 * np.pi], abs=1e-4)
    told = "limits of joint 'pan', which is continuous: one turn either way"
    assert any(told in line for line in arm.missing)


def test_a_world_link_above_the_base_is_no_part_of_the_robot(tmp_path):
    world = (
        '<link name="world"/><joint name="stand" type="fixed"><parent link="world"/>'
        '<child link="base_link"/><origin xyz="0 0 0.7"/></joint></robot>'
    )
    arm = imported(tmp_path, six_joint_urdf().replace("</robot>", world))
    model = compiled(arm)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    tip = data.sensor("end_effector_position_b").data
    np.testing.assert_allclose(tip, [0, 0, 0.1 + sum(LENGTHS)], atol=1e-6)
    # Goals, reach and heights count from the base: it stands in the origin, and that is told.
    assert not model.body("base_link").pos.any()
    assert arm.reach == pytest.approx(imported(tmp_path, six_joint_urdf()).reach)
    told = "the mount: the base is at [0, 0, 0.7] m in the URDF, and here in the origin"
    assert told in arm.missing


def test_meshes_of_a_ros_package_are_found_and_named_apart(tmp_path):
    text, box = six_joint_urdf(), '<mesh filename="package://arm_description/{}/link.stl"/>'
    for number, folder in enumerate(("near", "far"), start=1):
        mesh = tmp_path / "arm_description" / folder / "link.stl"
        mesh.parent.mkdir(parents=True)
        mesh.write_bytes(tetrahedron_stl(0.1 * number))
        old = f'<collision><origin xyz="0 0 {LENGTHS[number] / 2}"/>'
        start = text.index(old, text.index(f'name="link_{number + 1}"')) + len(old)
        end = text.index("</collision>", start)
        text = f"{text[:start]}<geometry>{box.format(folder)}</geometry>{text[end:]}"
    home = tmp_path / "arm_description" / "urdf"
    home.mkdir()
    arm = imported(home, text)
    assert sorted(arm.meshes) == ["link.stl", "link_2.stl"]
    assert arm.meshes["link_2.stl"] == tmp_path / "arm_description/far/link.stl"
    assert compiled(arm).nmesh == 2
    assert "meshes: 2 copied to six_meshes" in arm.missing


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("<robot", "<robot", ""),  # as it is
        (None, "", "is no URDF: it is not XML"),
        (None, "<mujoco/>", "is no URDF: it begins with <mujoco>; expected <robot> with links"),
        (None, "<robot/>", "is no URDF: it has no link"),
        (
            None,
            '<robot xmlns:xacro="http://ros.org/wiki/xacro"><xacro:a/></robot>',
            "is a xacro file: make its URDF with",
        ),
        ('="revolute"', '="floating"', "joint 'pan' is floating: name the feet"),
        ('="revolute"', '="planar"', "joint 'pan' is planar; expected revolute, prismatic or"),
        ('lower="-2.0" ', "", "joint 'pan' has no limits; expected <limit lower= upper= ...>"),
        ('upper="2.5"', 'upper="-2.5"', "goes from -2.0 to -2.5; expected lower < upper"),
        ('effort="60"', 'effort="0"', "joint 'pan' has effort 0 in <limit>; expected more than 0"),
        ('velocity="3.0"', "", "joint 'pan' has velocity none in <limit>"),
        ('<child link="link_1"/>', '<child link="link_7"/>', "links ['link_7'], which are not in"),
        ('<mass value="1.0"/>', '<mass value="0"/>', "link 'link_1', which joint 'pan' moves, has"),
        (
            '<cylinder radius="0.04" length="0.1"/></geometry></collision>',
            '<mesh filename="package://there/base.stl"/></geometry></collision>',
            "mesh package://there/base.stl is missing; expected it in a folder there beside",
        ),
        (
            '<cylinder radius="0.04" length="0.1"/></geometry></collision>',
            '<mesh filename="base.dae"/></geometry></collision>',
            "mesh base.dae of link 'base_link' is no STL, OBJ or MSH",
        ),
    ],
)
def test_what_cannot_be_imported_is_a_sentence(tmp_path, old, new, told):
    (tmp_path / "base.dae").write_text("<COLLADA/>")
    text = new if old is None else six_joint_urdf().replace(old, new, 1)
    if not told:
        imported(tmp_path, text)
        return
    with pytest.raises(ConfigError) as refused:
        imported(tmp_path, text)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_end_effector_that_is_unknown_and_a_file_that_is_missing_are_sentences(tmp_path):
    two = six_joint_urdf(tool="right").replace(
        "</robot>",
        '<link name="left"/><joint name="other" type="fixed"><parent link="link_6"/>'
        '<child link="left"/></joint></robot>',
    )
    with pytest.raises(ConfigError, match=r"several links at its end, .*: name the end effector"):
        imported(tmp_path, two)
    assert imported(tmp_path, two, end_effector="left").end_effector == "left"
    with pytest.raises(ConfigError, match="no joint moves link 'base_link'"):
        imported(tmp_path, two, end_effector="base_link")
    with pytest.raises(ConfigError, match="has no link 'hand' for end_effector; it has"):
        imported(tmp_path, six_joint_urdf(), end_effector="hand")
    with pytest.raises(ConfigError, match=r"there is no file .*none.urdf; expected a URDF"):
        import_urdf(tmp_path / "none.urdf", name="six", mesh_folder="m")


@pytest.mark.slow
def test_an_arm_of_ours_that_is_written_as_urdf_and_imported_is_the_same_arm(tmp_path):
    config = composed(["task=reach", "robot=ur5e"]).config.robot
    ours = load_model(config.model, config.spec, physics_dt=config.physics_dt)
    arm = imported(tmp_path, joint_urdf(ours, config.spec))
    assert arm.end_effector == "end_effector"
    for theirs, joint in zip(arm.joints, config.spec.joints, strict=True):
        assert theirs.name == joint.name
        assert theirs.position_limit == pytest.approx(joint.position_limit, abs=1e-5)
        assert (theirs.effort_limit, theirs.velocity_limit) == (
            joint.effort_limit, joint.velocity_limit,
        )  # fmt: skip
    (tmp_path / "six.xml").write_text(arm.mjcf)
    spec = RobotSpec(name="six", joints=arm.joints, command=config.spec.command)
    model = load_model(str(tmp_path / "six.xml"), spec, physics_dt=config.physics_dt)
    one, two = mujoco.MjData(ours), mujoco.MjData(model)
    for pose in np.random.default_rng(0).uniform(-2, 2, (5, 6)):
        bias = []
        for m, data in ((ours, one), (model, two)):
            data.qpos[:], data.qvel[:] = pose, pose
            m.opt.gravity[:] = 0
            mujoco.mj_forward(m, data)
            bias.append(np.array(data.qfrc_bias))
        for field in ("position", "orientation"):
            name = f"end_effector_{field}_b"
            measured, expected = two.sensor(name).data, one.sensor(name).data
            sign = np.sign(measured @ expected) if field == "orientation" else 1.0
            np.testing.assert_allclose(sign * measured, expected, atol=2e-5)  # six digits
        np.testing.assert_allclose(bias[1], bias[0], atol=1e-3)  # Coriolis: masses and inertias


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            'upper="2.5"',
            'upper="inf"',
            "to inf; expected lower < upper, both finite",
        ),
        (
            'velocity="3.0"',
            'velocity="inf"',
            "velocity inf in <limit>; expected more than 0, and",
        ),
        ('<parent link="link_1"/>', '<parent link="link_6"/>', "joints in a loop, of the links"),
    ],
)
def test_numbers_without_end_and_loops_are_refused(tmp_path, old, new, told):
    text = six_joint_urdf()
    assert old in text
    with pytest.raises(ConfigError, match=told):
        imported(tmp_path, text.replace(old, new, 1))
