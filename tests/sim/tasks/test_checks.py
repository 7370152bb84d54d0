"""Shapes of reward terms, by hand."""

import pytest
import torch

from robot_rl.core.errors import ConfigError
from sim.task import closeness, square_sum
from sim.tasks.arms.lift import LiftConfig
from sim.tasks.arms.reach import ReachConfig
from sim.tasks.flights.flight import FlightStartConfig
from sim.tasks.flights.hover import HoverConfig
from sim.tasks.flights.tracking import CurveConfig, TrackingConfig
from sim.tasks.legs.gait import GaitConfig
from sim.tasks.legs.stand_up import StandUpConfig
from sim.tasks.legs.velocity import VelocityConfig


def test_closeness_is_one_half_at_the_half_distance_and_does_not_ask_for_the_side() -> None:
    near = closeness(torch.tensor([0.0, 0.05, 0.1, -0.1]), 0.05)
    torch.testing.assert_close(near, torch.tensor([1.0, 0.5, 0.2, 0.2]))


def test_squares_are_summed_along_the_last_axis() -> None:
    values = torch.tensor([[[1.0, -2.0], [0.0, 3.0]]])
    torch.testing.assert_close(square_sum(values), torch.tensor([[5.0, 9.0]]))


TASKS = (HoverConfig, LiftConfig, ReachConfig, StandUpConfig, TrackingConfig, VelocityConfig)


@pytest.mark.parametrize("config", TASKS)
@pytest.mark.parametrize(("length", "told"), [(0.0, "must be > 0, got 0.0"), (-1.0, "must be > 0")])
def test_every_task_refuses_episodes_without_length(config: type, length: float, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"^task\.episode_length {told}"):
        config(episode_length=length)


@pytest.mark.parametrize("config", TASKS)
def test_every_task_says_what_is_not_a_number(config: type) -> None:
    with pytest.raises(ConfigError, match=r"^task\.episode_length is not a number"):
        config(episode_length=float("nan"))


@pytest.mark.parametrize(
    ("config", "changes", "told"),
    [
        (CurveConfig, {"random_speed": 0.0}, r"curve\.random_speed must be > 0, got 0\.0"),
        (CurveConfig, {"lemniscate_share": 1.1}, r"curve\.lemniscate_share must lie in \[0, 1\]"),
        (FlightStartConfig, {"velocity": -0.1}, r"start\.velocity must be >= 0, got -0\.1"),
        (FlightStartConfig, {"at_goal": float("nan")}, r"start\.at_goal is not a number"),
        (GaitConfig, {"touch": -1.0}, r"gait\.touch must be >= 0"),
        (VelocityConfig, {"turn": [0.5, -0.5]}, r"task\.turn must be \[low, high\], got \[0\.5"),
        (VelocityConfig, {"turn": [0.5]}, r"task\.turn must be \[low, high\], got \[0\.5\]"),
    ],
)
def test_a_sentence_names_the_field_as_the_configuration_does(config, changes, told):
    with pytest.raises(ConfigError, match=told):
        config(**changes)
