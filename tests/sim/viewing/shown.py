"""Players of real tasks with constant actions, for the tests of what is seen of them."""

import torch
from torch import Tensor

from configs.schema import make_env
from robot_rl.core.env import Obs
from sim.env import SimEnv
from sim.viewing.player import Player
from tests.compositions import composed

CPU = torch.device("cpu")
ROBOTS = {
    "hover": "crazyflie", "tracking": "crazyflie", "gates": "crazyflie",
    "reach": "panda", "lift": "panda", "peg": "panda", "drawer": "panda",
    "velocity": "go2", "velocity_rough": "go2", "velocity_hidden": "go2",
    "stand_up": "go2", "motion": "go2", "clutter": "go2",
}  # fmt: skip
"""A robot for every task of configs/task; a new task gets a line, and is filmed."""


class StillAgent:
    """Always the same action; counts the worlds that began."""

    def __init__(self, env: SimEnv, action: float = 0.0) -> None:
        """Make the action once."""
        self._action = torch.full((env.spec.num_envs, env.spec.action_size), action)
        self.begun = torch.zeros(env.spec.num_envs, dtype=torch.int64)

    def act(self, obs: Obs) -> Tensor:
        """The action."""
        return self._action

    def begin(self, mask: Tensor) -> None:
        """Count."""
        self.begun += mask


def worlds(task: str, count: int = 2, *overrides: str) -> SimEnv:
    """Evaluation worlds of a task of configs/task."""
    config = composed([f"task={task}", f"robot={ROBOTS[task]}", *overrides]).config
    env = make_env(config, num_envs=count, device=CPU, seed=3, evaluation=True)
    assert isinstance(env, SimEnv)
    return env


def player_of(task: str, count: int = 2, *overrides: str, action: float = 0.0) -> Player:
    """A player of such worlds."""
    env = worlds(task, count, *overrides)
    return Player(env, StillAgent(env, action), seed=3)
