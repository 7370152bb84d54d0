"""Scripted experts do their tasks from nine of ten starts; stillness and random actions do not."""

from typing import Any

import numpy as np
import pytest
import torch
from mujoco import batch

from configs.schema import make_env
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import RobotMirror
from robot_rl.core.robot import RobotSpec
from sim.env import SimEnv
from sim.experts import StandUpExpert, scripted_expert
from tests.compositions import composed
from tests.fakes import CPU
from tests.sim.hands import hand_envs


def envs(*overrides: str, count: int = 12) -> SimEnv:
    config = composed(overrides).config
    env = make_env(config, num_envs=count, device=CPU, seed=0, evaluation=True)
    assert isinstance(env, SimEnv)
    return env


@pytest.mark.slow
@pytest.mark.parametrize("robot", ["panda", pytest.param("ur5e", marks=pytest.mark.full)])
def test_every_goal_is_reached_within_the_speed_limits(robot: str) -> None:
    env = envs("task=reach", f"robot={robot}")
    env.reset(seed=1)
    expert = scripted_expert(env)
    fastest, step = 0.0, env.step(expert.act())
    for _ in range(env.task.episode_steps - 1):
        step = env.step(expert.act())
        fastest = max(fastest, float(step.metrics["overspeed"].max()))
    assert step.success.all()
    assert fastest == 0.0


def test_a_task_without_an_expert_names_those_that_have_one() -> None:
    with pytest.raises(
        ConfigError, match="VelocityTask has none; tasks that have one: reach, lift"
    ):
        scripted_expert(envs("task=velocity", "robot=go2", count=1))


WORLDS = 24


def success(env: SimEnv, act: Any) -> float:
    """Share of envs that succeed in one episode each, none of which may end early."""
    env.reset(seed=1)
    succeeded = torch.zeros(env.spec.num_envs, dtype=torch.bool)
    first = torch.ones_like(succeeded)
    for _ in range(env.task.episode_steps):
        step = env.step(act())
        assert step.valid.all()
        succeeded |= step.success & first
        first &= ~(step.terminated | step.truncated)
    assert not first.any()
    return float(succeeded.float().mean())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lift", "peg", "drawer"])
def test_a_scripted_hand_does_every_task_in_nine_of_ten_starts(name: str) -> None:
    env = hand_envs(name, WORLDS)
    expert = scripted_expert(env)
    asked = []

    def act() -> torch.Tensor:
        asked.append(expert.act())
        return asked[-1]

    assert success(env, act) >= 0.9
    assert torch.stack(asked).abs().max() <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lift", "drawer"])
def test_the_same_hand_moves_another_arm_with_a_gripper(name: str) -> None:
    env = envs(f"task={name}", "robot=ur5e_2f85")
    assert success(env, scripted_expert(env).act) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["peg", *(pytest.param(n, marks=pytest.mark.full) for n in ("lift", "drawer"))]
)
def test_neither_stillness_nor_chance_does_a_task(name: str) -> None:
    env = hand_envs(name, WORLDS)
    still = torch.zeros(WORLDS, env.spec.action_size)
    assert success(env, lambda: still) == 0.0
    source = torch.Generator().manual_seed(0)
    shape = (WORLDS, env.spec.action_size)
    # A drawer may be knocked open by arms that flail at full speed: about one in a hundred.
    assert success(env, lambda: 2 * torch.rand(shape, generator=source) - 1) <= 0.05


def test_a_humanoid_that_crouches_is_brought_up_by_plans() -> None:
    env = envs("task=stand_up", "robot=g1", "task.randomization.payload=[0,0]", count=1)
    env.reset(seed=1)
    expert, engine = scripted_expert(env), joint_engine(env)
    for _ in range(59):  # so long it lies down; it plans from then on
        expert.act()
        engine.qvel[:] = 1e-9  # at rest an episode would begin
    assert expert.act().abs().max() < 1e-6, "it lies in its default pose"
    rows = EnvSelection(torch.ones(1, dtype=torch.bool))
    engine.reset(rows, crouching(env), engine.qvel.clone(), engine.control.clone())
    for _ in range(29):
        env.step(expert.act())
    step = env.step(expert.act())
    assert float(step.metrics["height"]) > 0.68
    assert float(step.metrics["tilt"]) < 0.4


def joint_engine(env: SimEnv) -> Any:
    simulation: Any = env.simulation
    return simulation.engine


def robot_of(env: SimEnv) -> RobotSpec:
    simulation: Any = env.simulation
    return simulation.robot


def crouching(env: SimEnv) -> torch.Tensor:
    """Base and joints of a G1 with bent knees and level soles, (1, 36)."""
    robot = robot_of(env)
    bend = {"hip_pitch": -0.7, "knee": 1.4, "ankle_pitch": -0.7}
    joints = [
        joint.default_position + sum(by for part, by in bend.items() if part in joint.name)
        for joint in robot.joints
    ]
    base = [0.0, 0.0, 0.58, 1.0, 0.0, 0.0, 0.0]
    return torch.tensor([[*base, *joints]], dtype=torch.float64)


def test_plans_of_one_state_are_the_same_and_move_both_sides_alike() -> None:
    env = envs("task=stand_up", "robot=g1", count=1)
    expert = scripted_expert(env)
    assert isinstance(expert, StandUpExpert)
    planner, engine = expert._planner, joint_engine(env)
    state = engine.qpos.numpy()[0], engine.qvel.numpy()[0]
    plan = planner.begin(planner.default)
    one, other = planner.improved(plan, *state), planner.improved(plan, *state)
    assert np.array_equal(one, other)
    assert not np.array_equal(one, plan)
    targets = torch.from_numpy(planner.targets(one, 10) - planner.default)
    mirror = RobotMirror(robot_of(env)).joints
    mirrored = targets[list(mirror.source)] * torch.tensor(mirror.sign)
    torch.testing.assert_close(targets, mirrored)


def test_a_planner_takes_no_more_threads_than_its_envs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took every core, whatever `robot.physics_threads` said."""
    taken: list[int] = []

    class Batch(batch.Batch):
        def __init__(self, model: object, count: int, threads: int) -> None:
            taken.append(threads)
            super().__init__(model, count, threads)

    env = envs("task=stand_up", "robot=g1", "robot.physics_threads=1", count=1)
    monkeypatch.setattr(batch, "Batch", Batch)
    scripted_expert(env)
    assert taken == [1]


def test_a_robot_that_is_no_humanoid_has_no_plan() -> None:
    with pytest.raises(ConfigError, match="'go2' up: its joint 'FL_hip_joint' is none of a human"):
        scripted_expert(envs("task=stand_up", "robot=go2", count=1))
