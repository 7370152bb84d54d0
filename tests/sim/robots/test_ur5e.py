"""The UR5e's model against published numbers: frames, masses, inertias, limits, workspace."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import itertools
from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from configs.schema import make_env
from robot_rl.core.env import Obs
from robot_rl.training.evaluation import evaluate
from sim.env import SimEnv
from sim.physics.mujoco_model import load_model
from sim.robots.joint_robot import JointRobotConfig
from tests.compositions import composed
from tests.sim.joint_robots import joint_robot
from tests.sim.robots.published import (
    MODELS,
    assert_link,
    assert_same_mechanism,
    principal,
    published_model,
)

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
LEVEL = (1, 0, 0, 0)
# MuJoCo Menagerie, universal_robots_ur5e/ur5e.xml (BSD-3-Clause): mass [kg], centre of mass [m],
# attitude wxyz of the principal axes, principal moments [kg m^2].
LINKS = {
    "base": principal(4, (0, 0, 0), LEVEL, (0.00443333, 0.00443333, 0.0072)),
    "shoulder_link": principal(3.7, (0, 0, 0), LEVEL, (0.0102675, 0.0102675, 0.00666)),
    "upper_arm_link": principal(8.393, (0, 0, 0.2125), LEVEL, (0.133886, 0.133886, 0.0151074)),
    "forearm_link": principal(2.275, (0, 0, 0.196), LEVEL, (0.0311796, 0.0311796, 0.004095)),
    "wrist_1_link": principal(1.219, (0, 0.127, 0), LEVEL, (0.0025599, 0.0025599, 0.0021942)),
    "wrist_2_link": principal(1.219, (0, 0, 0.1), LEVEL, (0.0025599, 0.0025599, 0.0021942)),
    "wrist_3_link": principal(
        0.1889, (0, 0.0771683, 0), (1, 0, 0, 1), (0.000132134, 9.90863e-05, 9.90863e-05)
    ),
}


def ur5e() -> JointRobotConfig:
    """The robot of configs/robot/ur5e.yaml, stepped by one thread."""
    return joint_robot("ur5e", "reach")


def load(robot: JointRobotConfig) -> mujoco.MjModel:
    return load_model(
        robot.model, robot.spec, physics_dt=robot.physics_dt, menagerie=robot.menagerie
    )


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return load(ur5e())


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


def test_default_pose_holds_the_flange_where_geometry_by_hand_puts_it(model):
    data = mujoco.MjData(model)
    data.qpos[:] = pose(ur5e())
    mujoco.mj_forward(model, data)
    # Upper arm up, forearm level, flange down: 0.392 + 0.1 m ahead, beside that the shoulder, less
    # the elbow, and the first wrist; turned by the first joint until the flange is straight ahead.
    ahead, beside = 0.392 + 0.1, 0.138 - 0.131 + 0.127
    x, z = np.hypot(ahead, beside), 0.163 + 0.425 - 0.1
    position = data.sensor("end_effector_position_b").data
    np.testing.assert_allclose(position, [x, 0.0, z], atol=1e-5)  # four decimals of the angle


@pytest.mark.parametrize("name", LINKS)
def test_masses_and_inertias_are_the_published_ones(model: mujoco.MjModel, name: str) -> None:
    assert_link(model, name, LINKS[name], atol=1e-9)


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


def test_links_joints_and_frames_are_those_of_the_published_model(model: mujoco.MjModel) -> None:
    theirs = published_model("ur5e.xml")
    # Its attitudes are written with six digits.
    same = {name: name for name in LINKS}
    assert_same_mechanism(model, theirs, bodies=same, inertia_atol=1e-9, place_atol=3e-6)
    np.testing.assert_allclose(model.dof_armature, theirs.dof_armature)
    flange = theirs.site("attachment_site")
    np.testing.assert_allclose(model.site("end_effector").pos, flange.pos)
    np.testing.assert_allclose(model.site("end_effector").quat, flange.quat, atol=1e-6)
    motors = ur5e().spec.joints
    np.testing.assert_allclose(theirs.actuator_gainprm[:, 0], [j.stiffness for j in motors])
    np.testing.assert_allclose(theirs.actuator_biasprm[:, 2], [-j.damping for j in motors])


def test_the_published_mechanism_holds_the_default_pose(tmp_path, monkeypatch):
    if not (MODELS / "ur5e.xml").is_file():
        pytest.skip("no published ur5e.xml beside the repository")
    monkeypatch.setenv("MENAGERIE_ROOT", str(tmp_path))
    folder = tmp_path / "universal_robots_ur5e"
    folder.mkdir()
    (folder / "ur5e.xml").write_text((MODELS / "ur5e.xml").read_text())
    robot = replace(ur5e(), model="menagerie")
    places = []
    for each in (load(robot), load(ur5e())):
        data = mujoco.MjData(each)
        data.qpos[:] = pose(robot)
        data.ctrl[:] = [joint.stiffness * joint.default_position for joint in robot.spec.joints]
        for _ in range(400):
            mujoco.mj_step(each, data)
        assert np.abs(data.qvel).max() < 1e-3
        places.append(data.sensor("end_effector_position_b").data.copy())
    # The controller bears the weight of both.
    np.testing.assert_allclose(places[0], places[1], atol=1e-3)


def test_the_floor_holds_the_arm(model: mujoco.MjModel) -> None:
    data = mujoco.MjData(model)
    data.qpos[:] = [0, -0.3, 0.9, -0.6, -1.57, 0]
    for _ in range(400):
        mujoco.mj_step(model, data)  # no motor: it falls only where it is pushed
    data.qfrc_applied[:3] = [0, 40, 0]
    for _ in range(400):
        mujoco.mj_step(model, data)
    assert data.body("wrist_3_link").xpos[2] > 0.0


@pytest.fixture(scope="module")
def worlds() -> SimEnv:
    config = composed(["task=reach", "robot=ur5e"]).config
    robot = replace(config.robot, physics_threads=1)
    env = make_env(
        replace(config, robot=robot), num_envs=16, device=torch.device("cpu"), seed=0,
        evaluation=True,
    )  # fmt: skip
    assert isinstance(env, SimEnv)
    return env


def test_the_reach_task_runs_with_it(worlds: SimEnv) -> None:
    worlds.reset(seed=0)
    generator = torch.Generator().manual_seed(0)
    assert worlds.spec.action_size == 6
    for _ in range(10):
        step = worlds.step(2 * torch.rand(16, 6, generator=generator) - 1)
        assert step.valid.all()
        assert step.reward.isfinite().all()


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


def test_every_goal_of_reach_is_within_the_range_of_actions(model, worlds):
    task = worlds.task.config
    box = list(zip(task.goal_low, task.goal_high, strict=True))
    for goal in [*itertools.product(*box), [sum(pair) / 2 for pair in box]]:
        solved(model, np.array(goal), pose(ur5e()), reach=0.9 * ur5e().action_scale)


@pytest.mark.slow
def test_who_knows_where_the_joints_must_go_reaches_every_goal_in_time(model, worlds):
    """With the lag of the gains, the limit of speed and everything that the task draws."""
    rest, scale = pose(ur5e()), ur5e().action_scale

    def act(_: Obs) -> torch.Tensor:
        # Nobody falls out of step: all episodes are as long, and every goal stays.
        if not actions:
            for goal in worlds.task.goal["end_effector_position_b"].double().numpy():
                actions.append((solved(model, goal, rest, 0.9 * scale) - rest) / scale)
        return torch.tensor(np.array(actions), dtype=torch.float32)

    actions: list[np.ndarray] = []
    assert evaluate(worlds, act, seed=1).success_rate == 1.0
