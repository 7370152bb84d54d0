"""Demonstrations become chunks that end with their episode, and whole episodes are held out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robot_rl.core.env import EnvSpec, GroupSpec
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.training.config import DemonstrationConfig
from robot_rl.training.demonstrations import Chunks, Demonstrations, read_demonstrations
from tests.robot_rl.datasets.samples import episode, write
from tests.robot_rl.training.test_prior_episodes import PLAIN, WORLDS


def whole(seed: int, steps: int, **changes: Any) -> Any:
    return episode(seed, steps, spec=PLAIN, valid=np.ones(steps, bool), **changes)


def read(folder: Path, spec: EnvSpec = WORLDS, seed: int = 0, **config: Any) -> Demonstrations:
    settings = DemonstrationConfig(data=str(folder), **config)
    return read_demonstrations(folder, settings, spec, ("actor",), chunk_length=3, seed=seed)


def test_a_chunk_is_what_followed_and_ends_with_its_episode():
    told = [whole(0, 4), whole(1, 2)]
    chunks = Chunks(told, ("actor",), 3, torch.device("cpu"))
    assert len(chunks) == 6
    batch = chunks.take(torch.arange(6))
    assert set(batch.obs) == {"actor"}
    places = [(one, t) for one in told for t in range(one.num_steps)]
    for row, (one, t) in enumerate(places):
        assert (batch.obs["actor"][row].numpy() == one.obs["actor"][t]).all()
        assert (batch.action[row].numpy() == one.action[t]).all()
        left = min(3, one.num_steps - t)
        assert batch.extra["valid"][row].tolist() == [k < left for k in range(3)]
        assert (batch.extra["chunk"][row, :left].numpy() == one.action[t : t + left]).all()


def test_a_chunk_does_not_go_on_beyond_a_step_that_must_not_be_learned():
    one = whole(0, 5)
    one = replace(one, valid=np.array([True, True, False, True, True]))
    chunks = Chunks([one], ("actor",), 3, torch.device("cpu"))
    assert len(chunks) == 4
    valid = chunks.take(torch.arange(4)).extra["valid"].tolist()
    assert valid == [[1, 1, 0], [1, 0, 0], [1, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize("stack", [1, 3])
def test_stacks_of_frames_begin_with_their_episode(stack):
    random = np.random.default_rng(0)
    told = [
        replace(whole(i, n), images={"front": random.integers(0, 256, (n + 1, 4, 6, 3), np.uint8)})
        for i, n in enumerate((4, 2))
    ]
    chunks = Chunks(told, ("actor",), 1, torch.device("cpu"), {"front": stack})
    batch = chunks.take(torch.arange(6))
    places = [(one, t) for one in told for t in range(one.num_steps)]
    for row, (one, t) in enumerate(places):
        expected = [one.images["front"][max(0, t - back)] for back in range(stack - 1, -1, -1)]
        assert np.array_equal(batch.obs["image/front"][row].numpy(), np.stack(expected))


def test_pictures_of_another_size_or_camera_are_refused(tmp_path):
    spec = replace(PLAIN, images={"front": (16, 16, 3)})
    told = [
        replace(whole(i, 4), images={"front": np.zeros((5, 16, 16, 3), np.uint8)}) for i in range(2)
    ]
    folder = write(tmp_path / "set", *told, spec=spec)
    settings = DemonstrationConfig(data=str(folder), validation_share=0.0)

    def read_with(name: str, side: int) -> Demonstrations:
        image = GroupSpec(shape=(2, side, 16, 3), dtype=torch.uint8, stack=2)
        own = replace(WORLDS, groups={**WORLDS.groups, f"image/{name}": image})
        groups = ("actor", f"image/{name}")
        return read_demonstrations(folder, settings, own, groups, chunk_length=1, seed=0)

    assert read_with("front", 16).draw(3).obs["image/front"].shape == (3, 2, 16, 16, 3)
    with pytest.raises(SpecMismatchError, match=r"have the shape \(16, 16, 3\), .*\(8, 16, 3\)"):
        read_with("front", 8)
    with pytest.raises(SpecMismatchError, match=r"no pictures of the camera 'side', .*has front"):
        read_with("side", 16)


def test_demonstrations_whose_actions_mean_something_else_are_refused(tmp_path):
    def meaning(high: float) -> dict[str, Any]:
        return {"action": {"high": [high]}, "terms": {}}

    told = [whole(i, 4) for i in range(3)]
    folder = write(tmp_path / "set", *told, spec=replace(PLAIN, meaning=meaning(0.3)))
    read(folder, replace(WORLDS, meaning=meaning(0.3)))
    read(folder)
    with pytest.raises(SpecMismatchError, match=r"action.high\[0\] 0.3, but this run has .* 1.0"):
        read(folder, replace(WORLDS, meaning=meaning(1.0)))


@pytest.mark.slow
def test_whole_episodes_are_held_out_by_the_seed(tmp_path):
    told = [whole(i, 3 + i) for i in range(10)]
    folder = write(tmp_path / "set", *told, spec=PLAIN)
    split = read(folder, validation_share=0.3)
    assert split.held_out is not None
    parts = [split.learned.obs["actor"], split.held_out.obs["actor"]]
    for one in told:
        frames = torch.from_numpy(one.obs["actor"][:-1])
        found = [sum(bool((part == f).all(-1).any()) for f in frames) for part in parts]
        assert sorted(found) == [0, one.num_steps]
    again, other = read(folder, validation_share=0.3), read(folder, validation_share=0.3, seed=1)
    assert torch.equal(again.learned.obs["actor"], parts[0])
    assert not torch.equal(other.learned.obs["actor"], parts[0])
    assert read(folder, validation_share=0.0).held_out is None


def test_images_that_nobody_looks_at_are_not_decoded(tmp_path, monkeypatch):
    """All of them were, and lay in memory: gigabytes of a few minutes of two cameras."""
    spec = replace(PLAIN, images={"front": (16, 16, 3)})
    told = [
        replace(whole(i, 4), images={"front": np.zeros((5, 16, 16, 3), np.uint8)}) for i in range(4)
    ]
    folder = write(tmp_path / "set", *told, spec=spec)
    monkeypatch.delattr("robot_rl.datasets.files.video.decode")
    assert len(read(folder, validation_share=0.0).learned) == 16


def test_failures_can_be_left_out_and_too_few_episodes_are_refused(tmp_path):
    folder = write(tmp_path / "set", *(whole(i, 4) for i in range(4)), spec=PLAIN)
    more = {"actor": GroupSpec(shape=(3,)), "x": GroupSpec(shape=(1,))}
    read(folder, replace(WORLDS, groups=more))  # groups that nobody reads may be missing
    kept = read(folder, successes_only=True, validation_share=0.0, episodes=3)
    assert len(kept.learned) == 4  # every third succeeds
    with pytest.raises(ConfigError, match="2 of them to learn from, and 2 are held out"):
        read(folder, successes_only=True, validation_share=0.9)
    with pytest.raises(ConfigError, match=r"episodes=7 were asked for; .* has 4"):
        read(folder, episodes=7)
    with pytest.raises(ConfigError, match="patience=3 waits for a validation loss"):
        DemonstrationConfig(patience=3, validation_share=0.0)
