"""Shapes of reward terms, by hand, and configurations of tasks that are refused by name."""

import math
from functools import partial
from typing import Any

import pytest
import torch

from robot_rl.core.errors import ConfigError
from sim.robots.joint_robot import FallenConfig, JointActionConfig
from sim.scenes.scene import SceneConfig
from sim.scenes.terrain import TerrainConfig
from sim.task import closeness, square_sum
from sim.tasks.arms.drawer import DrawerConfig
from sim.tasks.arms.lift import LiftConfig
from sim.tasks.arms.reach import ReachConfig
from sim.tasks.flights.flight import FlightStartConfig, RewardWeightsConfig
from sim.tasks.flights.gates import CourseConfig, GatesConfig
from sim.tasks.flights.hover import HoverConfig
from sim.tasks.flights.tracking import CurveConfig, TrackingConfig
from sim.tasks.legs.gait import GaitConfig
from sim.tasks.legs.motion import PhaseConfig, WidthsConfig
from sim.tasks.legs.stand_up import StandUpConfig
from sim.tasks.legs.velocity import VelocityConfig
from tests.sim.legs import BODIES, CORRIDOR, clutter_config, motion_config, motion_envs


def test_closeness_is_one_half_at_the_half_distance_and_squares_are_summed_along_an_axis() -> None:
    near = closeness(torch.tensor([0.0, 0.05, 0.1, -0.1]), 0.05)
    torch.testing.assert_close(near, torch.tensor([1.0, 0.5, 0.2, 0.2]))
    values = torch.tensor([[[1.0, -2.0], [0.0, 3.0]]])
    torch.testing.assert_close(square_sum(values), torch.tensor([[5.0, 9.0]]))


GROUND = TerrainConfig()


@pytest.mark.parametrize(
    ("make", "changes", "said"),
    [
        (HoverConfig, {"episode_length": 0.0}, r"^task\.episode_length must be > 0, got 0.0"),
        (LiftConfig, {"episode_length": math.nan}, r"^task\.episode_length is not a number"),
        (ReachConfig, {"goal_low": [0.9, 0.0, 0.0]}, "low <= high"),
        (LiftConfig, {"goal_low": [0.0, 0.0]}, "points of 3 numbers"),
        (DrawerConfig, {"success_opening": 0.0}, "success_opening must be > 0"),
        (JointActionConfig, {"scale": 0.0}, "scale must be > 0"),
        (RewardWeightsConfig, {"ramp": [2.0, 1.0]}, "ramp"),
        (FlightStartConfig, {"at_goal": math.nan}, r"start\.at_goal is not a number"),
        (CurveConfig, {"lemniscate_share": 1.1}, r"curve\.lemniscate_share must lie in \[0, 1\]"),
        (TrackingConfig, {"settling_time": 5.5}, "settling_time"),
        (TrackingConfig, {"preview": [0.0]}, "preview"),
        (CourseConfig, {"spacing": [0.5, 1.0]}, "wider than a gate"),
        (CourseConfig, {"turn_deg": 90.0}, "turn_deg"),
        (GatesConfig, {"radius": 1.0}, "way to the next gate"),
        (GatesConfig, {"robot_radius": 0.25}, "does not fit"),
        (GaitConfig, {"duty": 1.0}, r"gait\.duty must lie in \(0, 1\), got 1\.0"),
        (VelocityConfig, {"turn": [0.5, -0.5]}, r"task\.turn must be \[low, high\], got \[0\.5"),
        (StandUpConfig, {"success_window": 9.0}, "longer than the episode"),
        (StandUpConfig, {"scene": SceneConfig(terrain=GROUND)}, "level floor"),
        (FallenConfig, {"count": 3}, r"fallen\.count must be >= 4, got 3"),
        (PhaseConfig, {"decay": 1.0}, "decay"),
        (WidthsConfig, {"body_rates": 0.0}, r"widths.body_rates must be > 0"),
        (motion_config, {"scene": SceneConfig(bodies=BODIES, terrain=GROUND)}, "level floor"),
        (partial(motion_envs, 1), {"scene": SceneConfig(), "ends": []}, "bodies is empty"),
        (partial(motion_envs, 1), {"ends": ["FL_foot"]}, "body 'FL_foot' is unknown"),
        (clutter_config, {"scene": SceneConfig()}, "give task.scene.clutter"),
        (clutter_config, {"scene": SceneConfig(clutter=CORRIDOR, terrain=GROUND)},
         "leave .*terrain out"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_refused_by_name(make: Any, changes: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make(**changes)
