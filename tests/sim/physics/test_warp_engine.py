"""MuJoCo Warp beside MuJoCo in C: the same physics, isolated faults, graphs that follow changes."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import copy
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError, ShapeError
from sim.physics.engine import Engine
from sim.physics.mujoco_engine import MujocoEngine
from sim.physics.mujoco_model import load_model
from sim.physics.warp_engine import MujocoWarpEngine
from sim.robots.joint_robot import PhysicsEngine
from tests.compositions import composed
from tests.equality import assert_same
from tests.matrices import some
from tests.sim.arms import arm_worlds
from tests.sim.physics.test_mujoco_engine import PENDULUMS, WORLDS, picked

pytestmark = pytest.mark.slow

BALLS = """
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 0.1"/>
    <body pos="0 0 0.1"><freejoint/><geom type="box" size="0.1 0.1 0.1" mass="1"/></body>
  </worldbody>
  <sensor><framepos name="box" objtype="xbody" objname="box_body"/></sensor>
</mujoco>
""".replace('<body pos="0 0 0.1">', '<body name="box_body" pos="0 0 0.1">')
"""A box that lies on the floor: four contacts."""
EVERYONE = EnvSelection(torch.ones(WORLDS, dtype=torch.bool))


def started(engine: Engine, seed: int = 0) -> Engine:
    """Pendulums with different starts and torques."""
    rng = np.random.default_rng(seed)
    engine.reset(EVERYONE, *(torch.from_numpy(rng.uniform(-1, 1, (WORLDS, n))) for n in (2, 2, 1)))
    return engine


def pendulums(**arguments: Any) -> MujocoWarpEngine:
    model = mujoco.MjModel.from_xml_string(PENDULUMS)
    engine = MujocoWarpEngine(model, WORLDS, **{"decimation": 4, **arguments})
    started(engine)
    return engine


def both() -> tuple[Engine, Engine]:
    """The same pendulums in MuJoCo in C and in Warp."""
    model = mujoco.MjModel.from_xml_string(PENDULUMS)
    return started(MujocoEngine(model, WORLDS, decimation=4, threads=1)), pendulums()


def boxes(**arguments: Any) -> MujocoWarpEngine:
    return MujocoWarpEngine(mujoco.MjModel.from_xml_string(BALLS), WORLDS, **arguments)


def differences(first: Engine, second: Engine) -> dict[str, float]:
    names = ("qpos", "qvel", "actuator_force", "sensordata", "motion")
    return {n: float((getattr(first, n) - getattr(second, n)).abs().max()) for n in names}


def robot_engines(robot: str, task: str) -> tuple[Engine, Engine, Tensor, list[float]]:
    """Both engines with the model of a robot, controls that hold its default pose, and the pose."""
    config = composed([f"task={task}", f"robot={robot}"]).config.robot
    model = load_model(config.model, config.spec, physics_dt=config.physics_dt)
    # As many iterations as it takes: where a solver is stopped early, two stop at two places.
    model.opt.iterations, model.opt.ls_iterations = 100, 50
    engines = (
        MujocoEngine(model, WORLDS, decimation=config.decimation, threads=1),
        MujocoWarpEngine(model, WORLDS, decimation=config.decimation),
    )
    pose = [joint.default_position for joint in config.spec.joints]
    stiffness = [joint.stiffness for joint in config.spec.joints]
    control = torch.zeros(WORLDS, model.nu, dtype=torch.float64)
    control[:, : len(pose)] = torch.tensor(pose) * torch.tensor(stiffness)
    return *engines, control, pose


CLOSE = {"qpos": 1e-6, "qvel": 1e-5, "sensordata": 2e-5}
ALOFT = {"qpos": 1e-6, "qvel": 1e-4, "sensordata": 1e-4}
TOUCHING = {"qpos": 1e-5, "qvel": 1e-3, "sensordata": 5e-2}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("robot", "task", "height", "bounds"),
    some(
        [
            pytest.param("panda", "reach", None, CLOSE, id="panda"),
            pytest.param("go2", "velocity", 0.32, TOUCHING, id="go2 on its feet"),
        ],
        [
            pytest.param("ur5e", "reach", None, CLOSE, id="ur5e"),
            pytest.param("go2", "velocity", 1.0, CLOSE, id="go2 in the air"),
            pytest.param("go1", "velocity", 1.0, CLOSE, id="go1 in the air"),
            pytest.param("g1", "velocity", 2.0, ALOFT, id="g1 in the air"),
            pytest.param("go1", "velocity", 0.32, TOUCHING, id="go1 on its feet"),
            pytest.param(
                "g1", "velocity", 0.79, TOUCHING | {"sensordata": 0.2}, id="g1 on its feet"
            ),
        ],
    ),
)
def test_a_control_step_of_a_robot_is_the_same_in_both_engines(robot, task, height, bounds):
    first, second, control, pose = robot_engines(robot, task)
    model, rng = first.model, np.random.default_rng(3)
    position = np.array(model.qpos0)[None].repeat(WORLDS, 0)
    start = 7 if height else 0  # behind a floating base
    joints = slice(start, start + len(pose))
    position[:, joints] = pose + rng.uniform(-0.1, 0.1, (WORLDS, len(pose)))
    if height:
        position[:, 2] = height
    velocity = rng.uniform(-0.2, 0.2, (WORLDS, model.nv))
    for engine in (first, second):
        engine.reset(EVERYONE, position, velocity, control)
    for _ in range(3):
        asked = control + torch.from_numpy(rng.uniform(-2, 2, control.shape))
        for engine in (first, second):
            engine.control.copy_(asked)
            engine.step()
        found = differences(first, second)
        assert all(found[name] <= bound for name, bound in bounds.items()), found
        second.load_state_dict(_state_of(first, second))  # errors do not add up


def _state_of(source: Engine, target: Engine) -> dict[str, Any]:
    """The state of one engine in the form of the other."""
    state = target.state_dict()
    return {**state, "state": source.state_dict()["state"].float()}


@pytest.mark.parametrize("noise", some([True], [False]))
def test_observations_and_rewards_are_those_of_the_other_engine(noise: bool) -> None:
    """Motors with delays and torque-speed lines, friction, drawn masses, gripper, late sensors."""
    first, second = (arm_worlds(6, noise=noise, engine=engine) for engine in PhysicsEngine)
    assert_close = torch.testing.assert_close
    for seed in (0, 1):
        assert_close(second.reset(seed=seed), first.reset(seed=seed), rtol=1e-5, atol=1e-5)
        actions = torch.rand(8, 6, 7, generator=torch.Generator().manual_seed(seed)) * 2 - 1
        for action in actions:
            ours, theirs = second.step(0.3 * action), first.step(0.3 * action)
            assert_close(ours.next_obs, theirs.next_obs, rtol=1e-3, atol=1e-3)
            assert_close(ours.reward, theirs.reward, rtol=1e-3, atol=1e-3)
            assert torch.equal(ours.ended, theirs.ended)


def step_alike(captured: Engine, eager: MujocoWarpEngine) -> None:
    """Step a graph, and the same without one: they end alike to the last bit."""
    captured.step()
    eager.forget_graphs()  # its next step is the first again, which runs as it is
    eager.step()
    assert_same((captured.qpos, captured.qvel, captured.sensordata),
                (eager.qpos, eager.qvel, eager.sensordata))  # fmt: skip


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("robot", "height", "foot"), some([("go2", 0.32, "FL")], [("g1", 0.79, "left_foot")])
)
def test_captured_steps_with_contacts_are_those_that_run_one_by_one(robot, height, foot):
    (_, captured, control, pose), (_, eager, _, _) = (
        robot_engines(robot, "velocity") for _ in range(2)
    )
    assert isinstance(eager, MujocoWarpEngine)
    position = np.array(captured.model.qpos0)[None].repeat(WORLDS, 0)
    position[:, 2], position[:, 7 : 7 + len(pose)] = height, pose
    velocity = np.random.default_rng(4).uniform(-0.2, 0.2, (WORLDS, captured.model.nv))
    for engine in (captured, eager):
        engine.reset(EVERYONE, position, velocity, control)
        engine.control.copy_(control)
    hardest = 0.0
    for _ in range(4):
        step_alike(captured, eager)
        hardest = max(hardest, float(captured.sensors[f"foot_force/{foot}"].max()))
    assert hardest > 1, "somebody stood on this foot"


def test_captured_steps_are_those_that_run_one_by_one_to_the_last_bit() -> None:
    captured, eager = pendulums(), pendulums()
    for _ in range(4):
        step_alike(captured, eager)


def test_sensors_tell_of_the_present_state() -> None:
    engine = pendulums()
    for _ in range(3):
        engine.step()
        upper, lower = engine.qpos[:, 0], engine.qpos.sum(-1)
        height = -0.5 * upper.cos() - 0.5 * lower.cos()
        torch.testing.assert_close(engine.sensors["tip"][:, 2], height)
        torch.testing.assert_close(engine.sensors["rate"][:, 0], engine.qvel[:, 1])
        assert torch.equal(engine.motion, torch.cat([engine.qpos, engine.qvel], dim=1))


def test_every_substep_has_its_control_of_the_ramp() -> None:
    first, second = both()
    ramp = np.random.default_rng(1).uniform(-2, 2, (WORLDS, 4, 1))
    for _ in range(3):
        for engine in (first, second):
            engine.ramp.copy_(torch.from_numpy(ramp))
            engine.step(ramped=True)
            np.testing.assert_allclose(engine.control, ramp[:, -1], rtol=1e-6)
        found = differences(first, second)
        assert max(found.values()) < 1e-5, found


def test_a_masked_reset_touches_only_its_worlds_and_leaves_nothing_of_their_past() -> None:
    engine, twin, fresh = pendulums(), pendulums(), pendulums()
    for each in (engine, twin):
        each.step()
    start = [torch.ones(2, 2), torch.zeros(2, 2), torch.zeros(2, 1)]
    engine.reset(picked(0, 4), *start)
    fresh.reset(picked(0, 4), *start)
    others = [1, 2, 3]
    for _ in range(3):
        for each in (engine, twin, fresh):
            each.step()
        assert torch.equal(engine.qpos[others], twin.qpos[others])
        assert torch.equal(engine.sensordata[others], twin.sensordata[others])
        assert torch.equal(engine.qpos[[0, 4]], fresh.qpos[[0, 4]])
        assert torch.equal(engine.sensordata[[0, 4]], fresh.sensordata[[0, 4]])


def test_a_restored_state_goes_on_bit_equal_in_another_engine() -> None:
    engine, other = pendulums(), pendulums()
    engine.model_field("body_mass")[2] *= 1.7
    engine.model_field("dof_damping")[:, 1] = torch.linspace(0, 1, WORLDS)
    engine.update_constants(picked(2))
    engine.step()
    state = engine.state_dict()
    snapshot = copy.deepcopy(state)
    expected = []
    for _ in range(5):
        engine.step()
        expected.append((engine.qpos.clone(), engine.qvel.clone(), engine.sensordata.clone()))
    other.step()
    other.load_state_dict(state)
    for step in expected:
        other.step()
        assert_same((other.qpos, other.qvel, other.sensordata), step)
    assert_same(state, snapshot)
    three = MujocoWarpEngine(engine.model, 3)
    with pytest.raises(ShapeError, match="saved envs"):
        three.load_state_dict(state)


def test_a_field_that_begins_to_differ_after_the_capture_is_felt() -> None:
    engine, twin = pendulums(), pendulums()
    for _ in range(3):
        engine.step()
        twin.step()
    engine.model_field("dof_damping")[1] = 5.0
    engine.step()
    twin.step()
    assert not torch.equal(engine.qvel[1], twin.qvel[1])
    assert torch.equal(engine.qvel[[0, 2, 3, 4]], twin.qvel[[0, 2, 3, 4]])
    with pytest.raises(ConfigError, match="model field 'nonsense': MuJoCo Warp has none"):
        engine.model_field("nonsense")


def test_masses_of_one_world_change_it_as_in_c() -> None:
    first, second = both()
    for engine in (first, second):
        engine.model_field("body_mass")[3] *= 2.0
        engine.model_field("body_inertia")[3] *= 2.0
        engine.update_constants(picked(3))
        engine.step()
    assert max(differences(first, second).values()) < 1e-5


def test_a_world_that_is_not_finite_is_put_back_and_felt_by_nobody() -> None:
    engine, twin = pendulums(), pendulums()
    for each in (engine, twin):
        each.step()
    engine.qvel[2] = torch.nan
    engine.step()
    twin.step()
    assert engine.fault.tolist() == [False, False, True, False, False]
    others = [0, 1, 3, 4]
    for _ in range(2):
        assert torch.equal(engine.qpos[others], twin.qpos[others])
        assert engine.qpos.isfinite().all()
        assert engine.sensordata.isfinite().all()
        engine.step()
        twin.step()
    assert engine.fault[2], "until it is reset"
    (record,) = engine.fault_records
    assert (record.world, record.reasons) == (2, ["ran away"])
    assert np.isnan(record.state).any()
    engine.reset(picked(2), torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 1))
    assert not engine.fault.any()


@pytest.mark.parametrize("speed", [1e11, 1e15, 1e20])
def test_a_world_that_runs_away_is_given_up_as_by_mujoco_in_c(speed: float) -> None:
    for engine in both():
        engine.qvel[3] = speed
        engine.step()
        assert engine.fault.tolist() == [False, False, False, True, False]
        assert engine.qvel.abs().max() < 1e10


def test_a_state_of_warp_goes_on_in_the_other_engine() -> None:
    second = pendulums()
    first = MujocoEngine(second.model, WORLDS, decimation=4, threads=1)
    second.step()
    first.load_state_dict(second.state_dict())
    for engine in (first, second):
        engine.step()
    assert max(differences(first, second).values()) < 1e-5


def test_numbers_out_of_range_are_refused() -> None:
    for name in ("decimation", "contacts"):
        with pytest.raises(ConfigError, match=f"{name} must be at least"):
            pendulums(**{name: -1})


def test_a_world_can_be_copied_for_drawing() -> None:
    engine = pendulums()
    engine.model_field("body_mass")[1] *= 3.0
    engine.step()
    model = copy.copy(engine.model)
    data = mujoco.MjData(model)
    engine.copy_world(1, model, data)
    np.testing.assert_allclose(data.qpos, engine.qpos[1], rtol=1e-6)
    np.testing.assert_allclose(data.site("tip").xpos, engine.sensors["tip"][1], atol=1e-5)
    assert model.body_mass[1] == pytest.approx(3 * engine.model.body_mass[1])


def test_a_robot_behind_a_loop_is_stepped_in_c_whatever_it_was_trained_with() -> None:
    robot = composed(["task=velocity", "robot=go2", "robot.engine=warp"]).config.robot
    assert robot.engine is PhysicsEngine.warp
    assert robot.behind_a_loop().engine is PhysicsEngine.batch
