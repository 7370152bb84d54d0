"""The environment contract over robots that learn, each a loop ticked on a logical clock."""

from typing import Any

import torch

from tests.contracts.batch_env import BatchEnvContract, EnvCase
from tests.hardware.learning.side_by_side import SideBySide
from tests.hardware.learning.worlds import point_env

LIMIT = 6


def robots(num_envs: int, seed: int, device: torch.device) -> Any:
    """That many robots with streams of their own."""
    del device  # a robot has none
    return SideBySide([point_env(1000 * seed + i, limit=LIMIT) for i in range(num_envs)])


class TestHardwareEnv(BatchEnvContract):
    cases = (EnvCase("robot", robots, LIMIT, late=True, resumable=False, slow=False),)
