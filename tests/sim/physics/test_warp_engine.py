"""MuJoCo Warp beside MuJoCo in C: the same physics, isolated faults, graphs that follow changes."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from sim.physics.engine import Engine
from sim.physics.mujoco_engine import MujocoEngine
from sim.physics.mujoco_model import load_model
from sim.physics.warp_engine import MujocoWarpEngine
from sim.robots.joint_robot import PhysicsEngine
from tests.compositions import composed
from tests.equality import assert_same
from tests.matrices import some
from tests.sim.arms import arm_envs
from tests.sim.physics.test_engines import WORLDS, pendulums

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
            pytest.param("g1", "velocity", 2.0, ALOFT, id="g1 in the air"),
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
    first, second = (arm_envs(6, noise=noise, engine=engine) for engine in PhysicsEngine)
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
def test_captured_steps_with_contacts_are_those_that_run_one_by_one():
    (_, captured, control, pose), (_, eager, _, _) = (
        robot_engines("go2", "velocity") for _ in range(2)
    )
    assert isinstance(eager, MujocoWarpEngine)
    position = np.array(captured.model.qpos0)[None].repeat(WORLDS, 0)
    position[:, 2], position[:, 7 : 7 + len(pose)] = 0.32, pose
    velocity = np.random.default_rng(4).uniform(-0.2, 0.2, (WORLDS, captured.model.nv))
    for engine in (captured, eager):
        engine.reset(EVERYONE, position, velocity, control)
        engine.control.copy_(control)
    hardest = 0.0
    for _ in range(4):
        step_alike(captured, eager)
        hardest = max(hardest, float(captured.sensors["foot_force/FL"].max()))
    assert hardest > 1, "somebody stood on this foot"


def test_every_substep_has_its_control_of_the_ramp() -> None:
    first, second = (pendulums(kind) for kind in ("c", "warp"))
    ramp = np.random.default_rng(1).uniform(-2, 2, (WORLDS, 4, 1))
    for _ in range(3):
        for engine in (first, second):
            engine.ramp.copy_(torch.from_numpy(ramp))
            engine.step(ramped=True)
            np.testing.assert_allclose(engine.control, ramp[:, -1], rtol=1e-6)
        found = differences(first, second)
        assert max(found.values()) < 1e-5, found


def test_a_field_that_begins_to_differ_after_the_capture_is_felt() -> None:
    engine, twin = pendulums("warp"), pendulums("warp")
    for _ in range(3):
        engine.step()
        twin.step()
    engine.model_field("dof_damping")[1] = 5.0
    engine.step()
    twin.step()
    assert not torch.equal(engine.qvel[1], twin.qvel[1])
    assert torch.equal(engine.qvel[[0, 2, 3, 4]], twin.qvel[[0, 2, 3, 4]])


def test_a_state_of_warp_goes_on_in_the_other_engine() -> None:
    second = pendulums("warp")
    first = MujocoEngine(second.model, WORLDS, decimation=4, threads=1)
    second.step()
    first.load_state_dict(second.state_dict())
    for engine in (first, second):
        engine.step()
    assert max(differences(first, second).values()) < 1e-5


def test_a_robot_behind_a_loop_is_stepped_in_c_whatever_it_was_trained_with() -> None:
    robot = composed(["task=velocity", "robot=go2", "robot.engine=warp"]).config.robot
    assert robot.engine is PhysicsEngine.warp
    assert robot.behind_a_loop().engine is PhysicsEngine.batch
