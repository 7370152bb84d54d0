"""Laws of every quadruped that comes along: it stands, feels the ground, and does not explode."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import mujoco
import numpy as np
import pytest
import torch

from robot_rl.core.env_selection import EnvSelection
from sim.physics.mujoco_engine import MujocoEngine
from sim.physics.mujoco_model import ROBOTS, load_model
from sim.robots.joint_robot import JointRobotConfig
from tests.sim.legs import leg_worlds
from tests.sim.robots.quadruped import quadruped

ROBOT_NAMES = ("go2", "go1")
SLOPE = np.deg2rad(10)


@pytest.fixture(scope="module", params=ROBOT_NAMES)
def robot(request: pytest.FixtureRequest) -> JointRobotConfig:
    return quadruped(request.param)


@pytest.fixture
def model(robot: JointRobotConfig) -> mujoco.MjModel:
    return load_model(robot.model, robot.spec, physics_dt=robot.physics_dt)


def default_pose(robot: JointRobotConfig) -> np.ndarray:
    return np.array([joint.default_position for joint in robot.spec.joints])


def gains(robot: JointRobotConfig) -> np.ndarray:
    return np.array([joint.stiffness for joint in robot.spec.joints])


def held(model: mujoco.MjModel, robot: JointRobotConfig) -> mujoco.MjData:
    """A robot a little above the ground whose motors hold the default pose."""
    data = mujoco.MjData(model)
    data.qpos[7:] = default_pose(robot)
    data.ctrl[:] = gains(robot) * default_pose(robot)
    return data


def advance(model: mujoco.MjModel, data: mujoco.MjData, seconds: float) -> None:
    for _ in range(round(seconds / model.opt.timestep)):
        mujoco.mj_step(model, data)


def sensor(data: mujoco.MjData, name: str) -> np.ndarray:
    """All parts of a sensor, in the order of the model."""
    names = [data.model.sensor(i).name for i in range(data.model.nsensor)]
    return np.concatenate([data.sensor(n).data for n in names if n.split("/")[0] == name])


def test_a_robot_that_holds_its_default_pose_stands_and_stays(model, robot):
    data = held(model, robot)
    advance(model, data, 1.0)
    settled = data.qpos[:2].copy()
    advance(model, data, 5.0)
    assert 0.27 < data.qpos[2] < 0.32
    assert np.linalg.norm(data.qpos[:2] - settled) < 0.02
    upright = 1 - 2 * (data.qpos[4] ** 2 + data.qpos[5] ** 2)
    assert upright > np.cos(np.deg2rad(3))


def test_feet_carry_the_weight_and_nothing_else_touches_the_ground(model, robot):
    data = held(model, robot)
    advance(model, data, 3.0)
    weight = model.body_mass.sum() * 9.81
    assert sensor(data, "foot_force").sum() == pytest.approx(weight, rel=2e-3)
    assert (sensor(data, "foot_force") > 0.15 * weight).all()
    assert (sensor(data, "body_contact") == 0).all()
    np.testing.assert_allclose(sensor(data, "linear_acceleration_b")[2], 9.81, rtol=5e-3)


def test_on_a_slope_feet_feel_the_force_along_its_normal(model, robot):
    model.opt.gravity[:] = 9.81 * np.array([-np.sin(SLOPE), 0, -np.cos(SLOPE)])
    data = held(model, robot)
    advance(model, data, 5.0)
    normal = model.body_mass.sum() * 9.81 * np.cos(SLOPE)
    # It stands; contacts are soft, so that it creeps.
    assert np.linalg.norm(data.qvel[:3]) < 0.01
    assert sensor(data, "foot_force").sum() == pytest.approx(normal, rel=2e-3)


def test_feet_in_the_air_feel_nothing_and_a_robot_on_its_back_touches_with_its_body(model, robot):
    data = held(model, robot)
    data.qpos[2] = 1.0
    advance(model, data, 0.2)
    assert (sensor(data, "foot_force") == 0).all()
    # Free fall: an accelerometer at rest in the falling body shows nothing.
    assert np.abs(sensor(data, "linear_acceleration_b")).max() < 3.0
    data = held(model, robot)
    data.qpos[2:7] = [0.1, 0, 1, 0, 0]
    advance(model, data, 1.0)
    assert data.sensor("body_contact/base").data[0] >= 1
    assert (sensor(data, "foot_force") == 0).all()


@pytest.mark.parametrize("name", ROBOT_NAMES)
def test_a_bump_counts_at_the_calf_and_not_at_the_foot(name: str) -> None:
    counts: dict[str, float] = {}
    # A little ahead of the calf's middle, or a little ahead of the foot, in the calf's axes.
    for where, ahead in {"calf": [0.035, 0, -0.09], "foot": [0.035, 0, -0.213]}.items():
        tree = mujoco.MjSpec.from_file(str(ROBOTS / f"{name}.xml"))
        calf = in_the_air(tree.compile(), name).body("FL_calf")
        bump = tree.worldbody.add_geom(size=[0.02, 0, 0], contype=0, conaffinity=1)
        bump.type = mujoco.mjtGeom.mjGEOM_SPHERE
        bump.pos = calf.xpos + calf.xmat.reshape(3, 3) @ ahead
        data = in_the_air(tree.compile(), name)
        assert data.ncon == 1
        counts[where] = data.sensor("body_contact/FL_calf").data[0]
        assert (data.sensor("foot_force/FL").data[0] > 0) == (where == "foot")
    assert counts == {"calf": 1, "foot": 0}


def in_the_air(model: mujoco.MjModel, name: str) -> mujoco.MjData:
    """The default pose, high above the ground."""
    data = mujoco.MjData(model)
    data.qpos[2] = 1.0
    data.qpos[7:] = default_pose(quadruped(name))
    mujoco.mj_forward(model, data)
    return data


@pytest.mark.slow
def test_random_targets_do_not_break_the_simulation(model, robot):
    worlds, rng = 64, np.random.default_rng(0)
    engine = MujocoEngine(model, worlds, decimation=robot.decimation, threads=1)
    start = torch.tensor(model.qpos0).repeat(worlds, 1)
    start[:, 7:] = torch.tensor(default_pose(robot))
    control = torch.tensor(gains(robot) * default_pose(robot)).repeat(worlds, 1)
    everyone = EnvSelection(torch.ones(worlds, dtype=torch.bool))
    engine.reset(everyone, start, torch.zeros(worlds, model.nv, dtype=torch.float64), control)
    lows, highs = model.jnt_range[1:].T
    for _ in range(60):
        targets = rng.uniform(lows, highs, (worlds, 12))
        engine.control.copy_(torch.from_numpy(gains(robot) * targets))
        engine.step()
        assert not engine.fault.any()
        assert engine.qvel.abs().max() < 200
        assert engine.qpos[:, 2].max() < 1.0


def test_the_velocity_task_runs_with_every_quadruped(robot: JointRobotConfig) -> None:
    worlds = leg_worlds(3, robot=robot)
    worlds.reset()
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        action = 2 * torch.rand(3, robot.spec.num_joints, generator=generator) - 1
        step = worlds.step(action)
        assert step.reward.isfinite().all()
        assert not step.terminated.any()
