"""Cameras of a learning environment: what is seen, and what ends an episode instead."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from hardware.control.pictures import JudgedCamera, TakenPicture
from hardware.learning.cameras import EpisodeCameras
from hardware.learning.hardware_env import Phase
from policies.cameras import CameraInput, PixelContent
from tests.hardware.learning.worlds import CONTROL_DT, point_env, world_of

WRIST = CameraInput(picture=[4, 6], crop=[0, 1, 4, 4], channels=["red", "green", "blue"], stack=3)
STILL = torch.zeros(1, 2)
BEGINS = 1
"""Steps from the end of an episode to the beginning of the next, of a camera without a delay."""


class Camera:
    """A camera whose pictures are numbered by the time at which they were taken."""

    def __init__(self):
        self.env: Any = None
        self.lag, self.shape = 0.0, (4, 6, 3)
        self.level: int | None = None
        self.kept: TakenPicture | None = None
        self.closed = 0
        self.troubles: dict[str, str] = {}

    def newest(self):
        stamp = self.env.port.now() - self.lag
        number = round(stamp / CONTROL_DT) % 200 + 40
        pixels = np.full(self.shape, number if self.level is None else self.level, np.uint8)
        return {"wrist": self.kept or TakenPicture(pixels, PixelContent.colour, stamp)}

    def close(self):
        self.closed += 1


def env_with(camera, **options):
    cameras = EpisodeCameras({"wrist": WRIST}, camera, CONTROL_DT)
    camera.env = env = point_env(limit=20, cameras=cameras, **options)
    return env


def levels(obs):
    """Level of each frame of the stack, whose pixels are all the same."""
    stack = obs["image/wrist"]
    assert stack.shape == (1, 3, 4, 4, 3)
    assert stack.dtype == torch.uint8
    assert (stack == stack[:, :, :1, :1, :1]).all()
    return stack[0, :, 0, 0, 0].tolist()


def test_a_stack_begins_with_the_picture_of_the_start_and_moves_on_by_one_frame_a_step():
    env = env_with(Camera())
    before = levels(env.reset(seed=1))
    assert len(set(before)) == 1
    assert env.picture_stamps == {"image/wrist": pytest.approx(env.port.now())}
    for _ in range(5):
        step = env.step(STILL)
        after = levels(step.next_obs)
        assert bool(step.valid)
        assert levels(step.obs) == after == [*before[1:], before[-1] + 1]
        before = after
    assert env.spec.groups["image/wrist"].shape == (3, 4, 4, 3)
    env.close()


@pytest.mark.parametrize(("fault", "said"), [
    ({"lag": 2.0}, "is silent: its newest picture is too old"),
    ({"level": 2}, "shows nothing: its pictures are black"),
    ({"shape": (2, 3, 3)}, "cannot be used: pictures have 3 x 2 pixels"),
    ({"troubles": {"wrist": "nobody publishes it"}}, "cannot be used: nobody publishes it"),
])  # fmt: skip
def test_a_picture_that_cannot_be_used_ends_the_episode_in_an_invalid_step(fault, said):
    camera = Camera()
    env = env_with(camera)
    env.reset(seed=1)
    assert bool(env.step(STILL).valid)
    working = {name: getattr(camera, name) for name in fault}
    vars(camera).update(fault)
    ends = env.step(STILL)
    for _ in range(8):  # a silent camera has sent a picture a moment ago
        ends = ends if bool(ends.ended) else env.step(STILL)
    assert bool(ends.truncated)
    assert not bool(ends.valid)
    assert env.reason.startswith(f"camera 'wrist' {said}")
    for _ in range(6):
        assert not bool(env.step(STILL).valid)
    assert env.phase is Phase.waiting
    assert env.prompt.startswith(f"waits for pictures: camera 'wrist' {said}")
    vars(camera).update(working)
    steps = [env.step(STILL) for _ in range(4)]
    assert env.phase is Phase.running
    assert bool(steps[-1].valid)
    env.close()


def test_a_camera_that_sends_the_very_same_picture_is_frozen():
    camera = Camera()
    env = env_with(camera)
    env.reset(seed=1)
    env.step(STILL)
    same = np.full((4, 6, 3), 99, np.uint8)
    valid = []
    for _ in range(18):
        camera.kept = TakenPicture(same, PixelContent.colour, env.port.now() + CONTROL_DT)
        step = env.step(STILL)
        valid.append(bool(step.valid))
        if bool(step.ended):
            break
    assert env.reason.startswith("camera 'wrist' is frozen: it sends the very same picture (0.5")
    assert valid[:-1] == [True] * (len(valid) - 1)
    assert not valid[-1]
    env.close()


@pytest.mark.parametrize("late", [0, 1, 2])
def test_an_episode_does_not_begin_with_a_picture_of_the_one_before(late):
    camera = Camera()
    env = env_with(camera)
    env.reset(seed=1)
    camera.lag = late * CONTROL_DT  # shows the robot before it was put to its start
    env.end_episode("over")
    env.step(STILL)
    steps, prompts = [], set()
    while env.phase is not Phase.running:
        steps.append(env.step(STILL))
        prompts.add(env.prompt)
    assert prompts == {""}  # nobody is asked for anything: they come soon
    assert len(steps) == BEGINS + late
    assert len(set(levels(steps[-1].obs))) == 1
    env.close()
    assert camera.closed == 1


def test_an_environment_without_cameras_is_as_before():
    env = point_env()
    assert set(env.reset(seed=1)) == {"actor"}
    assert env.picture_stamps == {}
    assert world_of(env) is not None
    env.close()


@pytest.mark.parametrize(
    ("seen", "elsewhere", "blind"),
    [(math.nan, 1.0, True), (math.inf, 1.0, True), (0.0, 1.0, True), (1.0, math.nan, False)],
)
@pytest.mark.parametrize("larger", [1, 2])
def test_depth_without_a_distance_in_what_the_policy_sees_is_told(seen, elsewhere, blind, larger):
    """A distance beside the part that is cut out counted, and so did infinity."""
    camera = CameraInput(
        picture=[8, 8], crop=[2, 2, 4, 4], channels=["depth"], stack=1, near=0.1, far=2.0
    )
    pixels = np.full((8 * larger, 8 * larger), elsewhere, np.float32)
    pixels[2 * larger : 6 * larger, 2 * larger : 6 * larger] = np.nan
    pixels[3 * larger, 3 * larger] = seen
    judged = JudgedCamera(camera, CONTROL_DT)
    judged.take(pixels, PixelContent.depth, 0.0, {})
    assert ("without a distance" in judged.fault({}, 0.0)) == blind
