"""Laws of the humanoid that comes along: its feet carry it, it falls, and tasks run with it."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from configs.schema import make_env
from sim.env import SimEnv
from sim.physics.mujoco_model import load_model
from sim.robots.joint_robot import JointRobotConfig
from tests.compositions import composed
from tests.matrices import some
from tests.sim.joint_robots import joint_robot


@pytest.fixture(scope="module")
def robot() -> JointRobotConfig:
    return joint_robot("g1", "velocity")


@pytest.fixture
def model(robot: JointRobotConfig) -> mujoco.MjModel:
    return load_model(robot.model, robot.spec, physics_dt=robot.physics_dt)


def default_pose(robot: JointRobotConfig) -> np.ndarray:
    return np.array([joint.default_position for joint in robot.spec.joints])


def held(model: mujoco.MjModel, robot: JointRobotConfig, factor: float = 1.0) -> mujoco.MjData:
    """A robot a millimetre above the ground that holds its default pose, with gains times a
    factor."""
    model.actuator_biasprm[:, 1:3] *= factor
    data = mujoco.MjData(model)
    data.qpos[2], data.qpos[7:] = 0.7852, default_pose(robot)
    data.ctrl[:] = -model.actuator_biasprm[:, 1] * default_pose(robot)
    return data


def advance(model: mujoco.MjModel, data: mujoco.MjData, seconds: float) -> None:
    for _ in range(round(seconds / model.opt.timestep)):
        mujoco.mj_step(model, data)


def parts(data: mujoco.MjData, name: str) -> np.ndarray:
    """All parts of a sensor, in the order of the model."""
    names = [data.model.sensor(i).name for i in range(data.model.nsensor)]
    return np.concatenate([data.sensor(n).data for n in names if n.split("/")[0] == name])


def test_at_first_its_feet_carry_it_and_nothing_else_touches_the_ground(model, robot):
    """The published gains are too soft to stand on without balancing: it topples within 2 s."""
    data = held(model, robot)
    advance(model, data, 0.3)
    weight = model.body_mass.sum() * 9.81
    assert parts(data, "foot_force").sum() == pytest.approx(weight, rel=0.03)
    assert (parts(data, "foot_force") > 0.45 * weight).all()
    assert (parts(data, "body_contact") == 0).all()
    np.testing.assert_allclose(parts(data, "linear_acceleration_b")[2], 9.81, rtol=0.03)
    advance(model, data, 2.0)
    assert data.qpos[2] < 0.3
    assert (parts(data, "body_contact") > 0).any()


def test_with_stiff_joints_it_stands_and_stays(model, robot):
    model.opt.timestep = 0.001  # for gains that are twenty times too stiff
    data = held(model, robot, factor=20.0)
    advance(model, data, 1.5)
    settled = data.qpos[:2].copy()
    advance(model, data, 1.5)
    assert 0.783 < data.qpos[2] < 0.785
    assert np.linalg.norm(data.qpos[:2] - settled) < 0.002
    upright = 1 - 2 * (data.qpos[4] ** 2 + data.qpos[5] ** 2)
    assert upright > np.cos(np.deg2rad(2))
    assert (parts(data, "body_contact") == 0).all()


def test_feet_in_the_air_feel_nothing_and_a_robot_on_its_back_touches_with_its_torso(model, robot):
    data = held(model, robot)
    data.qpos[2] = 1.5
    advance(model, data, 0.2)
    assert (parts(data, "foot_force") == 0).all()
    data = held(model, robot)
    data.qpos[2:7] = [0.2, np.sqrt(0.5), 0, -np.sqrt(0.5), 0]
    advance(model, data, 1.0)
    assert data.sensor("body_contact/torso_link").data[0] >= 1


def test_random_targets_do_not_break_the_simulation(model, robot):
    data, rng = held(model, robot), np.random.default_rng(0)
    lows, highs = model.jnt_range[1:].T
    gains = -model.actuator_biasprm[:, 1]
    for _ in range(300):
        data.ctrl[:] = gains * rng.uniform(lows, highs)
        mujoco.mj_step(model, data, nstep=robot.decimation)
        assert np.abs(data.qvel).max() < 200
        assert data.qpos[2] < 1.5
    assert not any(warning.number for warning in data.warning)


def worlds(task: str, *overrides: str) -> SimEnv:
    config = composed([f"task={task}", "robot=g1", *overrides]).config
    env = make_env(
        replace(config, robot=replace(config.robot, physics_threads=1)), num_envs=4,
        device=torch.device("cpu"), seed=0, evaluation=True,
    )  # fmt: skip
    assert isinstance(env, SimEnv)
    return env


@pytest.mark.parametrize("agent", some(["random"], ["zero"]))
@pytest.mark.parametrize(
    "overrides",
    [["velocity"], ["stand_up", "task.fallen.count=8"]],
    ids=lambda overrides: overrides[0],
)
def test_tasks_for_legs_run_with_two_feet(overrides: list[str], agent: str) -> None:
    env = worlds(*overrides)
    env.reset(seed=0)
    assert env.mirror().action.width == env.spec.action_size == 29
    generator = torch.Generator().manual_seed(0)
    for _ in range(15):
        unit = 2 * torch.rand(4, 29, generator=generator) - 1
        step = env.step(unit if agent == "random" else 0 * unit)
        assert step.valid.all()
        assert step.reward.isfinite().all()
        assert not step.terminated.any()


@pytest.mark.slow
def test_fallen_robots_lie_on_the_ground() -> None:
    env = worlds("stand_up", "task.fallen.count=16")
    env.reset(seed=0)
    step = env.step(torch.zeros(4, 29))
    assert (step.metrics["height"] < 0.5).all()
    assert not step.success.any()
