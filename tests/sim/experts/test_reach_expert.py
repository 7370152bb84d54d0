"""The scripted reach, with both arms, and the table of experts."""

import pytest
import torch

from configs.schema import make_env
from robot_rl.core.errors import ConfigError
from sim.env import SimEnv
from sim.experts.catalog import scripted_expert
from tests.compositions import composed
from tests.fakes import CPU


def worlds(*overrides: str, count: int = 12) -> SimEnv:
    config = composed(overrides).config
    env = make_env(config, num_envs=count, device=CPU, seed=0, evaluation=True)
    assert isinstance(env, SimEnv)
    return env


@pytest.mark.parametrize("robot", ["panda", "ur5e"])
def test_every_goal_is_reached_within_the_speed_limits(robot: str) -> None:
    env = worlds("task=reach", f"robot={robot}")
    env.reset(seed=1)
    expert = scripted_expert(env)
    fastest, step = 0.0, env.step(expert.act())
    for _ in range(env.task.episode_steps - 1):
        step = env.step(expert.act())
        fastest = max(fastest, float(step.metrics["overspeed"].max()))
    assert step.success.all()
    assert fastest == 0.0


def test_a_reach_goes_straight_to_its_goal() -> None:
    env = worlds("task=reach", count=4)
    env.reset(seed=2)
    expert, true_state = scripted_expert(env), env.simulation.true_state
    goal = env.task.goal["end_effector_position_b"]
    start = true_state.end_effector_position_b.clone()
    way = (goal - start) / (goal - start).norm(dim=-1, keepdim=True)
    for _ in range(25):
        env.step(expert.act())
        moved = true_state.end_effector_position_b - start
        beside = (moved - (moved * way).sum(-1, keepdim=True) * way).norm(dim=-1)
        assert beside.max() < 0.04


def test_the_expert_of_a_flight_task_stays_near_its_goal() -> None:
    env = worlds("task=hover", "robot=crazyflie", count=3)
    env.reset(seed=0)
    expert = scripted_expert(env)
    for _ in range(300):
        env.step(expert.act())
    assert torch.linalg.vector_norm(env.simulation.true_state.position_w, dim=-1).max() < 0.3


def test_a_task_without_an_expert_names_those_that_have_one() -> None:
    with pytest.raises(
        ConfigError, match="VelocityTask has none; tasks that have one: reach, lift"
    ):
        scripted_expert(worlds("task=velocity", "robot=go2", count=1))
