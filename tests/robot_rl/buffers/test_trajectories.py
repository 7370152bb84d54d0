"""Returns that were reached, by hand; episodes of a ring."""

from typing import Any

import pytest
import torch

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.buffers.trajectories import Trajectories
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import MonteCarloReturns
from robot_rl.training.storage.segments import SegmentStore
from tests.robot_rl.buffers.story import Story, story

RAW = MonteCarloReturns(failure_reward=0.0, online=True)
NONE = -torch.inf


def told(
    reward: list[float], *, ended: list[int], invalid: list[int] | None = None
) -> Trajectories:
    count = len(reward)
    ends = torch.zeros(count, 1, dtype=torch.bool)
    ends[ended] = True
    valid = torch.ones(count, 1, dtype=torch.bool)
    valid[invalid or []] = False
    return Trajectories.of(torch.tensor(reward)[:, None], valid, ends)


def test_returns_are_discounted_to_the_episodes_end():
    found = told([1.0, 2.0, 4.0, 8.0, 16.0], ended=[2, 4]).returns(0.5)[:, 0]
    assert found.tolist() == [1 + 1 + 1, 2 + 2, 4, 8 + 8, 16]


def test_returns_are_unknown_behind_the_newest_row_and_before_an_invalid_one():
    found = told([1.0, 1.0, 1.0, 1.0, 1.0, 1.0], ended=[0, 4], invalid=[2]).returns(0.5)[:, 0]
    assert found.tolist() == [1.0, NONE, NONE, 1.5, 1.0, NONE]


def test_worlds_do_not_mix():
    reward = torch.tensor([[1.0, 10.0], [1.0, 10.0], [1.0, 10.0]])
    ended = torch.tensor([[False, True], [True, False], [False, True]])
    found = Trajectories.of(reward, torch.ones_like(ended), ended)
    assert found.returns(1.0).tolist() == [[2.0, 10.0], [1.0, 20.0], [NONE, 10.0]]
    assert found.totals().tolist() == [[2.0, 10.0], [2.0, 20.0], [1.0, 20.0]]


@pytest.mark.parametrize("seed", range(5))
def test_doubling_equals_a_loop_over_time(seed):
    generator = torch.Generator().manual_seed(seed)
    shape = (37, 3)
    reward = torch.randn(shape, generator=generator)
    ended = torch.rand(shape, generator=generator) < 0.15
    valid = torch.rand(shape, generator=generator) > 0.05
    found = Trajectories.of(reward, valid, ended.clone()).returns(0.9)
    for n in range(3):
        after: float | None = None
        for t in reversed(range(37)):
            if not valid[t, n]:
                after = None
                assert found[t, n] == NONE
                continue
            if ended[t, n]:
                after = float(reward[t, n])
            elif after is not None:
                after = float(reward[t, n]) + 0.9 * after
            expected = NONE if after is None else after
            assert float(found[t, n]) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def buffer(spec: Any, capacity: int, wanted: MonteCarloReturns = RAW, gamma: float = 0.5) -> Any:
    return ReplayBuffer(spec, ("actor",), capacity=capacity, gamma=gamma, returns=wanted)


def returns_of(replay: ReplayBuffer) -> list[float]:
    return replay.strided_sample(len(replay)).extra["monte_carlo_return"].tolist()


def test_a_sample_has_the_return_of_its_row_also_where_the_ring_has_wrapped():
    one: Story = story([[float(t)] for t in range(10)], truncated=[(3, 0), (6, 0), (9, 0)])
    replay = buffer(one.spec, 5)
    one.tell(replay)
    assert returns_of(replay) == [5 + 3, 6, 7 + 4 + 9 / 4, 8 + 4.5, 9]
    batch = replay.sample(64)
    assert set(batch.extra["monte_carlo_return"].tolist()) <= set(returns_of(replay))


def test_failures_are_worth_failing_for_ever_and_successes_what_they_brought():
    """Cal-QL on sparse rewards: an episode without success gets r / (1 - gamma) in every step."""
    one = story([[0.0], [0.0], [0.0], [1.0], [0.0]], truncated=[(1, 0), (3, 0)])
    replay = buffer(one.spec, 5, MonteCarloReturns(failure_reward=-1.0, online=True))
    one.tell(replay)
    assert replay.monte_carlo is not None
    replay.monte_carlo.success[3] = True
    assert returns_of(replay) == [-2.0, -2.0, 0.5, 1.0, NONE]  # the last is not over yet


def test_a_label_that_comes_late_reaches_the_returns_at_once():
    one = story([[0.0], [0.0], [0.0]], truncated=[(2, 0)])
    replay = buffer(one.spec, 5, MonteCarloReturns(failure_reward=-1.0, online=True))
    one.tell(replay)
    assert returns_of(replay) == [-2.0, -2.0, -2.0]
    replay.amend(2, reward=1.0, terminated=True, truncated=False, valid=True, success=True)
    assert returns_of(replay) == [0.25, 0.5, 1.0]


def test_failing_for_ever_without_a_discount_is_refused():
    one = story([[0.0]])
    with pytest.raises(ConfigError, match=r"learner.gamma=1 is infinite"):
        buffer(one.spec, 5, MonteCarloReturns(failure_reward=-1.0, online=True), gamma=1.0)


def test_returns_follow_the_newest_weights():
    one = story([[[1.0, 10.0]], [[1.0, 10.0]]], truncated=[(1, 0)])
    one.weights = {0: [1.0, 0.0]}
    replay = buffer(one.spec, 5)
    one.tell(replay)
    assert returns_of(replay) == [1.5, 1.0]
    replay.set_reward_weights(torch.tensor([0.0, 1.0]))
    assert returns_of(replay) == [15.0, 10.0]


def test_known_returns_are_part_of_the_state(tmp_path):
    one = story([[float(t)] for t in range(8)], truncated=[(3, 0), (6, 0)])
    replay, other = buffer(one.spec, 8), buffer(one.spec, 8)
    one.tell(replay)
    first = returns_of(replay)
    segments = SegmentStore(tmp_path)
    other.load_state_dict(replay.state_dict(segments), segments)
    assert other.monte_carlo is not None
    assert other.monte_carlo.value[:, 0].tolist() == first
