"""Players of real tasks with constant actions, and made-up flights, for the tests of drawing."""

from pathlib import Path

import av
import numpy as np
import torch
from torch import Tensor

from configs.schema import make_env
from robot_rl.core.env import Obs
from sim.env import SimEnv
from sim.rendering.flight_recording import FlightRecording
from sim.rendering.player import Player
from tests.compositions import composed
from tests.fakes import CPU

ROBOTS = {
    "hover": "crazyflie", "tracking": "crazyflie", "gates": "crazyflie", "landing": "crazyflie",
    "reach": "panda", "lift": "panda", "peg": "panda", "drawer": "panda",
    "velocity": "go2", "velocity_rough": "go2", "velocity_hidden": "go2",
    "stand_up": "go2", "motion": "go2", "clutter": "go2", "climb": "go2",
    "cartpole_swingup": "cartpole", "ball_in_cup": "cup", "reorient": "allegro",
}  # fmt: skip
"""A robot for every task of configs/task; a new task gets a line, and is filmed."""


class StillAgent:
    """Always the same action; counts the envs that began."""

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


def envs(task: str, count: int = 2, *overrides: str) -> SimEnv:
    """Evaluation envs of a task of configs/task."""
    config = composed([f"task={task}", f"robot={ROBOTS[task]}", *overrides]).config
    env = make_env(config, num_envs=count, device=CPU, seed=3, evaluation=True)
    assert isinstance(env, SimEnv)
    return env


def player_of(task: str, count: int = 2, *overrides: str, action: float = 0.0) -> Player:
    """A player of such envs."""
    env = envs(task, count, *overrides)
    return Player(env, StillAgent(env, action), seed=3)


def pictures(path: Path) -> list[np.ndarray]:
    """Frames of a film, or the one picture of a file."""
    with av.open(str(path)) as film:
        return [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]


def spiral(flights: int = 2, steps: int = 40, *, moving_goal: bool = False) -> FlightRecording:
    """Flights that spiral into the goal; the last one is lost at half time."""
    time = np.linspace(0.0, 1.0, steps, dtype=np.float32)
    turn = 6 * time + np.arange(flights, dtype=np.float32)[:, None]  # (K, T)
    radius = 0.3 * (1 - time)
    position = np.stack([radius * np.cos(turn), radius * np.sin(turn), 0 * turn], axis=-1)
    goal = np.zeros_like(position)
    if moving_goal:
        goal[..., 0] = time
    level = np.zeros((flights, steps, 4), dtype=np.float32)
    level[..., 0] = 1.0
    length = np.full(flights, steps, dtype=np.int64)
    success = np.ones(flights, dtype=bool)
    if flights > 1:
        length[-1], success[-1] = steps // 2, False
    return FlightRecording(
        control_dt=0.01, position_w=(position + goal).astype(np.float32), orientation_w=level,
        linear_velocity_w=np.zeros_like(position), angular_velocity_b=np.zeros_like(position),
        rotor_speed=np.full((flights, steps, 4), 0.66, dtype=np.float32),
        action=np.full((flights, steps, 4), 0.33, dtype=np.float32),
        goal_w=goal, corners_w=goal[..., :0],
        length=length, success=success,
    )  # fmt: skip
