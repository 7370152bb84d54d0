"""Plots and films of what a policy does: of flights, of walks; of others there are none."""

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from robot_rl.core.env import Obs
from sim.env import SimEnv
from sim.tasks.velocity import GOAL


def draw_policy(
    folder: Path,
    env: SimEnv,
    act: Callable[[Obs], Tensor],
    *,
    seed: int,
    video: bool = True,
) -> dict[str, str]:
    """Play a few evaluation episodes and draw them.

    Args:
        folder: Where `plots` and `videos` go.
        env: Evaluation worlds.
        act: Policy, groups (N, ...) -> (N, A).
        seed: Chooses starts, goals and physical parameters.
        video: Also film; takes about ten seconds.

    Returns:
        What was drawn -> where it is, or why it is not.
    """
    robot = env.spec.robot
    if robot is not None and robot.rotors:
        from flight_report import report_flight

        return report_flight(folder, env, act, seed=seed, video=video)
    if robot is not None and robot.feet and GOAL in env.task.goal:
        from walk_report import report_walk

        return report_walk(folder, env, act, seed=seed)
    return {}
