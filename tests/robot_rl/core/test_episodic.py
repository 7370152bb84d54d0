"""Chunks of actions: which one is done when, by hand, in numpy and in torch."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from configs.compose import compose
from configs.twin_builder import build_twin
from robot_rl.core.episodic import ChunkQueue, ClockSpec, GoalClock
from robot_rl.core.errors import ConfigError, ShapeError


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


def test_so_many_actions_of_a_chunk_are_done_before_the_next_is_due(kind):
    queue = ChunkQueue(chunk(kind, [0.0], [0.0])[:, 0], 3, 2)
    assert queue.due.all()
    queue.put(chunk(kind, [0.1, 0.2, 0.3], [1.1, 1.2, 1.3]))
    assert done(queue) == pytest.approx([0.1, 1.1])
    assert not queue.due.any()
    assert done(queue) == pytest.approx([0.2, 1.2])
    assert queue.due.all()  # the third is never done


def test_a_world_that_starts_anew_forgets_its_plan_and_the_others_keep_theirs(kind):
    queue = ChunkQueue(chunk(kind, [0.0], [0.0])[:, 0], 3, 3)
    queue.put(chunk(kind, [0.1, 0.2, 0.3], [1.1, 1.2, 1.3]))
    done(queue)
    queue.reset(mask(kind, True, False))
    assert queue.due.tolist() == [True, False]
    queue.put(chunk(kind, [0.7, 0.8, 0.9], [5.0, 5.0, 5.0]))
    assert done(queue) == pytest.approx([0.7, 1.2])


def test_an_ensemble_weighs_older_plans_more_by_hand(kind):
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
    queue.reset(mask(kind, True))
    queue.put(chunk(kind, first))
    assert done(queue) == pytest.approx([1.0])


def test_what_cannot_be_done_is_refused(kind):
    zeros = chunk(kind, [0.0])[:, 0]
    with pytest.raises(ShapeError, match="chunk of 3 actions cannot be replanned after 4"):
        ChunkQueue(zeros, 3, 4)
    with pytest.raises(ShapeError, match=r"expected shape \(1, 3, 1\)"):
        ChunkQueue(zeros, 3, 2).put(chunk(kind, [1.0, 2.0]))


WALKS = {"velocity_b": np.array([[0.3, 0.0, 0.0]])}
STANDS = {"velocity_b": np.zeros((1, 3))}


@pytest.mark.slow
def test_the_clock_of_a_policy_runs_as_that_of_the_twin_which_values_it():
    twin = build_twin(compose(["task=velocity", "robot=go2"]).config, seed=0)
    twin.connect()
    task = twin.task
    (name, spec), *others = task.clocks.items()
    assert (name, others) == ("clock", [])
    begun = task.state_dict()
    asked = {"goal": torch.ones(1, 3), "goals": torch.ones_like(begun["goals"])}
    task.load_state_dict(begun | asked)
    clock = GoalClock(spec, twin.control_dt)
    for step in range(60):
        np.testing.assert_allclose(clock.value(WALKS), task.goal["clock"].numpy(), atol=1e-5)
        clock.tick()
        task.advance(torch.tensor([step + 1]))


def test_who_stands_has_no_clock_and_goes_on_where_it_is():
    clock = GoalClock(ClockSpec(period=0.5, moves="velocity_b"), 0.02)
    for _ in range(7):
        clock.tick()
    assert not clock.value(STANDS).any()
    assert not clock.value({"velocity_b": np.full((1, 3), np.nan)}).any(), "nobody has asked yet"
    angle = 2 * np.pi * 7 * 0.02 / 0.5
    np.testing.assert_allclose(clock.value(WALKS), [[np.sin(angle), np.cos(angle)]])
    clock.reset()
    np.testing.assert_allclose(clock.value(WALKS), [[0.0, 1.0]], atol=1e-12)
    with pytest.raises(ConfigError, match="period must be a time > 0 s"):
        ClockSpec(period=float("nan"), moves="velocity_b")
