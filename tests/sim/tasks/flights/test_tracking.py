"""Tracking: curves, moving goals, the RMS rule and its boundaries, starts that move along."""

import math

import pytest
import torch

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import RobotState
from sim.tasks.flights.tracking import CurveConfig, Curves, TrackingConfig, TrackingTask
from tests.fakes import CPU
from tests.sim.flying import STILL, flight_state
from tests.sim.stepping import context, everyone, terms_of

ALL = torch.ones(64, dtype=torch.bool)


def drawn(share: float, count: int = 64, **config: float) -> Curves:
    curves = Curves(CurveConfig(lemniscate_share=share, **config), count, CPU)
    curves.draw(EnvSelection(ALL[:count]), torch.Generator().manual_seed(0))
    return curves


def test_velocity_is_the_derivative_of_position():
    curves = drawn(0.5)
    time = torch.linspace(0.0, 6.0, 25).expand(64, -1)
    h = 1e-2
    slope = (curves.position(time + h) - curves.position(time - h)) / (2 * h)
    # The third derivative is below 100 m/s^3, h^2/6 of it below 2e-3; float32 adds 1e-4.
    torch.testing.assert_close(curves.velocity(time), slope, atol=2e-3, rtol=0)


def test_lemniscate_is_a_figure_of_eight_that_passes_its_known_points():
    curves = drawn(1.0, 1, lemniscate_size=2.0, lemniscate_period=8.0)
    time = torch.tensor([[1.0, 2.0, 4.0, 6.0, 8.0]])  # eighth, quarter, half, three quarters, lap
    expected = torch.tensor(
        [[math.sqrt(2.0), 1.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0], [-2.0, 0.0, 0.0], [0.0] * 3]
    )
    torch.testing.assert_close(curves.position(time)[0], expected, atol=1e-5, rtol=0)
    time = torch.linspace(0, 5.5, 100)[None]
    x, y, z = drawn(1.0, 1).position(time)[0].unbind(-1)
    # Gerono's curve of size 1: y^2 = x^2 (1 - x^2), here from x = sin, y = sin cos.
    torch.testing.assert_close(y * y, x * x * (1 - x * x), atol=1e-5, rtol=0)
    assert z.abs().max() == 0.0


def test_random_curves_respect_size_and_speed_and_differ_and_the_share_says_how_many_fly_them():
    curves = drawn(0.0, random_size=0.8, random_speed=1.2)
    time = torch.linspace(0.0, 12.0, 400).expand(64, -1)
    assert curves.velocity(time).abs().max() <= 1.2 + 1e-5
    points = curves.position(time)
    assert float((points.amax(1) - points.amin(1)).max()) <= 2 * 0.8 + 1e-5
    assert len(torch.unique(points[:, 100, 0])) == 64
    points = drawn(0.5).position(torch.full((64, 1), 0.7))
    flat = (points[:, 0, 2] == 0.0).sum()
    assert 20 <= int(flat) <= 44  # binomial(64, 1/2): three deviations


DT = 0.01


def make_task(num_worlds: int = 1, **config) -> TrackingTask:
    task = TrackingTask(
        TrackingConfig(
            curve=CurveConfig(lemniscate_share=1.0), start=config.pop("start", STILL), **config
        ),
        context(num_worlds, DT, hover_action=[0.0] * 4, evaluation=False),
    )
    task.start(everyone(num_worlds), torch.Generator().manual_seed(0))
    return task


def on_goal(task: TrackingTask, offset=(0.0, 0.0, 0.0), **motion) -> RobotState:
    position = task.goal["position_w"] + torch.tensor([offset])
    velocity = task.goal["linear_velocity_w"].clone()
    return flight_state(position, velocity, count=len(position), **motion)


def evaluate(task: TrackingTask, step: int, offset=(0.0, 0.0, 0.0)):
    steps = torch.full((len(task.goal["position_w"]),), step)
    task.advance(steps)
    actions = torch.zeros(len(steps), 4)
    return task.evaluate(on_goal(task, offset), actions, actions, steps)


def lemniscate(time: float) -> list[float]:
    w = 2 * math.pi / 5.5
    return [math.sin(w * time), 0.5 * math.sin(2 * w * time), 0.0]


def test_the_goal_and_its_preview_are_points_of_the_curve():
    task = make_task(preview=[0.1, 0.4])
    task.advance(torch.tensor([137]))
    torch.testing.assert_close(
        task.goal["position_w"][0], torch.tensor(lemniscate(1.37)), atol=1e-5, rtol=0
    )
    ahead = torch.tensor(lemniscate(1.47) + lemniscate(1.77))
    torch.testing.assert_close(task.goal["preview_w"][0], ahead, atol=1e-5, rtol=0)


def test_errors_are_relative_to_the_moving_goal():
    task = make_task()
    verdict = evaluate(task, 200, offset=(0.0, 0.3, 0.4))
    terms = terms_of(verdict)
    assert terms["distance"] == pytest.approx(0.5, abs=1e-6)
    assert terms["position"] == pytest.approx(0.25, abs=1e-6)
    assert terms["velocity"] == 0.0  # as fast as the goal
    assert float(verdict.metrics["speed"]) > 0.5  # but not at rest


def test_success_is_a_root_mean_square_by_hand():
    task = make_task(success_distance=0.15)
    evaluate(task, 1, offset=(0.1, 0.0, 0.0))
    verdict = evaluate(task, 2, offset=(0.0, 0.0, -0.2))
    assert float(verdict.metrics["rms_distance"]) == pytest.approx(math.sqrt(0.025), abs=1e-6)
    assert not verdict.success  # 0.158 m, although the mean of 0.15 m alone would pass
    assert evaluate(task, 3).success


def test_settling_time_is_not_counted():
    task = make_task(settling_time=0.05)  # steps 1 to 5
    verdict = [evaluate(task, step, offset=(1.0, 0.0, 0.0)) for step in range(1, 6)][-1]
    assert verdict.metrics["rms_distance"].isnan()
    assert not verdict.success
    assert float(
        evaluate(task, 6, offset=(0.1, 0.0, 0.0)).metrics["rms_distance"]
    ) == pytest.approx(0.1, abs=1e-6)


def test_episode_terminates_far_from_the_goal_not_from_the_origin():
    task = make_task(radius=0.5)
    quarter = 138  # the goal is 1 m away from the origin
    assert not evaluate(task, quarter, offset=(0.4, 0.0, 0.0)).terminated
    assert evaluate(task, quarter, offset=(-0.51, 0.0, 0.0)).terminated


@pytest.mark.parametrize(("rate", "ends"), [(39.9, False), (40.1, True), (-40.1, True)])
def test_episode_terminates_where_the_robot_tumbles(rate, ends):
    """Rewards of flights that the integration no longer followed once spoiled a critic for good."""
    task = make_task(max_rates=40.0)
    task.advance(torch.tensor([10]))
    actions, tumbling = torch.zeros(1, 4), on_goal(task, rates=(0.0, rate, 0.0))
    verdict = task.evaluate(tumbling, actions, actions, torch.tensor([10]))
    assert bool(verdict.terminated) is ends


def test_starts_move_with_the_curve():
    task = make_task(num_worlds=3)
    rows = EnvSelection(torch.tensor([True, False, True]))
    start = task.start(rows, torch.Generator().manual_seed(4)).robot
    w = 2 * math.pi / 5.5
    expected = torch.tensor([[w, w, 0.0]] * 2)  # both sines begin with slope w
    torch.testing.assert_close(start.linear_velocity_w, expected)
    assert start.position_w.abs().max() < 1e-6
