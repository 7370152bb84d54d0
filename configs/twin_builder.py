"""From a run's config to a simulated robot behind the door of a real one."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from configs.schema import RunConfig, check_robot, component_of
from robot_rl.core.errors import ConfigError
from sim.cameras.config import CameraConfig
from sim.robots.joint_robot import JointRobotConfig
from sim.task import TaskContext
from sim.twin import Twin


def exactly_measured(config: RunConfig) -> RunConfig:
    """The same run of a robot whose sensors have no errors."""
    spec = config.robot.spec
    none = {"noise": 0.0, "bias": 0.0, "bias_walk": 0.0, "jitter": 0.0, "dropout": 0.0}
    sensors = {name: replace(sensor, **none) for name, sensor in spec.sensors.items()}
    return replace(config, robot=replace(config.robot, spec=replace(spec, sensors=sensors)))


def build_twin(
    config: RunConfig, *, seed: int, exact: bool = False, held: bool = False,
    cameras: Mapping[str, CameraConfig] | None = None, now: Callable[[], float] = time.monotonic,
) -> Twin:  # fmt: skip
    """One robot of a run's worlds, at one physics step per command of its loop (`loop_dt`).

    No physical parameter is drawn and nobody is pushed: the plant is as it is described.

    Args:
        config: The run; its task gives starts and goals.
        seed: Of starts and noise.
        exact: Measure without errors. An episode then begins as in one world of `make_env` with
            the same seed and nothing drawn, built from `exactly_measured`, and where the loop has
            the period of the physics it goes like it too.
        held: A robot on legs hangs upright, its feet on the ground, until a policy asks for
            something.
        cameras: Put into the model of a robot with joints, for whoever draws it.
        now: Clock of whoever reads and writes [s].

    Raises:
        ConfigError: The run is not of our own worlds.
    """
    task, robot = config.task, config.robot
    if task is None or robot is None:
        raise ConfigError(
            "a twin needs a task and a robot of our own; the run's environment is "
            f"'{component_of(config.env).name}', which has none"
        )
    check_robot(config)
    if exact:
        robot = exactly_measured(config).robot
    task = replace(task, randomization=task.randomization.nominal())
    device = torch.device("cpu")
    single = robot.behind_a_loop()
    steps = round(robot.physics_dt * robot.decimation / single.physics_dt)
    simulation = component_of(robot).build(
        single, task.randomization, num_worlds=1, device=device, seed=seed,
        **single.simulation_arguments(task, evaluation=True),
        **({"cameras": cameras} if cameras and isinstance(robot, JointRobotConfig) else {}),
    )  # fmt: skip
    control_dt = simulation.control_dt * steps  # the simulation's own is a tick of the loop
    context = TaskContext(
        num_envs=1, control_dt=control_dt, device=device, evaluation=True,
        **single.task_arguments(simulation, task, control_dt),
    )  # fmt: skip
    made = component_of(task).build(task, context)
    return Twin(
        simulation, made, action_map=robot.action_map(task),
        initial_action=robot.initial_action, steps_per_control=steps, seed=seed,
        hold=simulation.hold_base if held else None, now=now,
    )  # fmt: skip
