"""Scripted experts do their tasks from nine of ten starts; stillness and random actions do not."""

from typing import Any

import pytest
import torch

from configs.schema import make_env
from robot_rl.core.errors import ConfigError
from sim.env import SimEnv
from sim.experts.arms import DrawerExpert, LiftExpert, PegExpert, nearest_turn
from sim.experts.catalog import scripted_expert
from tests.compositions import composed
from tests.fakes import CPU
from tests.sim.hands import hand_worlds


def worlds(*overrides: str, count: int = 12) -> SimEnv:
    config = composed(overrides).config
    env = make_env(config, num_envs=count, device=CPU, seed=0, evaluation=True)
    assert isinstance(env, SimEnv)
    return env


@pytest.mark.slow
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


@pytest.mark.slow
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


EXPERTS = {"lift": LiftExpert, "peg": PegExpert, "drawer": DrawerExpert}
WORLDS = 40


def success(env: SimEnv, act: Any) -> float:
    """Share of worlds that succeed in one episode each, none of which may end early."""
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
@pytest.mark.parametrize("name", EXPERTS)
def test_a_scripted_hand_does_every_task_in_nine_of_ten_starts(name: str) -> None:
    env = hand_worlds(name, WORLDS)
    expert = EXPERTS[name](env.simulation, env.task, env.action_map)
    asked = []

    def act() -> torch.Tensor:
        asked.append(expert.act())
        return asked[-1]

    assert success(env, act) >= 0.9
    assert torch.stack(asked).abs().max() <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["peg", *(pytest.param(n, marks=pytest.mark.full) for n in ("lift", "drawer"))]
)
def test_neither_stillness_nor_chance_does_a_task(name: str) -> None:
    env = hand_worlds(name, WORLDS)
    still = torch.zeros(WORLDS, env.spec.action_size)
    assert success(env, lambda: still) == 0.0
    source = torch.Generator().manual_seed(0)
    shape = (WORLDS, env.spec.action_size)
    # A drawer may be knocked open by arms that flail at full speed: about one in a hundred.
    assert success(env, lambda: 2 * torch.rand(shape, generator=source) - 1) <= 0.05


def test_the_nearest_of_equal_headings_is_taken_by_hand() -> None:
    angle, near = torch.tensor([3.0, -0.1, 1.0]), torch.zeros(3)
    turned = nearest_turn(angle, torch.pi / 2, near)
    torch.testing.assert_close(turned, torch.tensor([3.0 - torch.pi, -0.1, 1.0 - torch.pi / 2]))


def test_a_lift_begins_to_go_over_the_cube() -> None:
    env = hand_worlds("lift", 4)
    env.reset(seed=0)
    expert = LiftExpert(env.simulation, env.task, env.action_map)
    sensors, true_state = env.simulation.sensors, env.simulation.true_state

    def beside() -> torch.Tensor:
        way = sensors["cube_position"] - true_state.end_effector_position_b
        return way[:, :2].norm(dim=-1)

    before = beside()
    for _ in range(12):
        env.step(expert.act())
    assert (beside() < 0.5 * before + 0.005).all()
