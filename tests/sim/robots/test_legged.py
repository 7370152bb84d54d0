"""Laws of the robots with legs: they stand, feel the ground, fall, and do not explode."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from configs.schema import make_env
from robot_rl.core.env_selection import EnvSelection
from sim.env import SimEnv
from sim.physics.mujoco_engine import MujocoEngine
from sim.physics.mujoco_model import ROBOTS, load_model
from sim.robots.joint_robot import JointRobotConfig
from tests.compositions import composed
from tests.matrices import some
from tests.sim.joint_robots import joint_robot

QUADRUPEDS = some(["go2"], ["go1"])
SLOPE = np.deg2rad(10)


def held(
    name: str, height: float | None = None
) -> tuple[mujoco.MjModel, mujoco.MjData, JointRobotConfig]:
    """A robot whose motors hold its default pose."""
    robot = joint_robot(name, "velocity")
    model = load_model(robot.model, robot.spec, physics_dt=robot.physics_dt)
    data = mujoco.MjData(model)
    pose = np.array([joint.default_position for joint in robot.spec.joints])
    data.qpos[7:] = pose
    if height is not None:
        data.qpos[2] = height
    data.ctrl[:] = np.array([joint.stiffness for joint in robot.spec.joints]) * pose
    return model, data, robot


def advance(data: mujoco.MjData, seconds: float) -> None:
    for _ in range(round(seconds / data.model.opt.timestep)):
        mujoco.mj_step(data.model, data)


def sensor(data: mujoco.MjData, name: str) -> np.ndarray:
    """All parts of a sensor, in the order of the model."""
    names = [data.model.sensor(i).name for i in range(data.model.nsensor)]
    return np.concatenate([data.sensor(n).data for n in names if n.split("/")[0] == name])


def uprightness(data: mujoco.MjData) -> float:
    return 1 - 2 * (data.qpos[4] ** 2 + data.qpos[5] ** 2)


@pytest.mark.parametrize("name", QUADRUPEDS)
@pytest.mark.parametrize("slope", [0.0, SLOPE])
def test_a_quadruped_stands_and_its_feet_alone_feel_its_weight_along_the_normal(name, slope):
    model, data, _ = held(name)
    model.opt.gravity[:] = 9.81 * np.array([-np.sin(slope), 0, -np.cos(slope)])
    advance(data, 5.0)
    # Contacts are soft, so that it creeps on a slope.
    assert np.linalg.norm(data.qvel[:3]) < 0.01
    normal = model.body_mass.sum() * 9.81 * np.cos(slope)
    assert sensor(data, "foot_force").sum() == pytest.approx(normal, rel=2e-3)
    assert (sensor(data, "body_contact") == 0).all()
    if not slope:
        assert 0.27 < data.qpos[2] < 0.32
        assert uprightness(data) > np.cos(np.deg2rad(3))
        assert (sensor(data, "foot_force") > 0.15 * normal).all()
        np.testing.assert_allclose(sensor(data, "linear_acceleration_b")[2], 9.81, rtol=5e-3)


def test_a_humanoid_with_the_published_gains_stands_at_first_and_topples_within_2_s():
    model, data, _ = held("g1", height=0.7852)
    advance(data, 0.3)
    weight = model.body_mass.sum() * 9.81
    assert sensor(data, "foot_force").sum() == pytest.approx(weight, rel=0.03)
    assert (sensor(data, "foot_force") > 0.45 * weight).all()
    assert (sensor(data, "body_contact") == 0).all()
    np.testing.assert_allclose(sensor(data, "linear_acceleration_b")[2], 9.81, rtol=0.03)
    advance(data, 2.0)
    assert data.qpos[2] < 0.3
    assert (sensor(data, "body_contact") > 0).any()


@pytest.mark.parametrize(
    ("name", "body", "back"),
    [
        ("go2", "base", [0.1, 0, 1, 0, 0]),
        ("g1", "torso_link", [0.2, np.sqrt(0.5), 0, -np.sqrt(0.5), 0]),
    ],
)
def test_feet_in_the_air_feel_nothing_and_a_robot_on_its_back_touches_with_its_body(
    name, body, back
):
    _, data, _ = held(name, height=1.5)
    advance(data, 0.2)
    assert (sensor(data, "foot_force") == 0).all()
    # Free fall: an accelerometer at rest in the falling body shows nothing.
    assert np.abs(sensor(data, "linear_acceleration_b")).max() < 3.0
    _, data, _ = held(name, height=0.0)
    data.qpos[2:7] = back
    advance(data, 1.0)
    assert data.sensor(f"body_contact/{body}").data[0] >= 1


@pytest.mark.parametrize("name", QUADRUPEDS)
def test_a_bump_counts_at_the_calf_and_not_at_the_foot(name: str) -> None:
    def in_the_air(tree: mujoco.MjSpec) -> mujoco.MjData:
        data = mujoco.MjData(tree.compile())
        data.qpos[2], data.qpos[7:] = 1.0, pose
        mujoco.mj_forward(data.model, data)
        return data

    pose = [joint.default_position for joint in joint_robot(name, "velocity").spec.joints]
    counts: dict[str, float] = {}
    # A little ahead of the calf's middle, or a little ahead of the foot, in the calf's axes.
    for where, ahead in {"calf": [0.035, 0, -0.09], "foot": [0.035, 0, -0.213]}.items():
        tree = mujoco.MjSpec.from_file(str(ROBOTS / f"{name}.xml"))
        calf = in_the_air(tree).body("FL_calf")
        bump = tree.worldbody.add_geom(size=[0.02, 0, 0], contype=0, conaffinity=1)
        bump.type = mujoco.mjtGeom.mjGEOM_SPHERE
        bump.pos = calf.xpos + calf.xmat.reshape(3, 3) @ ahead
        data = in_the_air(tree)
        assert data.ncon == 1
        counts[where] = data.sensor("body_contact/FL_calf").data[0]
        assert (data.sensor("foot_force/FL").data[0] > 0) == (where == "foot")
    assert counts == {"calf": 1, "foot": 0}


@pytest.mark.parametrize(("name", "worlds"), some([("go2", 64), ("g1", 4)], [("go1", 64)]))
def test_random_targets_do_not_break_the_simulation(name: str, worlds: int) -> None:
    model, data, robot = held(name)
    engine = MujocoEngine(model, worlds, decimation=robot.decimation, threads=1)
    everyone = EnvSelection(torch.ones(worlds, dtype=torch.bool))
    start, control = (torch.tensor(part).repeat(worlds, 1) for part in (data.qpos, data.ctrl))
    engine.reset(everyone, start, torch.zeros(worlds, model.nv, dtype=torch.float64), control)
    (lows, highs), rng = model.jnt_range[1:].T, np.random.default_rng(0)
    stiffness = np.array([joint.stiffness for joint in robot.spec.joints])
    for _ in range(60):
        targets = rng.uniform(lows, highs, (worlds, model.nu))
        engine.control.copy_(torch.from_numpy(stiffness * targets))
        engine.step()
        assert not engine.fault.any()
        assert engine.qvel.abs().max() < 200
        assert engine.qpos[:, 2].max() < 1.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("robot", "overrides"),
    [("g1", ["velocity"]), ("g1", ["stand_up", "task.fallen.count=8"]), ("go1", ["velocity"])],
    ids=["g1 velocity", "g1 stand_up", "go1 velocity"],
)
def test_tasks_for_legs_run_with_every_robot(robot: str, overrides: list[str]) -> None:
    config = composed([f"task={overrides[0]}", f"robot={robot}", *overrides[1:]]).config
    single = replace(config, robot=replace(config.robot, physics_threads=1))
    env = make_env(single, num_envs=4, device=torch.device("cpu"), seed=0, evaluation=True)
    assert isinstance(env, SimEnv)
    env.reset(seed=0)
    size = env.spec.action_size
    assert env.mirror().action.width == size == config.robot.spec.num_joints
    step = env.step(torch.zeros(4, size))
    if overrides[0] == "stand_up":
        assert (step.metrics["height"] < 0.5).all(), "fallen robots lie on the ground"
    generator = torch.Generator().manual_seed(0)
    for _ in range(15):
        assert step.valid.all()
        assert step.reward.isfinite().all()
        assert not step.terminated.any()
        assert not step.success.any()
        step = env.step(2 * torch.rand(4, size, generator=generator) - 1)
