"""Landing: what a soft contact is, what ends a flight, and which way down is paid best."""

import math
import re
from typing import Any

import pytest
import torch

from robot_rl.core.errors import ConfigError
from sim.robots.multirotor_simulation import MultirotorSimulation
from sim.task import StepOutcome
from sim.tasks.flights.landing import PAD, LandingConfig, LandingTask
from tests.sim.flying import flight_envs, flight_state
from tests.sim.stepping import context, everyone, term


def judged(position=(0.0, 0.0, -0.001), velocity=(0.0, 0.0, -0.15), lean_deg=0.0) -> StepOutcome:
    """The verdict on a step that ends so."""
    task = LandingTask(LandingConfig(), context(1, 0.01, hover_action=[0.0] * 4))
    half = math.radians(lean_deg) / 2
    state = flight_state(position, velocity, attitude=(math.cos(half), math.sin(half), 0.0, 0.0))
    still = torch.zeros(1, 4)
    return task.evaluate(state, still, still, torch.ones(1, dtype=torch.int64))


@pytest.mark.parametrize(
    ("given", "landed"),
    [
        ({}, True),
        ({"position": (0.09, 0.0, 0.0)}, True),
        ({"position": (0.08, 0.08, 0.0)}, False),  # beside the pad
        ({"velocity": (0.0, 0.0, -0.34)}, True),
        ({"velocity": (0.0, 0.0, -0.36)}, False),  # too fast
        ({"velocity": (0.15, 0.15, -0.1)}, False),  # slides
        ({"lean_deg": 9.0}, True),
        ({"lean_deg": 11.0}, False),
    ],
)
def test_a_contact_ends_the_flight_and_is_soft_or_a_crash(given, landed):
    verdict = judged(**given)
    assert bool(verdict.terminated)
    assert bool(verdict.achieved) == landed
    assert bool(verdict.succeeded(verdict.terminated, ~verdict.terminated)) == landed
    assert not bool(verdict.success), "who flies until the time is up has not landed"
    assert term(verdict, "lost") == 0.0


def test_a_contact_pays_the_more_the_softer_it_is_without_a_step():
    assert term(judged(velocity=(0.0, 0.0, -0.25)), "touchdown") == pytest.approx(1.0)
    assert term(judged(), "touchdown") == pytest.approx(1.0)
    halves: tuple[dict[str, Any], ...] = (
        {"position": (0.1, 0.0, 0.0)}, {"velocity": (0.0, 0.0, -0.5)},
        {"velocity": (0.2, 0.0, 0.0)}, {"lean_deg": 10.0},
    )  # fmt: skip
    for given in halves:
        assert term(judged(**given), "touchdown") == pytest.approx(0.5, rel=1e-3)
    assert 0.0 < term(judged(velocity=(0.0, 0.0, -2.0)), "touchdown") < 0.05


def test_who_flies_has_not_landed_and_who_is_far_away_is_lost():
    verdict = judged((0.0, 0.0, 0.01))
    assert not bool(verdict.terminated | verdict.success)
    assert term(verdict, "touchdown") == term(verdict, "lost") == 0.0
    lost = judged((2.9, 0.0, 1.0))
    assert bool(lost.terminated)
    assert (term(lost, "lost"), bool(lost.success)) == (1.0, False)


def test_the_way_that_is_paid_best_leads_over_the_pad_and_slows_down():
    task = LandingTask(LandingConfig(), context(1, 0.01, hover_action=[0.0] * 4))

    def wanted(*error: float) -> list[float]:
        return task.wanted_velocity(torch.tensor([error]))[0].tolist()

    assert wanted(0.0, 0.0, 2.0) == pytest.approx([0.0, 0.0, -0.6])
    assert wanted(0.0, 0.0, 0.0) == pytest.approx([0.0, 0.0, -0.25])
    assert wanted(2.0, 0.0, 2.0)[0] == pytest.approx(-0.8)
    assert -0.02 < wanted(2.0, 0.0, 2.0)[2] < 0.0
    assert wanted(0.1, -0.1, 0.0)[:2] == pytest.approx([-0.12, 0.12])
    way = wanted(0.05, 0.0, 0.5)
    state = flight_state((0.05, 0.0, 0.5), tuple(way))
    still = torch.zeros(1, 4)
    verdict = task.evaluate(state, still, still, torch.ones(1, dtype=torch.int64))
    assert term(verdict, "approach") == pytest.approx(1.0)


def test_a_flight_that_lands_is_a_success_of_its_env_and_one_that_hovers_is_not():
    env = flight_envs("landing", 3, episode_length=0.05)
    env.reset(seed=0)
    assert isinstance(env.simulation, MultirotorSimulation)
    state = env.simulation.engine.state
    state[:, 3:7] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    state[:, 7:13] = 0.0
    state[0, :3] = torch.tensor([0.0, 0.0, 1e-4])  # will touch softly
    state[0, 9] = -0.1
    state[1, :3] = torch.tensor([0.3, 0.0, 1e-4])  # beside the pad
    state[1, 9] = -0.1
    step = env.step(torch.zeros(3, 4))
    assert step.terminated.tolist() == [True, True, False]
    assert step.success.tolist() == [True, False, False]
    for _ in range(4):
        step = env.step(torch.zeros(3, 4))
    assert (bool(step.truncated[2]), bool(step.success[2])) == (True, False)


def test_the_pad_is_drawn_as_the_square_in_the_circle_of_a_success():
    task = LandingTask(LandingConfig(), context(2, 0.01, hover_action=[0.0] * 4))
    corners = task.goal[PAD].view(2, 4, 3)
    torch.testing.assert_close(corners.norm(dim=-1), torch.full((2, 4), 0.1))
    assert not corners[..., 2].any()
    side = corners[0, 1].sub(corners[0, 0]).norm().item()
    assert side == pytest.approx(0.1 * math.sqrt(2)), "neighbours"


def test_flights_begin_over_the_pad():
    task = LandingTask(LandingConfig(height=[0.7, 0.9]), context(500, 0.01, hover_action=[0.0] * 4))
    start = task.start(everyone(500), torch.Generator().manual_seed(0)).robot.position_w
    assert bool(((start[:, 2] >= 0.7) & (start[:, 2] <= 0.9)).all())
    assert start[:, :2].abs().max() > 0.15


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"height": [0.7, 3.5]}, "flights may begin"),
        ({"height": [0.7, 2.99]}, "beyond task.radius 3 m, where they are lost"),
        ({"height": [-0.2, 0.5]}, "begins on the pad or below it"),
        ({"descent_speed": 0.2}, "must not exceed task.descent_speed 0.2"),
        ({"touch_speed": 0.4}, "is no success"),
        ({"success_tilt_deg": 0.0}, "task.success_tilt_deg must be > 0"),
    ],
)
def test_what_cannot_be_landed_is_refused(values, why):
    with pytest.raises(ConfigError, match=re.escape(why)):
        LandingConfig(**values)
