"""Our tasks under Gymnasium's ids: `robot_rl/Hover-v0` is the task `hover`.

    import configs.gymnasium_ids
    worlds = gymnasium.make_vec("robot_rl/Hover-v0", num_envs=64)

or, in one line, `gymnasium.make_vec("configs.gymnasium_ids:robot_rl/Hover-v0", num_envs=64)`.

Importing this module registers the ids, which is how Gymnasium comes to know them, and does nothing
else; worlds are made when they are asked for. It lies here because only this room knows both the
YAML files and the parts; the adapters in `sim/adapters` know neither.
"""

from collections.abc import Sequence

import gymnasium

from configs.builders import pick_device
from configs.catalog import choices
from configs.compose import compose
from configs.schema import make_env
from robot_rl.core.env import BatchEnv
from sim.adapters.gymnasium_vector import SingleWorld, VectorWorlds

ROBOTS = {"reach": "panda"}
"""Robot of a task that the default robot cannot do; an override such as robot=... wins."""


def id_of(task: str) -> str:
    """Id of a task: `reach_far` becomes `robot_rl/ReachFar-v0`."""
    return f"robot_rl/{''.join(word.capitalize() for word in task.split('_'))}-v0"


def make_single(
    task: str,
    overrides: Sequence[str] = (),
    device: str = "cpu",
    render_mode: str | None = None,
) -> SingleWorld:
    """One world of a task, begun as in training.

    Args:
        task: A file of configs/task.
        overrides: Choices and fields as on the command line, such as robot.plant=measured.
        device: Where the physics runs.
        render_mode: rgb_array for pictures by `render`.
    """
    return SingleWorld(_build(task, 1, overrides, device), render_mode)


def make_vector(
    task: str,
    num_envs: int = 1,
    overrides: Sequence[str] = (),
    device: str = "cpu",
    render_mode: str | None = None,
) -> VectorWorlds:
    """N worlds of a task; arguments as in `make_single`."""
    return VectorWorlds(_build(task, num_envs, overrides, device), render_mode)


def _build(task: str, num_envs: int, overrides: Sequence[str], device: str) -> BatchEnv:
    robot = [f"robot={ROBOTS[task]}"] if task in ROBOTS else []
    if any(override.startswith("robot=") for override in overrides):
        robot = []
    config = compose([f"task={task}", *robot, *overrides]).config
    return make_env(
        config,
        num_envs=num_envs,
        device=pick_device(device),
        seed=config.seed,
        evaluation=False,
    )


def _register() -> None:
    for task in choices("task"):
        gymnasium.register(
            id_of(task),
            entry_point=f"{__name__}:make_single",
            vector_entry_point=f"{__name__}:make_vector",
            kwargs={"task": task},
        )


_register()
