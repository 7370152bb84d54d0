"""Frames from picture to observation: stacks, lost frames, latency, resets, states."""

from itertools import pairwise
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from sim.cameras.cameras import SimulatedCameras
from sim.cameras.config import AppearanceRandomization, CameraConfig
from tests.fakes import CPU

EVERYONE = torch.ones(3, dtype=torch.bool)


class Counter:
    """A renderer whose pictures count: world w shows 10 w + the number of its picture."""

    def __init__(self, camera: CameraConfig) -> None:
        self.images = {"eye": torch.zeros(3, *camera.shape, dtype=torch.uint8)}
        self.drawn = torch.zeros(3, dtype=torch.int64)

    def vary(self, name: str) -> Tensor:
        raise AssertionError(name)

    def draw(self, rows: EnvSelection) -> None:
        for world in rows.ids:
            self.images["eye"][world] = int(10 * world + self.drawn[world])
        self.drawn += rows.mask

    def close(self) -> None:
        pass


def counted(seed: int = 0, **camera: Any) -> SimulatedCameras:
    config = CameraConfig(width=2, height=2, **camera)
    cameras = SimulatedCameras(
        {"eye": config}, AppearanceRandomization(), cast("Any", Counter(config)),
        num_worlds=3, device=CPU, seed=seed,
    )  # fmt: skip
    cameras.begin(EnvSelection(EVERYONE))
    return cameras


def numbers(stack: Tensor, world: int = 0) -> list[int]:
    """Numbers of the pictures in a stack, the oldest first."""
    return [int(value) - 10 * world for value in stack[world, :, 0, 0, 0]]


def test_an_episode_begins_with_its_first_frame_everywhere_and_the_newest_frame_is_last():
    cameras = counted(stack=3)
    assert numbers(cameras.obs["image/eye"]) == [0, 0, 0]
    seen = []
    for _ in range(3):
        cameras.step()
        seen.append(numbers(cameras.next_obs["image/eye"], world=1))
    assert seen == [[0, 0, 1], [0, 1, 2], [1, 2, 3]]
    assert torch.equal(cameras.obs["image/eye"], cameras.next_obs["image/eye"])


def test_a_world_that_begins_anew_shows_nothing_of_the_episode_before_and_others_go_on():
    cameras = counted(stack=3)
    for _ in range(2):
        cameras.step()
    cameras.begin(EnvSelection(torch.tensor([False, True, False])))
    successor, obs = cameras.next_obs["image/eye"], cameras.obs["image/eye"]
    assert numbers(successor, world=1) == [0, 1, 2]
    assert numbers(obs, world=1) == [3, 3, 3]
    assert numbers(obs, world=2) == [0, 1, 2]
    cameras.step()
    assert numbers(cameras.next_obs["image/eye"], world=1) == [3, 3, 4]
    assert numbers(cameras.next_obs["image/eye"], world=2) == [1, 2, 3]


def test_a_slow_camera_repeats_its_frame_and_draws_only_when_one_is_due():
    cameras = counted(stack=2, period=3)
    seen = []
    for _ in range(6):
        cameras.step()
        seen.append(numbers(cameras.next_obs["image/eye"]))
    assert seen == [[0, 0], [0, 0], [0, 1], [1, 1], [1, 1], [1, 2]]


def test_a_late_camera_shows_the_frame_of_so_many_frames_before():
    cameras = counted(stack=1, latency=2)
    seen = []
    for _ in range(5):
        cameras.step()
        seen += numbers(cameras.next_obs["image/eye"])
    assert seen == [0, 0, 1, 2, 3]


def test_lost_frames_repeat_the_one_before_as_often_as_was_said():
    cameras = counted(stack=1, dropout=0.3)
    seen = [0]
    for _ in range(200):
        cameras.step()
        seen += numbers(cameras.next_obs["image/eye"])
    steps = torch.tensor(seen).diff()
    lost = steps == 0
    assert 0.2 < lost.float().mean() < 0.4
    # After a loss the newest picture is shown, not the one that was lost.
    for number, (before, shown) in enumerate(pairwise(seen), start=1):
        assert shown in (number, before)


def test_a_camera_that_freezes_loses_frames_in_a_row_and_is_stale_after_some():
    cameras = counted(stack=1, dropout=0.2, dropout_frames=4, stale_after=3)
    rows, before = 0, 0
    for number in range(1, 100):
        cameras.step()
        (shown,) = numbers(cameras.next_obs["image/eye"])
        rows = 0 if shown == number else rows + 1
        stale = cameras.stale()
        assert stale is not None
        assert bool(stale[0]) == (rows >= 3)
        if shown == number:
            assert before % 4 == 0  # four at a time
        before = rows


def test_black_frames_are_black_and_noise_has_its_size():
    cameras = counted(stack=1, black=0.5)
    cameras.step()
    blacks = [float(numbers(cameras.next_obs["image/eye"])[0] == 0)]
    for _ in range(99):
        cameras.step()
        blacks.append(float(numbers(cameras.next_obs["image/eye"])[0] == 0))
    assert 0.3 < sum(blacks) / 100 < 0.7
    noisy = counted(stack=1, noise=3.0)
    for _ in range(60):
        noisy.step()
    values = noisy.next_obs["image/eye"].float() - 10 * torch.arange(3)[:, None, None, None, None]
    assert 1.5 < float((values - 60).std()) < 5


@pytest.mark.parametrize("seed", [0, 1])
def test_the_seed_decides_what_is_lost(seed: int):
    def lost(seed: int) -> list[list[int]]:
        cameras = counted(seed=seed, stack=1, dropout=0.5)
        shown = []
        for _ in range(20):
            cameras.step()
            shown.append(numbers(cameras.next_obs["image/eye"]))
        return shown

    assert lost(seed) == lost(seed)
    assert lost(seed) != lost(seed + 1)
