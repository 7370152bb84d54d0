"""Plots and films of what a policy does: of flights, and of robots with joints."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from configs.schema import RunConfig
from robot_rl.cli.parts import make_sim_env
from robot_rl.core.env import Obs
from sim.env import SimEnv


def draw_policy(
    folder: Path,
    config: RunConfig,
    env: SimEnv,
    act: Callable[[Obs], Tensor],
    *,
    seed: int,
    video: bool = True,
) -> dict[str, str]:
    """Play a few evaluation episodes and draw them.

    Args:
        folder: Where `plots` and `videos` go.
        config: The run.
        env: Its evaluation worlds. Flights are seen in them; robots with joints, whose worlds take
            their time, in a few of their own.
        act: Policy, groups (N, ...) -> (N, A).
        seed: Chooses starts, goals and physical parameters.
        video: Also film; takes ten seconds to a minute.

    Returns:
        What was drawn -> where it is, or why it is not.
    """
    robot = env.spec.robot
    if robot is not None and robot.rotors:
        from robot_rl.cli.flight_report import report_flight

        return report_flight(folder, env, act, seed=seed, video=video)
    from robot_rl.cli.joint_report import FILMED, report_joints

    few = make_sim_env(config, num_envs=FILMED, device=env.spec.device, seed=seed, evaluation=True)
    with contextlib.closing(few):
        return report_joints(folder, few, act, seed=seed, video=video)
