"""Shapes of reward terms, by hand, and configurations that are refused by name."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import RobotSpec
from sim.randomization import CurriculumConfig, PushConfig
from sim.robots.joint_robot import FallenConfig, JointActionConfig, JointRandomization
from sim.robots.multirotor_robot import MultirotorRandomization
from sim.robots.rate_loop import RateLoopConfig
from sim.scenes.corridor import CorridorConfig
from sim.scenes.scene import SceneConfig
from sim.scenes.terrain import TerrainConfig, TileLimits
from sim.task import TaskContext, closeness, square_sum
from sim.tasks.arms.drawer import DrawerConfig
from sim.tasks.arms.lift import LiftConfig
from sim.tasks.arms.peg import PegConfig
from sim.tasks.arms.reach import ReachConfig
from sim.tasks.control.cartpole import CartpoleConfig
from sim.tasks.flights.flight import FlightStartConfig, RewardWeightsConfig
from sim.tasks.flights.gates import CourseConfig, GatesConfig
from sim.tasks.flights.hover import HoverConfig
from sim.tasks.flights.tracking import CurveConfig, TrackingConfig
from sim.tasks.legs.gait import GaitConfig
from sim.tasks.legs.motion import PhaseConfig, WidthsConfig
from sim.tasks.legs.stand_up import StandUpConfig
from sim.tasks.legs.velocity import VelocityConfig
from tests.sim.arms import panda
from tests.sim.flying import robot_config
from tests.sim.legs import (
    BODIES,
    CORRIDOR,
    climb_config,
    clutter_config,
    motion_config,
    motion_envs,
)
from tests.sim.physics.reference_multirotor import PLANT_B


def test_closeness_is_one_half_at_the_half_distance_and_squares_are_summed_along_an_axis() -> None:
    near = closeness(torch.tensor([0.0, 0.05, 0.1, -0.1]), 0.05)
    torch.testing.assert_close(near, torch.tensor([1.0, 0.5, 0.2, 0.2]))
    values = torch.tensor([[[1.0, -2.0], [0.0, 3.0]]])
    torch.testing.assert_close(square_sum(values), torch.tensor([[5.0, 9.0]]))


GROUND = TerrainConfig()


def steps(seconds: float) -> int:
    cpu = torch.device("cpu")
    return TaskContext(
        num_envs=1, control_dt=0.02, device=cpu, evaluation=False, robot=RobotSpec(name="any"),
    ).steps("success_window", seconds)  # fmt: skip


def multirotor(**changes: Any) -> Any:
    return replace(robot_config(), **changes)


@pytest.mark.parametrize(
    ("make", "changes", "said"),
    [
        (HoverConfig, {"episode_length": 0.0}, r"^task\.episode_length must be > 0, got 0.0"),
        (LiftConfig, {"episode_length": math.nan}, r"^task\.episode_length is not a number"),
        (ReachConfig, {"goal_low": [0.9, 0.0, 0.0]}, "low <= high"),
        (LiftConfig, {"goal_low": [0.0, 0.0]}, "points of 3 numbers"),
        (LiftConfig, {"far": 0.0}, r"task\.far must be > 0, got 0\.0"),
        (DrawerConfig, {"success_opening": 0.0}, "success_opening must be > 0"),
        (DrawerConfig, {"success_opening": 0.3}, "never reached: the drawer ends at 0.25 m"),
        (DrawerConfig, {"cabinet_yaw": -1.0}, r"task\.cabinet_yaw must be >= 0, got -1\.0"),
        (PegConfig, {"hole_yaw": -0.2}, r"task\.hole_yaw must be >= 0, got -0\.2"),
        (LiftConfig, {"cube_yaw": -0.3}, r"task\.cube_yaw must be >= 0, got -0\.3"),
        (PegConfig, {"success_depth": 0.05}, "never reached: the hole is 0.04 m deep"),
        (HoverConfig, {"start": FlightStartConfig(position=1.0)}, "begin 1.73 m from their goal"),
        (GatesConfig, {"course": CourseConfig(climb=5.0)}, "way to the next gate, up to 5"),
        (TileLimits, {"slope": 25.0}, r"\[0, 1.2\] rad, got 25 \(25 degrees are 0.436"),
        (TileLimits, {"roughness": math.nan}, r"limits.roughness must lie in"),
        (VelocityConfig, {"height": 1.05, "scene": SceneConfig(terrain=GROUND)}, "scan.depth 1 m"),
        (motion_config, {"pose_weights": {"waist": 2.0}}, "task motion has none"),
        (steps, {"seconds": 0.009}, r"task.success_window must be at least .* 0.02 s.*0.009 s"),
        (steps, {"seconds": math.inf}, "and finite, got inf s"),
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
        (climb_config, {"scene": SceneConfig(terrain=GROUND)}, "a step on a level floor"),
        (climb_config, {"step_height": [0.3, 0.1]}, r"task\.step_height must be \[low, high\]"),
        (climb_config, {"distance": [-0.1, 0.5]}, r"task\.distance must lie above 0 m"),
        (climb_config, {"step_height": [0.1, 0.7]}, r"step_height must .*up to 0\.6 m"),
        (climb_config, {"start_height": -1.0}, r"task\.start_height must be > 0, got -1\.0"),
        (climb_config, {"lowest_height": -1.0}, r"task\.lowest_height must be > 0, got -1\.0"),
        (climb_config, {"start_height": 0.1}, r"must exceed task\.lowest_height 0\.1 m"),
        (climb_config, {"standing_tilt": 4.0}, r"task\.standing_tilt must lie in \(0, pi\] rad"),
        (climb_config, {"max_tilt": 4.0}, r"task\.max_tilt must lie in \(0, pi\] rad, got 4\.0"),
        (clutter_config, {"max_tilt": 4.0}, r"task\.max_tilt must lie in \(0, pi\] rad"),
        (VelocityConfig, {"max_tilt": 0.0}, r"task\.max_tilt must lie in \(0, pi\] rad, got 0\.0"),
        (StandUpConfig, {"max_tilt": math.nan}, r"task\.max_tilt is not a number"),
        (CartpoleConfig, {"success_angle": 9.0}, r"task\.success_angle must lie in \(0, pi\] rad"),
        (panda, {"decimation": 0}, r"robot\.decimation must be > 0"),
        (JointRandomization, {"link_mass": 1.0}, "link_mass must lie in"),
        (JointRandomization, {"latency": [0.2, 0.1]}, "latency must be"),
        (JointRandomization, {"actuator_delay": [-0.1, 0.1]}, r"_delay must be .*0 <= low"),
        (JointRandomization, {"motor_strength": [0.0, 1.0]}, "motor_strength must be above 0"),
        (CurriculumConfig, {"start": 1.5}, r"curriculum\.start must lie in"),
        (CurriculumConfig, {"failure": 0.9}, r"failure 0\.9 must not exceed success 0\.8"),
        (PushConfig, {"speed": -1.0}, r"pushes\.speed must be >= 0, got -1\.0"),
        (PushConfig, {"interval": [2.0, 1.0]}, r"got \[2.0, 1.0\]"),
        (multirotor, {"plant": "papr"}, r"plant 'papr' is unknown \(did you mean 'paper'"),
        (multirotor, {"physics_dt": 0.0}, "physics_dt must be > 0"),
        (multirotor, {"loop_dt": 0.003}, r"loop_dt must go into the control period of 0\.01 s"),
        (MultirotorRandomization, {"mass": 1.0}, "mass must lie in"),
        (MultirotorRandomization, {"torque": -1.0}, "torque must be >= 0"),
        (MultirotorRandomization, {"rotor_lag": [0.2, 0.1]}, "rotor_lag must be"),
        (MultirotorRandomization, {"action_delay": [-0.1, 0.1]}, "action_delay must be"),
        (RateLoopConfig, {"rates": [10.0, 0.0, 5.0]}, "rate_loop.rates must be > 0"),
        (RateLoopConfig, {"derivative": [math.nan] * 3}, "rate_loop.derivative needs three"),
        (RateLoopConfig, {"derivative_time": -1.0}, "derivative_time must be >= 0"),
        (partial(replace, PLANT_B), {"mass": 0.0}, r"multirotor\.mass must be > 0"),
        (partial(replace, PLANT_B), {"inertia": [1e-6, 1e-6, 1e-5]}, "no rigid body"),
        (partial(replace, PLANT_B), {"rotor_yaw_sign": [1.0, 1.0, 0.5, -1.0]}, "rotor_yaw_sign"),
        (partial(replace, PLANT_B), {"rotor_position": [[0.1, 0.1]]}, "2 numbers; expected 8"),
        (partial(replace, PLANT_B), {"noise_gyro": -0.1}, r"multirotor\.noise_gyro must be >= 0"),
        (partial(replace, PLANT_B), {"action_delay": 1.5}, "action_delay"),
        (partial(replace, PLANT_B), {"thrust_curve": [1.0, 0.0, 0.0]}, "cannot hover"),
        (TerrainConfig, {"kinds": ["stair_up"]}, r"stair_up.*stairs_up"),
        (TerrainConfig, {"tile": 2.0}, "at least 3 m"),
        (TerrainConfig, {"tile": 8.05}, "multiple of terrain.resolution"),
        (CorridorConfig, {"kinds": ["gab"]}, "kind of obstacle 'gab' is unknown"),
        (CorridorConfig, {"gap": [0.5, 0.6]}, r"\[easiest, hardest\], .* the larger first"),
        (CorridorConfig, {"gap": [1.6, 1.58]}, "0.02 m, expected at least 0.1 m: beside it panels"),
        (CorridorConfig, {"hurdle": [0.1, 0.4]}, "must not exceed 0.3 m"),
        (CorridorConfig, {"pillar": 0.6}, "0.5 m, expected at least 0.55 m: beside it"),
        (CorridorConfig, {"spacing": [0.7, 1.0]}, "between two stations"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(make: Any, changes: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make(**changes)
