"""A robot's URDF, read back by MuJoCo's own importer, is the robot."""

# pyright: reportAttributeAccessIssue=false

import math
from xml.etree import ElementTree as Xml

import mujoco
import numpy as np
import pytest

from sim.physics.mujoco_model import load_model
from sim.physics.urdf import BASE, IMU, TIP, joint_urdf, multirotor_urdf
from tests.compositions import composed

ROBOTS = {
    "panda": "reach", "ur5e": "reach", "ur5e_2f85": "reach", "allegro": "reorient",
    "go2": "velocity", "go1": "velocity", "g1": "velocity",
}  # fmt: skip
DRONES = ("crazyflie", "x500")


def config_of(robot: str):
    return composed([f"task={ROBOTS.get(robot, 'hover')}", f"robot={robot}"]).config.robot


def own_model(robot: str) -> mujoco.MjModel:
    config = config_of(robot)
    return load_model(
        config.model, config.spec, physics_dt=config.physics_dt, gripper=config.gripper_model
    )


def imported(text: str) -> mujoco.MjModel:
    """The URDF as MuJoCo reads it, every fixed link kept, shapes and inertias as they stand."""
    root = Xml.fromstring(text)
    rules = {"fusestatic": "false", "discardvisual": "false", "balanceinertia": "false",
             "boundmass": "1e-12", "boundinertia": "1e-12"}  # fmt: skip
    Xml.SubElement(Xml.SubElement(root, "mujoco"), "compiler", rules)
    return mujoco.MjModel.from_xml_string(Xml.tostring(root, encoding="unicode"))


def names(model: mujoco.MjModel, kind: str, count: int) -> list[str]:
    return [getattr(model, kind)(i).name for i in range(count)]


def pose(data: mujoco.MjData, base: str, body: str) -> np.ndarray:
    """Pose of a body in the frame of another, 4 x 4."""
    found = []
    for name in (base, body):
        one = np.eye(4)
        one[:3, :3], one[:3, 3] = data.body(name).xmat.reshape(3, 3), data.body(name).xpos
        found.append(one)
    return np.linalg.inv(found[0]) @ found[1]


@pytest.mark.slow
@pytest.mark.parametrize("robot", ROBOTS)
def test_joints_masses_and_motion_are_those_of_the_model(robot):
    ours, spec = own_model(robot), config_of(robot).spec
    theirs = imported(joint_urdf(ours, spec))
    moving = [j for j in range(ours.njnt) if ours.jnt_type[j] != mujoco.mjtJoint.mjJNT_FREE]
    called = [ours.joint(j).name for j in moving]
    assert names(theirs, "joint", theirs.njnt) == called
    assert called[: spec.num_joints] == spec.joint_names
    for j, name in zip(moving, called, strict=True):
        np.testing.assert_allclose(theirs.joint(name).axis, ours.jnt_axis[j], atol=1e-9)
        np.testing.assert_allclose(theirs.joint(name).range, ours.jnt_range[j], atol=1e-9)
    rng, root = np.random.default_rng(0), int(ours.body_rootid[ours.jnt_bodyid[0]])
    bodies = [ours.body(b).name for b in range(1, ours.nbody) if ours.body_rootid[b] == root]
    for body in bodies:
        here, there = ours.body(body), theirs.body(body)
        np.testing.assert_allclose(there.mass, here.mass, rtol=1e-9)
        np.testing.assert_allclose(there.ipos, here.ipos, atol=1e-9)
        np.testing.assert_allclose(np.sort(there.inertia), np.sort(here.inertia), rtol=1e-6)
    mine, read = mujoco.MjData(ours), mujoco.MjData(theirs)
    for _ in range(20):
        for j, name in zip(moving, called, strict=True):
            position = rng.uniform(*ours.jnt_range[j])
            mine.joint(name).qpos[:] = read.joint(name).qpos[:] = position
        mujoco.mj_kinematics(ours, mine)
        mujoco.mj_kinematics(theirs, read)
        for body in bodies:
            here, there = pose(mine, bodies[0], body), pose(read, BASE, body)
            np.testing.assert_allclose(there, here, atol=1e-6, err_msg=body)
    for link, sensor in ((IMU, "linear_acceleration_b"), (TIP, "end_effector_position_b")):
        if mujoco.mj_name2id(ours, mujoco.mjtObj.mjOBJ_SENSOR, sensor) < 0:
            continue
        site = int(ours.sensor(sensor).objid[0])
        parent = ours.body(int(ours.site_bodyid[site])).name
        want = pose(mine, bodies[0], parent)[:3] @ [*ours.site_pos[site], 1.0]
        np.testing.assert_allclose(pose(read, BASE, link)[:3, 3], want, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("robot", ROBOTS)
def test_limits_are_finite_and_those_of_the_robot(robot):
    spec = config_of(robot).spec
    root = Xml.fromstring(joint_urdf(own_model(robot), spec))
    limits = {joint.get("name"): joint.find("limit") for joint in root.findall("joint")}
    for joint in spec.joints:
        limit = limits[joint.name]
        assert limit is not None
        lower, upper = float(limit.get("lower", "nan")), float(limit.get("upper", "nan"))
        np.testing.assert_allclose([lower, upper], joint.position_limit, atol=1e-6)
        for key, value in (("velocity", joint.velocity_limit), ("effort", joint.effort_limit)):
            written = float(limit.get(key, "nan"))
            assert math.isfinite(written)
            if math.isfinite(value):
                assert written == pytest.approx(value)


def test_a_coupled_finger_follows_the_other_one():
    root = Xml.fromstring(joint_urdf(own_model("panda"), config_of("panda").spec))
    mimics = {joint.get("name"): joint.find("mimic") for joint in root.findall("joint")}
    followed = {name: one.attrib for name, one in mimics.items() if one is not None}
    assert followed == {
        "finger_joint2": {"joint": "finger_joint1", "multiplier": "1", "offset": "0"}
    }


def test_links_form_one_tree_from_the_base():
    root = Xml.fromstring(joint_urdf(own_model("go2"), config_of("go2").spec))
    links = [link.get("name") for link in root.findall("link")]
    children = [str(one.get("link")) for one in root.iterfind("joint/child")]
    assert len({*links}) == len(links)
    assert {*links} - {*children} == {BASE}
    assert len({*children}) == len(children)
    assert root.find(f"link[@name='{BASE}']/inertial") is None, "KDL refuses a root with a mass"


@pytest.mark.parametrize("robot", DRONES)
def test_a_drone_is_one_link_with_its_mass(robot):
    config = config_of(robot)
    model = imported(multirotor_urdf(config.spec, config.model))
    assert model.body(BASE).mass[0] == pytest.approx(config.model.mass)
    inertia = np.sort(model.body(BASE).inertia)
    np.testing.assert_allclose(inertia, np.sort(config.model.inertia), rtol=1e-9)
    assert model.njnt == 0


def test_joints_away_from_their_link_and_with_a_rest_pose_move_alike():
    """Two joints on one body, neither at its origin, one measured from an offset."""
    text = """<mujoco><compiler angle="radian"/><worldbody><body name="a"><geom size="0.1"/>
      <body name="b" pos="0.1 0.2 0.3" euler="0.3 0.2 0.1"><geom size="0.1" pos="0 0 0.1"/>
        <joint name="one" axis="0 0 1" pos="0.1 0 0" range="-2 2" limited="true" ref="0.4"/>
        <joint name="two" axis="0 1 0" pos="0 0.2 0.1" range="-2 2" limited="true"/>
        <body name="c" pos="0 0 0.5"><geom size="0.1"/>
          <joint name="three" type="slide" axis="1 0 0" ref="0.2" range="-1 1" limited="true"/>
        </body></body></body></worldbody></mujoco>"""
    ours = mujoco.MjModel.from_xml_string(text)
    theirs = imported(joint_urdf(ours, config_of("go2").spec))
    mine, read = mujoco.MjData(ours), mujoco.MjData(theirs)
    for position in ([0.4, 0.0, 0.2], [0.3, -0.7, 0.5], [-1.0, 0.9, -0.4]):
        mine.qpos[:], read.qpos[:] = position, position
        mujoco.mj_forward(ours, mine)
        mujoco.mj_forward(theirs, read)
        for body in ("b", "c"):  # links begin at their joint, so centres of mass are compared
            np.testing.assert_allclose(read.body(body).xipos, mine.body(body).xipos, atol=1e-9)
            np.testing.assert_allclose(read.body(body).xmat, mine.body(body).xmat, atol=1e-9)


@pytest.mark.parametrize("first", ["link_1", "base_link"])
def test_joints_of_the_first_body_are_kept(first):
    text = f"""<mujoco><compiler angle="radian"/><worldbody>
      <body name="{first}" pos="0 0 0.1"><geom size="0.1"/>
        <joint name="pan" axis="0 0 1" range="-2 2" limited="true"/>
        <body name="b" pos="0.3 0 0.2"><geom size="0.1"/>
          <joint name="lift" axis="0 1 0" range="-2 2" limited="true"/>
        </body></body></worldbody></mujoco>"""
    ours = mujoco.MjModel.from_xml_string(text)
    theirs = imported(joint_urdf(ours, config_of("go2").spec))
    assert names(theirs, "joint", theirs.njnt) == ["pan", "lift"]
    mine, read = mujoco.MjData(ours), mujoco.MjData(theirs)
    mine.qpos[:], read.qpos[:] = [0.5, -0.3], [0.5, -0.3]
    mujoco.mj_forward(ours, mine)
    mujoco.mj_forward(theirs, read)
    np.testing.assert_allclose(read.body("b").xmat, mine.body("b").xmat, atol=1e-9)
