"""The UR5e's model against published numbers: frames, masses, inertias, limits, workspace."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import itertools

import mujoco
import numpy as np
import pytest

from sim.physics.mujoco_model import load_model
from sim.robots.joint_robot import JointRobotConfig
from tests.compositions import composed
from tests.sim.joint_robots import joint_robot

# Denavit-Hartenberg parameters of the manufacturer ("DH Parameters for calculations of kinematics
# and dynamics", UR5e): a [m], d [m], alpha [rad] of joints 1 to 6.
DH = (
    (0.0, 0.1625, np.pi / 2),
    (-0.425, 0.0, 0.0),
    (-0.3922, 0.0, 0.0),
    (0.0, 0.1333, np.pi / 2),
    (0.0, 0.0997, -np.pi / 2),
    (0.0, 0.0996, 0.0),
)
JOINTS = [
    "shoulder_pan_joint", "shoulder_lift_joint", "elbow_joint", "wrist_1_joint", "wrist_2_joint",
    "wrist_3_joint",
]  # fmt: skip


def ur5e() -> JointRobotConfig:
    """The robot of configs/robot/ur5e.yaml, stepped by one thread."""
    return joint_robot("ur5e", "reach")


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    robot = ur5e()
    return load_model(robot.model, robot.spec, physics_dt=robot.physics_dt)


def pose(robot: JointRobotConfig) -> np.ndarray:
    return np.array([joint.default_position for joint in robot.spec.joints])


def standard(a: float, d: float, alpha: float, theta: float) -> np.ndarray:
    """Frame i in frame i - 1: turn and go along the old z, then along the new x."""
    ca, sa, ct, st = np.cos(alpha), np.sin(alpha), np.cos(theta), np.sin(theta)
    return np.array([
        [ct, -st * ca, st * sa, a * ct],
        [st, ct * ca, -ct * sa, a * st],
        [0, sa, ca, d],
        [0, 0, 0, 1],
    ])  # fmt: skip


@pytest.mark.slow
def test_the_flange_lies_where_the_manufacturers_parameters_put_it(model: mujoco.MjModel) -> None:
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    for _ in range(20):
        data.qpos[:] = rng.uniform(*model.jnt_range.T)
        mujoco.mj_forward(model, data)
        flange = np.diag([-1.0, -1.0, 1.0, 1.0])  # the controller counts from a base turned by half
        for parameters, theta in zip(DH, data.qpos, strict=True):
            flange = flange @ standard(*parameters, theta)
        position = data.sensor("end_effector_position_b").data
        np.testing.assert_allclose(position, flange[:3, 3], atol=1.5e-3)  # lengths in whole mm
        turn = np.zeros(9)
        mujoco.mju_quat2Mat(turn, data.sensor("end_effector_orientation_b").data)
        np.testing.assert_allclose(turn.reshape(3, 3), flange[:3, :3], atol=1e-9)


def test_joints_have_the_published_order_limits_and_motors_and_shapes_are_primitive(model):
    assert [model.joint(i).name for i in range(model.njnt)] == JOINTS
    limits = [(-6.28319, 6.28319)] * 2 + [(-3.1415, 3.1415)] + [(-6.28319, 6.28319)] * 3
    np.testing.assert_allclose(model.jnt_range, limits)
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


def test_every_goal_of_reach_is_within_the_range_of_actions(model):
    task = composed(["task=reach", "robot=ur5e"]).config.task
    box = list(zip(task.goal_low, task.goal_high, strict=True))
    for goal in [*itertools.product(*box), [sum(pair) / 2 for pair in box]]:
        solved(model, np.array(goal), pose(ur5e()), reach=0.9 * ur5e().action_scale)
