"""Pictures of multirotors: what is ahead is in the middle, and turning brings the next ball in."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from configs.builders import SimEnvConfig
from configs.schema import make_env
from robot_rl.core.env_selection import EnvSelection
from sim.cameras.config import CameraConfig, ImageRenderer
from tests.compositions import composed
from tests.fakes import CPU

pytestmark = pytest.mark.slow

NOSE = CameraConfig(body="base", position=[0.1, 0.0, 0.0], target=[2.0, 0.0, -1.35])


def test_a_drone_that_turns_to_the_left_sees_the_green_ball_where_the_red_one_was():
    config = composed(["task=hover"]).config
    robot = replace(config.robot, cameras={"nose": NOSE})
    config = replace(config, robot=robot, env=SimEnvConfig(cameras=["nose"]))
    assert config.env.renderer is ImageRenderer.warp
    env: Any = make_env(config, num_envs=2, device=CPU, seed=0, evaluation=True)
    env.reset(seed=0)
    state = env.simulation.engine.state
    state[:, :3] = 0.0
    half = math.sqrt(0.5)
    state[:, 3:7] = torch.tensor([[1.0, 0.0, 0.0, 0.0], [half, 0.0, 0.0, half]])
    env._cameras.begin(EnvSelection(torch.ones(2, dtype=torch.bool)))
    ahead, left = env._cameras.obs["image/nose"][:, -1].float()

    def middle(image: Tensor) -> list[int]:
        return image[32, 32].tolist()

    assert middle(ahead)[0] > 2 * max(middle(ahead)[1:])  # red
    assert middle(left)[1] > 2 * max(middle(left)[0], middle(left)[2])  # green
