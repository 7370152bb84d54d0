"""Panda envs for the tests of sim: the robot of configs/robot, the reach task, a few envs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from configs.builders import build_env
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import RobotState, TermConfig
from robot_rl.core.robot_command import JointCommand
from sim.env import SimEnv
from sim.randomization import CurriculumConfig
from sim.robots.joint_robot import JointRandomization, JointRobotConfig, PhysicsEngine
from sim.robots.joint_simulation import MujocoSimulation
from sim.task import InitialState
from sim.tasks.arms.reach import ReachConfig, ReachTask
from tests.fakes import CPU
from tests.sim.joint_robots import joint_robot
from tests.sim.stepping import endless, made, weights

TERMS = ("joint_position", "joint_velocity", "end_effector_error_b", "last_action")
STEPS = 12
"""Length of an episode of `arm_envs` [control steps]."""
EVERYTHING = JointRandomization(
    payload=[0.0, 1.0], link_mass=0.1, centre_of_mass=[-0.02, 0.02], contact_friction=[0.5, 1.5],
    joint_damping=0.3, joint_friction=[0.0, 0.5], motor_strength=[0.8, 1.1], stiffness=0.1,
    damping=0.1, actuator_delay=[0.0, 0.02], sensor_noise=[0.5, 2.0], sensor_bias=[0.5, 2.0],
    latency=[0.0, 0.12], sensor_jitter=[0.0, 2.0],
)  # fmt: skip


def panda(*, noise: bool = True, latency: float = 0.0, **changes: Any) -> JointRobotConfig:
    """The robot of configs/robot/panda.yaml, stepped by one thread."""
    return joint_robot("panda", "reach", noise=noise, latency=latency, **changes)


def worn(robot: JointRobotConfig, *, noise: bool) -> JointRobotConfig:
    """The same arm with everything that motors and sensors can have; noise has what is random."""
    random = {"jitter": 0.03, "dropout": 0.1, "bias_walk": 0.001, "resolution": 1e-4}
    sensors = {
        name: replace(sensor, bias=10 * sensor.noise, **(random if noise else {}))
        for name, sensor in robot.spec.sensors.items()
    }
    sensors["joint_velocity"].rate_hz = 10
    joints = [
        replace(
            joint, no_load_speed=2 * joint.velocity_limit, stall_torque=2 * joint.effort_limit,
            actuator_delay=0.01, armature=0.12, viscous_friction=0.5, friction=0.2,
            static_friction=0.3, stribeck_velocity=0.05,
        )
        for joint in robot.spec.joints
    ]  # fmt: skip
    joints[2] = robot.spec.joints[2]  # a motor without a torque-speed line between the others
    return replace(robot, spec=replace(robot.spec, joints=joints, sensors=sensors))


def arms(
    count: int, *, robot: JointRobotConfig | None = None, seed: int = 0,
    randomization: JointRandomization | None = None,
) -> MujocoSimulation:  # fmt: skip
    """Arms at rest in their default pose."""
    simulation = MujocoSimulation(
        robot or panda(noise=False), randomization or JointRandomization(),
        num_worlds=count, device=CPU, seed=seed,
    )  # fmt: skip
    begin(simulation, torch.ones(count, dtype=torch.bool), seed=seed)
    return simulation


def begin(
    simulation: MujocoSimulation, mask: torch.Tensor, *, seed: int = 0,
    scene: Mapping[str, torch.Tensor] | None = None,
) -> None:  # fmt: skip
    """Place the masked arms in their default pose, and parts of the scene where they are told."""
    rows = EnvSelection(mask)
    pose = torch.tensor([joint.default_position for joint in simulation.robot.joints])
    position = pose.repeat(rows.count, 1)
    robot = RobotState({"joint_position": position, "joint_velocity": 0 * position})
    start = InitialState(robot=robot, scene=scene or {})
    simulation.reset(rows, start, torch.Generator().manual_seed(seed))


def hold(simulation: MujocoSimulation, *, tau: float = 0.0, stiffness: float = 1.0) -> JointCommand:
    """Stay in the default pose, with gains times a factor and a torque at every joint."""
    joints, ones = simulation.robot.joints, torch.ones(simulation.num_worlds, 1)
    row = {name: torch.tensor([getattr(joint, name) for joint in joints]) for name in (
        "default_position", "stiffness", "damping"
    )}  # fmt: skip
    zero = 0 * row["stiffness"]
    return JointCommand(
        q=ones * row["default_position"], dq=ones * zero, tau=ones * (zero + tau),
        kp=ones * row["stiffness"] * stiffness, kd=ones * row["damping"],
    )  # fmt: skip


def arm_envs(
    num_envs: int, *, seed: int = 0, noise: bool = True, device: torch.device = CPU,
    lowest_height: float = 0.45, evaluation: bool = True,
    curriculum: CurriculumConfig | None = None, make_task: Callable[..., Any] = ReachTask,
    engine: PhysicsEngine = PhysicsEngine.batch, **changes: Any,
) -> SimEnv:  # fmt: skip
    """Reach in a dozen steps; the default pose is little above the height that ends an episode."""
    terms = [TermConfig(term=name) for name in TERMS]
    robot = worn(panda(noise=noise, latency=0.04, engine=engine), noise=noise)
    quiet = {} if noise else {"sensor_noise": [1.0, 1.0], "sensor_bias": [1.0, 1.0]}
    drawn = replace(EVERYTHING, curriculum=curriculum or CurriculumConfig(), **quiet)
    task = ReachConfig(
        episode_length=STEPS * robot.physics_dt * robot.decimation,
        success_window=0.2,
        lowest_height=lowest_height,
        start_position=0.2,
        randomization=drawn,
        reward=weights("reach", closeness=1.0, distance=-1.0, speed=-0.01, smoothness=-0.1),
        actor=[*terms, TermConfig(term="joint_position", history=3)],
        critic=[*terms, TermConfig(term="sensed/plant")],
    )
    return build_env(
        replace(task, **changes), robot, make_task=make_task, make_simulation=MujocoSimulation,
        num_envs=num_envs, device=device, seed=seed, evaluation=evaluation,
    )  # fmt: skip


reach = partial(made, arm_envs)
endless_reach = partial(endless, arm_envs, lowest_height=-9.0)
