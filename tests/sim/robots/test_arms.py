"""Models of arms against published numbers: frames, masses, inertias, limits, workspace."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import itertools
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import SensorSpec
from sim.physics.mujoco_model import load_model
from sim.robots.joint_robot import JointRobotConfig
from tests.compositions import composed
from tests.sim.arms import panda
from tests.sim.joint_robots import joint_robot
from tests.sim.robots.published import Link, assert_link

# Denavit-Hartenberg parameters (Craig) of the manufacturer's "Robot and interface specifications":
# a [m], d [m], alpha [rad] of joints 1 to 7, then of the flange.
PANDA_DH = (
    (0.0, 0.333, 0.0),
    (0.0, 0.0, -np.pi / 2),
    (0.0, 0.316, np.pi / 2),
    (0.0825, 0.0, np.pi / 2),
    (-0.0825, 0.384, -np.pi / 2),
    (0.0, 0.0, np.pi / 2),
    (0.088, 0.0, np.pi / 2),
    (0.0, 0.107, 0.0),
)
HAND_TURN, TOOL_LENGTH, FINGER_HEIGHT = -np.pi / 4, 0.1034, 0.0584
"""franka_description, hand.xacro: rpy of the hand on the flange, z of hand_tcp and of the fingers
on the hand [m]."""

# franka_description, inertial.yaml (after Gaz et al. 2019): mass [kg], centre of mass [m],
# inertia xx, yy, zz, xy, xz, yz about it [kg m^2].
LINKS = {
    "link0": (0.629769, (-0.041018, -0.00014, 0.049974),
              (0.00315, 0.00388, 0.004285, 8.2904e-7, 0.00015, 8.2299e-6)),
    "link1": (4.970684, (0.003875, 0.002081, -0.04762),
              (0.70337, 0.70661, 0.009117, -0.000139, 0.006772, 0.019169)),
    "link2": (0.646926, (-0.003141, -0.02872, 0.003495),
              (0.007962, 0.02811, 0.025995, -0.003925, 0.010254, 0.000704)),
    "link3": (3.228604, (0.027518, 0.039252, -0.066502),
              (0.037242, 0.036155, 0.01083, -0.004761, -0.011396, -0.012805)),
    "link4": (3.587895, (-0.05317, 0.104419, 0.027454),
              (0.025853, 0.019552, 0.028323, 0.007796, -0.001332, 0.008641)),
    "link5": (1.225946, (-0.011953, 0.041065, -0.038437),
              (0.035549, 0.029474, 0.008627, -0.002117, -0.004037, 0.000229)),
    "link6": (1.666555, (0.060149, -0.014117, -0.010517),
              (0.001964, 0.004354, 0.005433, 0.000109, -0.001158, 0.000341)),
    "link7": (0.735522, (0.010517, -0.004252, 0.061597),
              (0.012516, 0.010027, 0.004815, -0.000428, -0.001196, -0.000741)),
}  # fmt: skip
TOTAL_MASS = sum(mass for mass, _, _ in LINKS.values()) + 0.73 + 2 * 0.015  # hand and fingers

# Denavit-Hartenberg parameters of the manufacturer ("DH Parameters for calculations of kinematics
# and dynamics", UR5e): a [m], d [m], alpha [rad] of joints 1 to 6.
UR5E_DH = (
    (0.0, 0.1625, np.pi / 2),
    (-0.425, 0.0, 0.0),
    (-0.3922, 0.0, 0.0),
    (0.0, 0.1333, np.pi / 2),
    (0.0, 0.0997, -np.pi / 2),
    (0.0, 0.0996, 0.0),
)
UR5E_JOINTS = [
    "shoulder_pan_joint", "shoulder_lift_joint", "elbow_joint", "wrist_1_joint", "wrist_2_joint",
    "wrist_3_joint",
]  # fmt: skip


def ur5e() -> JointRobotConfig:
    """The robot of configs/robot/ur5e.yaml, stepped by one thread."""
    return joint_robot("ur5e", "reach")


def loaded(robot: JointRobotConfig) -> mujoco.MjModel:
    return load_model(robot.model, robot.spec, physics_dt=robot.physics_dt)


def attitude(data: mujoco.MjData) -> np.ndarray:
    """Rotation matrix that the end effector's sensor tells, (3, 3)."""
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, data.sensor("end_effector_orientation_b").data)
    return turn.reshape(3, 3)


def about_x(angle: float, way: float) -> np.ndarray:
    """Frame that is turned about x and moved along it, (4, 4)."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[1, 0, 0, way], [0, c, -s, 0], [0, s, c, 0], [0, 0, 0, 1]])


def about_z(angle: float, way: float) -> np.ndarray:
    """Frame that is turned about z and moved along it, (4, 4)."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s, 0, 0], [s, c, 0, 0], [0, 0, 1, way], [0, 0, 0, 1]])


def test_every_frame_lies_where_the_published_parameters_put_it() -> None:
    model = loaded(panda())
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    for _ in range(20):
        data.qpos[:] = rng.uniform(*model.jnt_range.T)
        joints, fingers = data.qpos[:7], data.qpos[7:]
        mujoco.mj_forward(model, data)
        pose = np.eye(4)
        for i, theta in enumerate([*joints, HAND_TURN]):
            a, d, alpha = PANDA_DH[i]
            pose = pose @ about_x(alpha, a) @ about_z(theta, d)
            body = data.body(f"link{i + 1}" if i < 7 else "hand")
            np.testing.assert_allclose(body.xpos, pose[:3, 3], atol=1e-9)
            np.testing.assert_allclose(body.xmat.reshape(3, 3), pose[:3, :3], atol=1e-9)
        tool = pose @ np.array([0, 0, TOOL_LENGTH, 1])
        np.testing.assert_allclose(data.sensor("end_effector_position_b").data, tool[:3], atol=1e-9)
        np.testing.assert_allclose(attitude(data), pose[:3, :3], atol=1e-9)
        for finger, side, stroke in zip(("left", "right"), (1, -1), fingers, strict=True):
            origin = pose @ np.array([0, side * stroke, FINGER_HEIGHT, 1])
            np.testing.assert_allclose(data.body(f"{finger}_finger").xpos, origin[:3], atol=1e-9)


def test_links_weigh_what_was_identified_and_shapes_are_primitive() -> None:
    model = loaded(panda())
    for name, (mass, centre, inertia) in LINKS.items():
        assert_link(model, name, Link(mass, centre, inertia), atol=1e-9)
    assert model.body_mass.sum() == pytest.approx(TOTAL_MASS)
    assert model.body_mass.sum() == pytest.approx(17.4519, abs=1e-4)  # [kg]
    assert model.nmesh == 0
    names = [model.sensor(i).name for i in range(model.nsensor)]
    assert names == ["end_effector_position_b", "end_effector_orientation_b"]


def test_joints_of_a_panda_have_the_published_order_limits_and_motors() -> None:
    model = loaded(panda())
    assert [model.joint(i).name for i in range(7)] == [f"joint{i}" for i in range(1, 8)]
    limits = [(-2.8973, 2.8973), (-1.7628, 1.7628), (-2.8973, 2.8973), (-3.0718, -0.0698),
              (-2.8973, 2.8973), (-0.0175, 3.7525), (-2.8973, 2.8973),
              (0.0, 0.04), (0.0, 0.04)]  # fmt: skip
    np.testing.assert_allclose(model.jnt_range, np.array(limits))
    efforts = [87.0] * 4 + [12.0] * 3 + [70.0] * 2  # the hand: 70 N continuous
    np.testing.assert_allclose(model.actuator_forcerange[:, 1], efforts)
    speeds = [joint.velocity_limit for joint in panda().spec.joints]
    assert speeds == [2.175] * 4 + [2.61] * 3


def test_the_wrench_holds_the_hands_weight_and_what_pulls_at_it() -> None:
    """Pointing down: 0.76 kg are held, and the hand's 0.73 kg are 1 cm beside the tool."""
    robot = panda()
    robot.spec.sensors["wrench_ee"] = SensorSpec()
    model = loaded(robot)
    data = mujoco.MjData(model)
    data.qpos[:7] = [joint.default_position for joint in robot.spec.joints]
    hand = model.body("hand").id
    wrench = []
    for pull in (0.0, 3.0):
        data.xfrc_applied[hand, 2] = -pull  # [N], down
        # An arm that stands still: what would accelerate it is taken away at the joints.
        data.ctrl[:7] = [joint.stiffness * joint.default_position for joint in robot.spec.joints]
        data.qfrc_applied[:] = 0
        for _ in range(3):
            mujoco.mj_forward(model, data)
            torque = np.zeros(model.nv)
            mujoco.mj_mulM(model, data, torque, data.qacc)
            data.qfrc_applied[:] -= torque
        mujoco.mj_forward(model, data)
        wrench.append(data.sensordata[3:9].copy())
    down = np.array([0.0, 0.0, 1.0])  # the tool's z axis points down
    np.testing.assert_allclose(wrench[0][:3], -0.76 * 9.81 * down, atol=1e-6)
    np.testing.assert_allclose(wrench[0][3:], [0, -0.73 * 9.81 * 0.01, 0], atol=1e-6)
    np.testing.assert_allclose(wrench[1][:3] - wrench[0][:3], -3.0 * down, atol=1e-6)


@pytest.mark.slow
def test_the_flange_lies_where_the_manufacturers_parameters_put_it() -> None:
    model = loaded(ur5e())
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    for _ in range(20):
        data.qpos[:] = rng.uniform(*model.jnt_range.T)
        mujoco.mj_forward(model, data)
        flange = np.diag([-1.0, -1.0, 1.0, 1.0])  # the controller counts from a base turned by half
        for (a, d, alpha), theta in zip(UR5E_DH, data.qpos, strict=True):
            flange = flange @ about_z(theta, d) @ about_x(alpha, a)
        position = data.sensor("end_effector_position_b").data
        np.testing.assert_allclose(position, flange[:3, 3], atol=1.5e-3)  # lengths in whole mm
        np.testing.assert_allclose(attitude(data), flange[:3, :3], atol=1e-9)


def test_joints_of_a_ur5e_have_the_published_order_limits_and_motors_and_shapes_are_primitive():
    model = loaded(ur5e())
    assert [model.joint(i).name for i in range(model.njnt)] == UR5E_JOINTS
    limits = [(-6.28319, 6.28319)] * 2 + [(-3.1415, 3.1415)] + [(-6.28319, 6.28319)] * 3
    np.testing.assert_allclose(model.jnt_range, np.array(limits))
    np.testing.assert_allclose(model.actuator_forcerange[:, 1], [150.0] * 3 + [28.0] * 3)
    np.testing.assert_allclose(model.dof_armature, 0.1)
    speeds = [joint.velocity_limit for joint in ur5e().spec.joints]
    np.testing.assert_allclose(speeds, np.pi, atol=1e-5)
    assert model.body_mass.sum() == pytest.approx(20.9949)  # [kg]
    assert model.nmesh == 0


def solved(model: mujoco.MjModel, goal: np.ndarray, rest: np.ndarray, reach: float) -> np.ndarray:
    """Joint positions that bring the flange to a point, at most `reach` [rad] away from rest."""
    data, jacobian, site = mujoco.MjData(model), np.zeros((3, model.nv)), model.site("end_effector")
    data.qpos[:], away = rest, np.ones(3)
    for _ in range(100):
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_jacSite(model, data, jacobian, None, site.id)
        away = goal - data.site("end_effector").xpos
        square = jacobian @ jacobian.T + 1e-4 * np.eye(3)
        data.qpos[:] += jacobian.T @ np.linalg.solve(square, away)
        data.qpos[:] = np.clip(data.qpos, rest - reach, rest + reach)
    assert np.linalg.norm(away) < 1e-3, goal
    return data.qpos.copy()


def test_every_goal_of_reach_is_within_the_range_of_actions():
    model = loaded(ur5e())
    task = composed(["task=reach", "robot=ur5e"]).config.task
    box = list(zip(task.goal_low, task.goal_high, strict=True))
    pose = np.array([joint.default_position for joint in ur5e().spec.joints])
    for goal in [*itertools.product(*box), [sum(pair) / 2 for pair in box]]:
        solved(model, np.array(goal), pose, reach=0.9 * ur5e().action_scale)


def test_a_gripper_takes_the_place_of_the_flange() -> None:
    robot = joint_robot("ur5e_2f85", "reach")
    model = load_model(
        robot.model, robot.spec, physics_dt=robot.physics_dt, gripper=robot.gripper_model
    )
    bare = loaded(ur5e())
    names = [model.joint(i).name for i in range(model.njnt)]
    assert names == [*UR5E_JOINTS, "gripper_left", "gripper_right"]
    added = model.body_subtreemass[0] - bare.body_subtreemass[0]
    assert added == pytest.approx(0.9, abs=0.01)  # MuJoCo Menagerie's robotiq_2f85: 0.90 kg
    data, arm = mujoco.MjData(model), mujoco.MjData(bare)
    rng = np.random.default_rng(0)
    for _ in range(5):
        pose = rng.uniform(-1, 1, 6)
        data.qpos[:6], arm.qpos[:] = pose, pose
        mujoco.mj_forward(model, data)
        mujoco.mj_forward(bare, arm)
        flange, turn = arm.sensor("end_effector_position_b").data, attitude(arm)
        np.testing.assert_allclose(attitude(data), turn, atol=1e-9)
        ahead = flange + turn @ np.array([0, 0, 0.145])  # `pinch` of the same model
        np.testing.assert_allclose(data.sensor("end_effector_position_b").data, ahead, atol=1e-9)
    for opening in (0.0, 0.0425):
        data.qpos[6:] = opening
        mujoco.mj_forward(model, data)
        pads = [data.geom(f"gripper_{side}_pad").xpos for side in ("left", "right")]
        between = np.linalg.norm(pads[0] - pads[1]) - 2 * 0.004
        assert between == pytest.approx(2 * opening, abs=1e-9)


def test_a_gripper_needs_an_end_effector_on_both_sides(tmp_path: Path) -> None:
    file = tmp_path / "claw.xml"
    file.write_text("<mujoco><worldbody><body name='claw'/></worldbody></mujoco>")
    robot = joint_robot("ur5e_2f85", "reach")
    with pytest.raises(ConfigError, match=r"the gripper .*claw.xml needs a site 'end_effector'"):
        load_model(robot.model, robot.spec, physics_dt=robot.physics_dt, gripper=str(file))
    dog = replace(joint_robot("go2", "velocity").spec, gripper=robot.spec.gripper)
    with pytest.raises(ConfigError, match="the arm's model needs a site 'end_effector'"):
        load_model("go2.xml", dog, physics_dt=0.005, gripper=robot.gripper_model)
    with pytest.raises(ConfigError, match=r"robot.spec.gripper names none"):
        load_model("ur5e.xml", ur5e().spec, physics_dt=0.005, gripper=robot.gripper_model)


@pytest.mark.parametrize(("robot", "task"), [("allegro", "reorient"), ("ur5e_2f85", "reach")])
def test_a_robot_without_a_published_model_says_so(robot: str, task: str) -> None:
    spec = joint_robot(robot, task).spec
    with pytest.raises(ConfigError, match=r"robot\.menagerie, folder and file .*, got ''"):
        load_model("menagerie", spec, physics_dt=0.005)
