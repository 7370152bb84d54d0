"""Chunks of actions: which are whole, by hand, and that a mistake about ends would be found."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from robot_rl.buffers.minibatches import MirrorImages
from robot_rl.core.mirror import EnvMirror, SignedPermutation
from tests.robot_rl.buffers.story import Story, story

REWARDS = [[1.0], [2.0], [4.0], [8.0], [16.0], [32.0]]


def chunks(told: Story, length: int = 3, **changes: Any) -> dict[int, tuple[Tensor, Tensor, float]]:
    """By the step that it begins with: actions of a chunk, which are valid, and its discount."""
    replay = told.tell(told.replay(n_step=length, chunks=True, **changes))
    batch = replay.sample(512)
    newest, found = replay.total_steps - 1, {}
    for i, slot in enumerate(batch.extra["index"].tolist()):
        step = newest - (newest - slot) % replay.num_steps
        chunk, valid = batch.extra["chunk"][i, :, 0], batch.extra["valid"][i]
        found[step] = (chunk, valid, float(batch.discount[i]))
    return dict(sorted(found.items()))


def lengths(found: Mapping[int, tuple[Tensor, Tensor, float]]) -> list[int]:
    """Valid actions of every chunk; they are always the first ones, and those that were done."""
    for step, (chunk, valid, _) in found.items():
        count = int(valid.sum())
        assert bool(valid[:count].all())
        assert chunk[:count].tolist() == [-10.0 * (step + k) for k in range(count)]
    return [int(valid.sum()) for _, valid, _ in found.values()]


@pytest.mark.parametrize(
    ("ends", "settings", "valid", "discounts"),
    [
        ({}, {}, [3, 3, 3, 3, 2, 1], {}),  # until the newest row comes too close
        ({"terminated": [(3, 0)]}, {}, [3, 3, 2, 1, 2, 1], {0: 0.125, 1: 0.0}),  # no future
        ({"truncated": [(3, 0)]}, {}, [3, 3, 2, 1, 2, 1], {1: 0.125}),
        ({"invalid": [(3, 0)]}, {}, [3, 2, 1, 0, 2, 1], {}),
        ({}, {"capacity": 4}, [3, 3, 2, 1], {}),  # steps 2 to 5: none joins new ones to old ones
        ({"truncated": [(3, 0)]}, {"length": 1}, [1] * 6, {}),
    ],
)
def test_a_chunk_is_whole_until_an_end_or_a_seam(ends, settings, valid, discounts):
    found = chunks(story(REWARDS, **ends), **settings)
    assert lengths(found) == valid
    assert {step: found[step][2] for step in discounts} == discounts


@pytest.mark.parametrize("seed", range(4))
def test_every_chunk_is_what_the_obvious_rule_says(seed):
    generator = torch.Generator().manual_seed(seed)
    flags = torch.rand(3, 12, 2, generator=generator) < 0.15
    places = [[(int(t), int(n)) for t, n in flag.nonzero()] for flag in flags]
    told = story([[1.0, 1.0]] * 12, terminated=places[0], truncated=places[1], invalid=places[2])
    replay = told.tell(told.replay(n_step=3, chunks=True, capacity=16))  # steps 4 to 11
    batch = replay.sample(256)
    for i, index in enumerate(batch.extra["index"].tolist()):
        slot, world = divmod(index, 2)
        first = 11 - (11 - slot) % 8
        count = 0
        for step in range(first, min(first + 3, 12)):
            if not told.valid[step, world]:
                break
            count += 1
            if told.terminated[step, world] or told.truncated[step, world]:
                break
        assert batch.extra["valid"][i].tolist() == [k < count for k in range(3)]
        done = [-(10.0 * (first + k) + world) for k in range(count)]
        assert batch.extra["chunk"][i, :count, 0].tolist() == done


def test_a_chunk_is_mirrored_action_by_action():
    told = story([[1.0], [2.0]])
    replay = told.tell(told.replay(n_step=2, chunks=True))
    same, turned = SignedPermutation((0, 1), (1.0, 1.0)), SignedPermutation((0,), (-1.0,))
    mirror = EnvMirror(groups={"actor": same, "critic": same}, action=turned)
    images = MirrorImages(mirror, torch.device("cpu"))
    batch = images.beside(replay.sample(4))
    assert torch.equal(batch.extra["chunk"][1::2], -batch.extra["chunk"][::2])
    assert torch.equal(batch.extra["valid"][1::2], batch.extra["valid"][::2])
