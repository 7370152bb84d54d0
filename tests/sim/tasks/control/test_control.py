"""Cart-pole and ball in cup: rewards by hand, limits, success, and that both can be done."""

import math
from typing import Any

import pytest
import torch

from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.observation import RobotState
from sim.task import InitialState
from sim.tasks.control.cartpole import CartpoleTask
from tests.compositions import composed
from tests.sim.pixels import pixel_envs
from tests.sim.stepping import context, everyone


def envs(task: str, count: int = 2, steps: int = 100) -> Any:
    return pixel_envs(count, task=task, cameras=(), steps=steps)


def place_cart(env: Any, cart: float, pole: float) -> None:
    """Put the cart [m] and the pole's angle from upright [rad] somewhere, at rest."""
    count = env.spec.num_envs
    still = torch.zeros(count, 1)
    start = InitialState(
        robot=RobotState({"joint_position": still + cart, "joint_velocity": still}),
        scene={"hinge": still + pole},
    )
    env.simulation.reset(everyone(count), start, torch.Generator())


def test_the_pole_begins_below_and_the_reward_of_standing_still_there_is_zero():
    env = envs("cartpole_swingup")
    env.reset(seed=0)
    step = env.step(torch.zeros(2, 1))
    assert (step.metrics["upright"] < -0.99).all()
    assert (step.reward < 0.01).all()


def test_an_episode_ends_with_the_pole_where_it_was_and_not_where_the_next_one_begins():
    env = envs("cartpole_swingup", steps=3)
    env.reset(seed=0)
    ended = False
    for _ in range(4):
        place_cart(env, 0.0, 0.3)
        step = env.step(torch.zeros(2, 1))
        ended = ended or bool(step.ended.any())
        assert (step.metrics["upright"] > 0.8).all()
    assert ended


@pytest.mark.parametrize(
    ("cart", "pole", "action", "expected"),
    [
        (0.0, 0.0, 0.0, 1.0),
        (0.0, 0.0, 1.0, 0.8),  # full force costs a fifth
        (2.0, 0.0, 0.0, 0.55),  # at the margin: (1 + 0.1) / 2
        (0.0, math.pi / 2, 0.0, 0.5),
    ],
)
def test_the_reward_is_the_product_of_the_suite(
    cart: float, pole: float, action: float, expected: float
):
    env = envs("cartpole_swingup")
    place_cart(env, cart, pole)
    moved = torch.full((2, 1), action)
    step = torch.ones(2, dtype=torch.int64)
    outcome = env.task.evaluate(env.simulation.true_state, moved, moved, step)
    assert float(outcome.reward_terms["balance"][0]) == pytest.approx(expected, abs=1e-3)


def test_an_action_of_one_pushes_cart_and_pole_with_ten_newtons():
    env = envs("cartpole_swingup")
    place_cart(env, 0.0, math.pi)
    env.step(torch.tensor([[1.0], [-1.0]]))
    speed = env.simulation.true_state.joint_velocity[:, 0]
    # F t / m, where the hanging pole (0.1 kg) is hardly moved yet; t is 4 steps of 5 ms.
    assert float(speed[0]) == pytest.approx(10 * 0.02 / 1.0, rel=0.05)
    assert float(speed[1]) == pytest.approx(-float(speed[0]), rel=1e-3)


def test_a_pole_that_stands_until_the_end_is_a_success():
    env = envs("cartpole_swingup", steps=10)
    env.reset(seed=0)
    place_cart(env, 0.0, 0.0)
    step = [env.step(torch.zeros(2, 1)) for _ in range(10)][-1]
    assert step.truncated.all()
    assert step.success.all()


def test_a_ball_in_the_cup_is_rewarded_and_stays_there():
    env = envs("ball_in_cup", steps=20)
    env.reset(seed=0)
    still = torch.zeros(2, 2)
    start = InitialState(
        robot=RobotState({"joint_position": still, "joint_velocity": still}),
        scene={"ball_x": torch.zeros(2, 1), "ball_z": torch.tensor([[0.56], [0.3]])},
    )
    env.simulation.reset(everyone(2), start, torch.Generator())
    step = [env.step(torch.zeros(2, 2)) for _ in range(20)][-1]
    assert step.reward.tolist() == [1.0, 0.0]
    assert step.success.tolist() == [True, False]


def test_the_ball_never_begins_in_the_cup_and_its_string_is_not_longer_than_said():
    env = envs("ball_in_cup", count=200)
    env.reset(seed=0)
    assert env.simulation.sensors["ball_from_cup"][:, [0, 2]].abs().amax(-1).min() > 0.025
    for _ in range(50):
        env.step(torch.rand(200, 2) * 2 - 1)
    ball = env.simulation.sensors["ball_position"]
    cup = env.simulation.true_state.joint_position
    hook = torch.stack([cup[:, 0], 0 * cup[:, 0], cup[:, 1] + 0.6 - 0.108], dim=-1)
    assert float((ball - hook).norm(dim=-1).max()) < 0.33  # the string is a soft constraint


def test_other_robots_are_refused_in_a_sentence():
    config = composed(["task=cartpole_swingup"]).config.task
    with pytest.raises(SpecMismatchError, match="robot=cartpole"):
        CartpoleTask(config, context(2, 0.08))
