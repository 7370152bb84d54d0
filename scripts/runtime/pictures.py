"""Plots and films of what a policy does: of flights, and of robots with joints."""

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from robot_rl.core.env import Obs
from sim.env import SimEnv


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
        video: Also film; takes ten seconds to a minute.

    Returns:
        What was drawn -> where it is, or why it is not.
    """
    robot = env.spec.robot
    if robot is not None and robot.rotors:
        from flight_report import report_flight

        return report_flight(folder, env, act, seed=seed, video=video)
    from joint_report import report_joints

    return report_joints(folder, env, act, seed=seed, video=video)
