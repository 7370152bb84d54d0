"""Hover: every reward term, the success rule, its window and the end of an episode, by hand."""

import math

import pytest
import torch

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import RobotState
from sim.tasks.flights.flight import (
    CLOSE,
    PRECISE,
    AttitudeDraw,
    FlightStartConfig,
    RewardWeightsConfig,
)
from sim.tasks.flights.hover import HoverConfig, HoverTask
from tests.sim.flying import flight_state as state
from tests.sim.stepping import context, terms_of

HOVER = 0.3
"""Action that carries the weight, in these tests."""


def make_task(num_worlds: int = 1, *, evaluation: bool = False, **config) -> HoverTask:
    return HoverTask(
        HoverConfig(**config),
        context(num_worlds, 0.01, hover_action=[HOVER] * 4, evaluation=evaluation),
    )


def evaluate(task: HoverTask, true_state: RobotState, step: int, action=HOVER, last=HOVER):
    return task.evaluate(
        true_state, torch.full((1, 4), action), torch.full((1, 4), last), torch.tensor([step])
    )


def test_reward_terms_by_hand():
    true_state = state(
        position=(0.3, 0.0, 0.4),
        velocity=(1.0, 2.0, 2.0),
        attitude=(math.cos(math.pi / 6), 0.5, 0.0, 0.0),  # leans 60 deg
        rates=(0.1, 0.2, 0.2),
    )
    verdict = evaluate(make_task(), true_state, 1, action=HOVER + 0.1, last=HOVER - 0.1)
    terms = terms_of(verdict)
    expected = {
        "alive": 1.0,
        "closeness": 1 / (1 + (0.5 / CLOSE) ** 2),
        "precision": 1 / (1 + (0.5 / PRECISE) ** 2),
        "position": 0.25,
        "distance": 0.5,
        "heading": 0.25,  # sin^2 of 30 deg
        "velocity": 9.0,
        "rates": 0.09,
        "effort": 4 * 0.1**2,
        "smoothness": 4 * 0.2**2,
        "calm": 4 * 0.2**2 / (1 + (0.5 / CLOSE) ** 2),
    }
    assert terms == pytest.approx(expected, rel=1e-5)


def test_the_swing_of_actions_is_judged_over_the_end():
    task = make_task(evaluation=True, episode_length=0.1, success_window=0.04)
    steps = task.episode_steps
    seen: list[float] = []
    for step, push in enumerate([0.9, 0.2, -0.2, 0.2, -0.2], start=steps - 4):
        action = torch.tensor([[HOVER + push] * 2 + [HOVER] * 2])
        verdict = task.evaluate(state(), action, action, torch.tensor([step]))
        seen.append(float(verdict.metrics["action_swing"]))
    assert math.isnan(seen[0]), "before the window of four steps"
    assert seen[-1] == pytest.approx(0.5 * math.sqrt((0.2**2 + 0.2**2) / 4), rel=1e-4)


def test_episode_terminates_beyond_the_radius_only_and_evaluation_has_its_own():
    task = make_task(radius=0.5)
    assert not evaluate(task, state(position=(0.0, 0.0, 0.4999)), 1).terminated
    assert evaluate(task, state(position=(0.0, 0.4, 0.4)), 1).terminated
    assert evaluate(task, state(position=(0.0, 0.0, -0.5001)), 1).terminated
    far = state(position=(0.0, 0.0, 0.7))
    training = make_task(radius=0.5, evaluation_radius=1.0)
    evaluation = make_task(evaluation=True, radius=0.5, evaluation_radius=1.0)
    assert evaluate(training, far, 1).terminated
    assert not evaluate(evaluation, far, 1).terminated


@pytest.mark.parametrize(
    ("distance", "speed", "success"),
    [(0.049, 0.099, True), (0.051, 0.0, False), (0.0, 0.101, False)],
)
def test_success_needs_both_closeness_and_calm(distance, speed, success):
    task = make_task()
    true_state = state(position=(0.0, distance, 0.0), velocity=(0.0, 0.0, -speed))
    verdicts = [evaluate(task, true_state, step).success for step in range(301, 501)]
    assert bool(verdicts[-1]) is success


def test_only_the_window_counts_as_a_mean_of_distances_by_hand():
    # 5 s at 100 Hz with a window of 2 s: steps 301 to 500.
    task = make_task()
    far, near = state(position=(1.0, 0.0, 0.0)), state()
    verdict = [evaluate(task, far, step) for step in range(1, 301)][-1]
    assert not verdict.success  # nothing was counted yet: no success by an empty mean
    assert verdict.metrics["mean_distance"].isnan()
    verdict = [evaluate(task, far if step == 301 else near, step) for step in range(301, 501)][-1]
    assert float(verdict.metrics["mean_distance"]) == pytest.approx(1 / 200)
    assert verdict.success
    task = make_task(episode_length=0.05, success_window=0.02)  # steps 4 and 5
    path = enumerate((9.0, 9.0, 9.0, 0.02, 0.06), start=1)
    verdict = [evaluate(task, state(position=(x, 0.0, 0.0)), step) for step, x in path][-1]
    assert float(verdict.metrics["mean_distance"]) == pytest.approx(0.04)
    assert verdict.success


def test_a_new_episode_forgets_the_old_one():
    task = make_task(num_worlds=2, episode_length=0.05, success_window=0.02)
    actions = torch.zeros(2, 4)
    task.evaluate(state((1.0, 0.0, 0.0), count=2), actions, actions, torch.tensor([5, 5]))
    task.start(EnvSelection(torch.tensor([False, True])), torch.Generator().manual_seed(0))
    verdict = task.evaluate(state(count=2), actions, actions, torch.tensor([5, 5]))
    torch.testing.assert_close(verdict.metrics["mean_distance"], torch.tensor([0.5, 0.0]))


def test_curriculum_moves_weights_linearly_and_a_ramp_of_no_length_jumps():
    reward = RewardWeightsConfig(
        initial={"alive": 2.0, "position": -1.0}, final={"position": -3.0}, ramp=[100.0, 300.0]
    )
    task = make_task(reward=reward)
    weights = [task.reward_weights(steps) for steps in (0, 100, 200, 300, 10_000)]
    assert [w["position"] for w in weights] == [-1.0, -1.0, -2.0, -3.0, -3.0]
    assert [w["alive"] for w in weights] == [2.0] * 5
    assert weights[0]["rates"] == 0.0
    reward = RewardWeightsConfig(initial={"alive": 2.0}, final={"alive": 1.0}, ramp=[100.0, 100.0])
    assert [reward.at(steps)["alive"] for steps in (0, 99, 100, 101)] == [2.0, 2.0, 1.0, 1.0]
    assert make_task(reward=reward, evaluation=True).reward_weights(0)["alive"] == 1.0


def test_starts_keep_their_bounds_and_a_share_of_them_rests_on_the_goal():
    config = FlightStartConfig(position=0.2, attitude_deg=60, velocity=0.5, angular_velocity=1.0)
    start = config.draw(5000, torch.Generator().manual_seed(1))
    assert start.position_w.abs().max() <= 0.2
    assert start.linear_velocity_w.abs().max() <= 0.5
    assert start.angular_velocity_b.abs().max() <= 1.0
    assert start.position_w.abs().max() > 0.19  # the bounds are reached
    config = FlightStartConfig(at_goal=0.25, attitude_draw=AttitudeDraw.rotation)
    start = config.draw(4000, torch.Generator().manual_seed(2))
    resting = (start.position_w == 0).all(-1)
    assert float(resting.float().mean()) == pytest.approx(0.25, abs=0.03)
    assert torch.equal(resting, start.orientation_w[:, 0] == 1.0)
    assert start.linear_velocity_w[resting].abs().max() == 0.0
