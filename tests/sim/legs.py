"""Go2 envs for the tests of sim: the robot of configs/robot, the velocity task, a few envs."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from configs.builders import build_env
from robot_rl.core.observation import RobotState, TermConfig
from robot_rl.core.robot import SensorSpec
from sim.env import SimEnv
from sim.motions.reference import MotionConfig, Script, ScriptConfig
from sim.randomization import PushConfig
from sim.robots.joint_robot import FallenConfig, JointRandomization, JointRobotConfig, PhysicsEngine
from sim.robots.joint_simulation import MujocoSimulation
from sim.scenes.corridor import CorridorConfig, FieldConfig, FieldPoint
from sim.scenes.scene import SceneConfig
from sim.scenes.terrain import TerrainConfig
from sim.task import StepOutcome
from sim.tasks.legs.climb import ClimbConfig, ClimbTask
from sim.tasks.legs.clutter import ClutterConfig, ClutterTask
from sim.tasks.legs.motion import MotionTask, MotionTaskConfig
from sim.tasks.legs.stand_up import StandUpConfig, StandUpTask
from sim.tasks.legs.velocity import VelocityConfig, VelocityTask
from tests.fakes import CPU
from tests.sim.joint_robots import joint_robot
from tests.sim.stepping import endless, made, weights

STEPS = 12
"""Length of an episode of `leg_envs` [control steps]."""
TERMS = ("angular_velocity_b", "projected_gravity_b", "goal/velocity_b", "goal/clock",
         "joint_position", "joint_velocity", "state/foot_force")  # fmt: skip
PUSHES = PushConfig(speed=1.0, turn=0.5, interval=[0.04, 0.2])
DRAWN = {"payload": [0.0, 2.0], "link_mass": 0.1, "stiffness": 0.1, "latency": [0.0, 0.04]}


def go2(*, noise: bool = True, latency: float = 0.0, **changes: Any) -> JointRobotConfig:
    """The robot of configs/robot/go2.yaml, stepped by one thread."""
    return joint_robot("go2", "velocity", noise=noise, latency=latency, **changes)


def leg_state(
    x: float = 0.0, y: float = 0.0, *, height: float = 0.28, attitude: Tensor | None = None,
    velocity: tuple[float, float] = (0.0, 0.0), turn: float = 0.0,
) -> RobotState:  # fmt: skip
    """One Go2 in its default pose, upright unless an attitude is given, on all its feet."""
    default = torch.tensor([[joint.default_position for joint in go2().spec.joints]])
    upright = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    return RobotState({
        "position_w": torch.tensor([[x, y, height]]),
        "orientation_w": upright if attitude is None else attitude,
        "linear_velocity_w": torch.tensor([[*velocity, 0.0]]),
        "angular_velocity_b": torch.tensor([[0.0, 0.0, turn]]),
        "joint_position": default,
        "joint_velocity": torch.zeros_like(default),
        "joint_effort": torch.zeros_like(default),
        "foot_force": torch.full((1, 4), 40.0),
    })  # fmt: skip


def evaluate(task: Any, true_state: RobotState, step: int = 1) -> StepOutcome:
    """The verdict on a step of one Go2 that does nothing."""
    still = torch.zeros(1, 12)
    return task.evaluate(true_state, still, still, torch.tensor([step]))


def velocity_config(**changes: Any) -> VelocityConfig:
    """Twelve steps with three goals, from starts that lean on nothing."""
    terms = [TermConfig(term=name) for name in TERMS]
    true = ("linear_velocity_w", "sensed/foot_velocity_w", "sensed/plant")
    values: dict[str, Any] = {
        "episode_length": STEPS * 0.02,
        "goal_time": 0.08,
        "reward": weights("velocity", alive=0.2, velocity=1.0, slip=-0.1, gait=1.0),
        "actor": [*terms, TermConfig(term="last_action", history=3)],
        "critic": [*terms, *(TermConfig(term=name) for name in true)],
    }
    return VelocityConfig(**(values | changes))


def _envs(
    make_config: Callable[..., Any], make_task: Any, num_envs: int, *, seed: int = 0,
    noise: bool = True, device: torch.device = CPU, robot: JointRobotConfig | None = None,
    evaluation: bool = True, engine: PhysicsEngine = PhysicsEngine.batch, **changes: Any,
) -> SimEnv:  # fmt: skip
    """Envs of a Go2; without noise nobody is pushed either."""
    ranges = JointRandomization(**DRAWN, pushes=PUSHES if noise else PushConfig())
    return build_env(
        make_config(**({"randomization": ranges} | changes)),
        robot or go2(noise=noise, latency=0.02, engine=engine),
        make_task=make_task, make_simulation=MujocoSimulation,
        num_envs=num_envs, device=device, seed=seed, evaluation=evaluation,
    )  # fmt: skip


leg_envs = partial(_envs, velocity_config, VelocityTask)
walk = partial(made, leg_envs, lowest_height=0.31)  # close to the height of the start
endless_walk = partial(endless, leg_envs, lowest_height=-9.0, max_tilt=math.pi)


GROUND = TerrainConfig(kinds=["rough", "stairs_up", "slope_down"], levels=2, tile=4.0, border=3.0)


def hill_envs(num_envs: int, *, noise: bool = True, **changes: Any) -> SimEnv:
    """The same on `GROUND`, which the robot sees with noise and latency, as its critic does
    without."""
    config = velocity_config()
    seen = TermConfig(term="sensed/height_scan")
    camera = SensorSpec(rate_hz=50, noise=0.02 if noise else 0.0, latency=0.04)
    scene = SceneConfig(terrain=GROUND, measured={"height_scan": camera})
    parts: dict[str, Any] = {
        "scene": scene, "actor": [*config.actor, seen], "critic": [*config.critic, seen],
    }  # fmt: skip
    return leg_envs(num_envs, noise=noise, **(parts | changes))


climb = partial(made, hill_envs, lowest_height=0.31)
endless_climb = partial(endless, hill_envs, lowest_height=-9.0, max_tilt=math.pi)


def stand_up_config(**changes: Any) -> StandUpConfig:
    """Twelve steps of robots that lie, and that nobody pushes."""
    names = ("angular_velocity_b", "projected_gravity_b", "joint_position", "joint_velocity")
    terms = [TermConfig(term=name) for name in names]
    values: dict[str, Any] = {
        "episode_length": STEPS * 0.02,
        "success_window": 0.1,
        "fallen": FallenConfig(count=16, seconds=0.5),
        "reward": weights("stand_up", upright=1.0, height=1.0, speed=-0.001),
        "actor": [*terms, TermConfig(term="last_action", history=2)],
        "critic": [*terms, TermConfig(term="state/position_w"), TermConfig(term="sensed/plant")],
    }
    return StandUpConfig(**(values | changes))


stand_up_envs = partial(
    _envs, stand_up_config, StandUpTask, randomization=JointRandomization(**DRAWN)
)
get_up, endless_get_up = (partial(make, stand_up_envs) for make in (made, endless))


BODIES = ["base", "FL_calf", "FR_calf", "RL_calf", "RR_calf"]


def motion_config(**changes: Any) -> MotionTaskConfig:
    """Twelve steps of a trot."""
    names = ("goal/reference_joints", "goal/reference_joint_speeds", "goal_orientation_b",
             "angular_velocity_b", "joint_position", "joint_velocity")  # fmt: skip
    terms = [TermConfig(term=name) for name in names]
    true = ("position_error_w", "velocity_error_w", "sensed/body_rates_w", "sensed/plant")
    values: dict[str, Any] = {
        "episode_length": STEPS * 0.02,
        "motion": MotionConfig(script=ScriptConfig(kind=Script.walk, period=0.6)),
        "scene": SceneConfig(bodies=BODIES),
        "ends": BODIES[1:],
        "reward": weights("motion", anchor_position=0.5, body_position=1.0, joint_limit=-1.0),
        "actor": [*terms, TermConfig(term="last_action", history=2)],
        "critic": [*terms, *(TermConfig(term=name) for name in true)],
    }
    return MotionTaskConfig(**(values | changes))


motion_envs = partial(_envs, motion_config, MotionTask)
follow = partial(made, motion_envs, max_height_error=0.05)
endless_follow = partial(
    endless, motion_envs, max_height_error=1e9, max_gravity_error=9.0, max_end_error=1e9
)
"""Its motion is as long as that of the others: an episode of theirs never leaves it."""


CORRIDOR = CorridorConfig(
    stations=2,
    levels=2,
    field=FieldConfig(
        points=[
            FieldPoint(body="base", offset=[0.28, 0.0, 0.0]),
            *(FieldPoint(body=f"{leg}_calf", offset=[0.0, 0.0, -0.2]) for leg in ("FL", "FR")),
        ]
    ),
)


def clutter_config(*, noise: bool = True, **changes: Any) -> ClutterConfig:
    """Twelve steps at the beginning of a short corridor, seen with noise and latency."""
    names = ("sensed/potential_field", "goal/traverse", "goal/clock", "angular_velocity_b",
             "projected_gravity_b", "joint_position", "joint_velocity")  # fmt: skip
    terms = [TermConfig(term=name) for name in names]
    true = ("preview_w", "state/position_w", "state/foot_force", "sensed/way_position_w",
            "sensed/obstacle_force_w", "sensed/obstacle_position_w", "sensed/plant")  # fmt: skip
    mapped = SensorSpec(rate_hz=20, noise=0.02 if noise else 0.0, latency=0.06)
    values: dict[str, Any] = {
        "episode_length": STEPS * 0.02,
        "success_window": 0.1,
        "scene": SceneConfig(clutter=CORRIDOR, measured={"potential_field": mapped}),
        "reward": weights("clutter", alive=0.2, progress=1.0, near=-0.3, collision=-1.0, gait=1.0),
        "actor": [*terms, TermConfig(term="last_action", history=2)],
        "critic": [*terms, *(TermConfig(term=name) for name in true)],
    }
    return ClutterConfig(**(values | changes))


def clutter_envs(num_envs: int, *, noise: bool = True, **given: Any) -> SimEnv:
    """Envs of `clutter_config(**changes)`."""
    config = partial(clutter_config, noise=noise)
    return _envs(config, ClutterTask, num_envs, noise=noise, **given)


traverse = partial(made, clutter_envs, lowest_height=0.31)
endless_traverse = partial(endless, clutter_envs, lowest_height=-9.0, max_tilt=math.pi)


def climb_config(*, noise: bool = True, **changes: Any) -> ClimbConfig:
    """Twelve steps before a step, which is seen with noise and latency."""
    places = ("sensed/edge_position_b", "sensed/goal_position_b")
    names = (*places, "angular_velocity_b", "projected_gravity_b", "joint_position",
             "joint_velocity")  # fmt: skip
    terms = [TermConfig(term=name) for name in names]
    true = ("state/position_w", "state/foot_force", "sensed/edge_position_w", "sensed/plant")
    camera = SensorSpec(rate_hz=30, noise=0.02 if noise else 0.0, latency=0.04)
    values: dict[str, Any] = {
        "episode_length": STEPS * 0.02,
        "success_window": 0.1,
        "distance": [0.4, 0.6],  # some of them touch it
        "scene": SceneConfig(
            file="step.xml", measured={"edge_position_b": camera, "goal_position_b": camera}
        ),
        "reward": weights("climb", alive=0.2, progress=1.0, rise=1.0, slip=-0.1),
        "actor": [*terms, TermConfig(term="last_action", history=2)],
        "critic": [*terms, *(TermConfig(term=name) for name in true)],
    }
    return ClimbConfig(**(values | changes))


def climb_envs(num_envs: int, *, noise: bool = True, **given: Any) -> SimEnv:
    """Envs of `climb_config(**changes)`."""
    return _envs(partial(climb_config, noise=noise), ClimbTask, num_envs, noise=noise, **given)


mount = partial(made, climb_envs, lowest_height=0.31)
endless_mount = partial(endless, climb_envs, lowest_height=0.001, max_tilt=math.pi)
