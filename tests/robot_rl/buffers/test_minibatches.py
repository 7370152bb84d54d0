"""What lies between replay and learner: one gather, or one draw after another."""

import pytest
import torch

from robot_rl.buffers.minibatches import Minibatches
from robot_rl.buffers.priorities import ReplayConfig
from robot_rl.core.errors import ConfigError
from tests.equality import assert_same
from tests.robot_rl.buffers.story import story

TOLD = story([[float(t), -float(t)] for t in range(12)], terminated=[(3, 0)])


def test_uniform_minibatches_are_the_parts_of_one_sample() -> None:
    one, other = (TOLD.tell(TOLD.replay(seed=2)) for _ in range(2))
    whole = other.sample(24)
    for i, batch in enumerate(Minibatches(one, 8).draw(3, 0.5)):
        assert_same(batch, whole.take(8 * i, 8 * i + 8))
    assert_same(one.sample(5), other.sample(5))


def test_a_minibatch_drawn_by_priority_knows_the_errors_of_the_one_before() -> None:
    replay = TOLD.tell(TOLD.replay(config=ReplayConfig(priority=1.0)))
    minibatches = Minibatches(replay, 16)
    drawn = []
    for batch in minibatches.draw(2, 1.0):
        drawn.append(batch)
        minibatches.tell(batch, torch.full((16,), 1e-9))
        replay.set_priorities(torch.tensor([7]), torch.tensor([1e6]))
    assert (drawn[1].extra["index"] == 7).all()
    assert not (drawn[0].extra["index"] == 7).all()


def test_a_learner_without_priorities_is_refused_in_words() -> None:
    replay = TOLD.tell(TOLD.replay(config=ReplayConfig(priority=0.6)))
    minibatches = Minibatches(replay, 4)
    with pytest.raises(ConfigError, match=r"training.replay.priority=0 or another learner"):
        minibatches.tell(next(minibatches.draw(1, 0.0)), None)
    uniform = Minibatches(TOLD.tell(TOLD.replay()), 4)
    uniform.tell(next(uniform.draw(1, 0.0)), None)  # nobody asks
