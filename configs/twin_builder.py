"""From a run's config to a simulated robot behind the door of a real one."""

from dataclasses import replace

import torch

from configs.schema import RunConfig, component_of
from robot_rl.core.errors import ConfigError
from sim.twin import Twin


def build_twin(config: RunConfig, *, seed: int, nominal: bool = True) -> Twin:
    """One robot of a run's worlds, at one physics step per command.

    Args:
        config: The run; its task gives starts and goals.
        seed: Of starts, parameters and noise.
        nominal: Draw no physical parameter and push nobody: the plant as it is described.

    Raises:
        ConfigError: The run is not of our own worlds.
    """
    task, robot = config.task, config.robot
    if task is None or robot is None:
        raise ConfigError(
            "a twin needs a task and a robot of our own; the run's environment is "
            f"'{component_of(config.env).name}', which has none"
        )
    if nominal:
        task = replace(task, randomization=task.randomization.nominal())
    device = torch.device("cpu")
    steps = robot.decimation
    single = replace(robot, decimation=1)
    simulation = component_of(robot).build(
        single, task.randomization, num_worlds=1, device=device, seed=seed,
        **single.simulation_arguments(task, evaluation=True),
    )  # fmt: skip
    made = component_of(task).build(
        task, num_worlds=1, control_dt=simulation.control_dt * steps, device=device,
        evaluation=True, **single.task_arguments(simulation, task),
    )  # fmt: skip
    return Twin(
        simulation, made, action_map=robot.action_map(task),
        initial_action=robot.initial_action, steps_per_control=steps, seed=seed,
    )  # fmt: skip
