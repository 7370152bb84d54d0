"""Cameras of a twin: drawn from told positions alone, they see what the envs' cameras see."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from configs.schema import make_env
from configs.twin_builder import build_twin
from sim.cameras.config import ImageKind, ImageRenderer
from sim.env import SimEnv
from sim.twin_cameras import TwinCameras, scene_fields, scene_widths
from tests.compositions import composed
from tests.fakes import CPU

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("overrides", "name", "body"),
    [
        (["experiment=reach_pixels", "env.cameras=[front]"], "front", ""),
        (["task=hover", "robot=crazyflie", "env.cameras=[down]"], "down", "base"),
    ],
)
@pytest.mark.parametrize("kind", [ImageKind.rgb, ImageKind.depth])
def test_positions_that_were_told_are_enough_to_draw_what_an_env_sees(overrides, name, body, kind):
    config = composed(overrides).config
    camera = replace(
        config.robot.cameras[name],
        kind=kind,
        latency=0,
        stack=1,
        width=64,
        height=64,
        crop=[8, 4, 48, 56],
        far=3.0,
    )
    assert camera.body == body
    config = replace(config, robot=replace(config.robot, cameras={name: camera}))
    env = make_env(config, num_envs=1, device=CPU, seed=3, evaluation=True)
    assert isinstance(env, SimEnv)
    env.reset(seed=3)
    twin = build_twin(config, seed=0, cameras={name: camera})
    drawing = TwinCameras(twin.simulation, {name: camera}, ImageRenderer.warp)
    told = scene_fields(env.simulation)
    assert {part: value.shape[1] for part, value in told.items()} == scene_widths(twin.simulation)
    for _ in range(3):
        step = env.step(torch.full((1, env.spec.action_size), 0.3))
        picture = drawing.draw(scene_fields(env.simulation))[name]
        seen = step.obs[f"image/{name}"][0, -1].numpy()
        assert picture.shape == (64, 64, camera.channels)
        assert np.array_equal(picture[8:56, 4:60], seen)
        assert seen.std() > 1
    env.close()
    drawing.close()
