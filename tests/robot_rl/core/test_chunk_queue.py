"""Chunks of actions: which one is done when, by hand, in numpy and in torch."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from robot_rl.core.episodic import ChunkQueue
from robot_rl.core.errors import ShapeError


def chunk(kind: str, *rows: list[float]) -> Any:
    """(N, H, 1)."""
    values = np.array(rows, np.float32)[..., None]
    return torch.from_numpy(values) if kind == "torch" else values


def mask(kind: str, *rows: bool) -> Any:
    return torch.tensor(rows) if kind == "torch" else np.array(rows)


@pytest.fixture(params=["numpy", "torch"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def done(queue: ChunkQueue) -> list[float]:
    return [float(value) for value in queue.take()[:, 0]]


def test_so_many_actions_of_a_chunk_are_done_before_the_next_is_due(kind: str) -> None:
    queue = ChunkQueue(chunk(kind, [0.0], [0.0])[:, 0], 3, 2)
    assert queue.due.all()
    queue.put(chunk(kind, [0.1, 0.2, 0.3], [1.1, 1.2, 1.3]))
    assert done(queue) == pytest.approx([0.1, 1.1])
    assert not queue.due.any()
    assert done(queue) == pytest.approx([0.2, 1.2])
    assert queue.due.all()  # the third is never done


def test_a_world_that_starts_anew_forgets_its_plan_and_the_others_keep_theirs(kind: str) -> None:
    queue = ChunkQueue(chunk(kind, [0.0], [0.0])[:, 0], 3, 3)
    queue.put(chunk(kind, [0.1, 0.2, 0.3], [1.1, 1.2, 1.3]))
    done(queue)
    queue.reset(mask(kind, True, False))
    assert queue.due.tolist() == [True, False]
    queue.put(chunk(kind, [0.7, 0.8, 0.9], [5.0, 5.0, 5.0]))
    assert done(queue) == pytest.approx([0.7, 1.2])


def test_an_ensemble_weighs_older_plans_more_by_hand(kind: str) -> None:
    queue = ChunkQueue(chunk(kind, [0.0])[:, 0], 3, 1, decay=0.5)
    first, second, third = [1.0, 2.0, 3.0], [10.0, 20.0, 30.0], [100.0, 200.0, 300.0]
    queue.put(chunk(kind, first))
    assert done(queue) == pytest.approx([1.0])
    queue.put(chunk(kind, second))
    w = math.exp(-0.5)
    assert done(queue) == pytest.approx([(2.0 + w * 10.0) / (1 + w)])
    queue.put(chunk(kind, third))
    w2 = math.exp(-1.0)
    assert done(queue) == pytest.approx([(3.0 + w * 20.0 + w2 * 100.0) / (1 + w + w2)])
    queue.put(chunk(kind, [0.0, 0.0, 0.0]))  # the first has run out: the second is the oldest
    assert done(queue) == pytest.approx([(30.0 + w * 200.0) / (1 + w + w2)])


def test_an_ensemble_forgets_at_the_start_of_an_episode(kind: str) -> None:
    queue = ChunkQueue(chunk(kind, [0.0])[:, 0], 3, 1, decay=0.5)
    queue.put(chunk(kind, [9.0, 9.0, 9.0]))
    queue.reset(mask(kind, True))
    queue.put(chunk(kind, [1.0, 2.0, 3.0]))
    assert done(queue) == pytest.approx([1.0])


def test_what_cannot_be_done_is_refused(kind: str) -> None:
    zeros = chunk(kind, [0.0])[:, 0]
    with pytest.raises(ShapeError, match="chunk of 3 actions cannot be replanned after 4"):
        ChunkQueue(zeros, 3, 4)
    with pytest.raises(ShapeError, match="replans after 1 action, got 2"):
        ChunkQueue(zeros, 3, 2, decay=0.1)
    with pytest.raises(ShapeError, match=r"expected shape \(1, 3, 1\)"):
        ChunkQueue(zeros, 3, 2).put(chunk(kind, [1.0, 2.0]))
