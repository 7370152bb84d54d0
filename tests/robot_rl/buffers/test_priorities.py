"""Prioritised replay: chances by hand, weights that undo them, and what must never be drawn."""

import pytest
import torch

from robot_rl.buffers.priorities import Priorities, ReplayConfig
from robot_rl.core.errors import ConfigError
from tests.fakes import CPU, copied
from tests.robot_rl.buffers.story import by_place, expected, story

CONFIG = ReplayConfig(priority=0.5, correction=0.4)
TWELVE = story([[float(t), -float(t)] for t in range(12)], terminated=[(3, 0)], truncated=[(6, 1)])


def priorities(count: int, exponent: float = 1.0, seed: int = 0) -> Priorities:
    made = Priorities(count, exponent, CPU, seed)
    made.on_add(0, torch.ones(count, dtype=torch.bool))
    return made


def frequencies(drawn: torch.Tensor, count: int) -> torch.Tensor:
    return torch.bincount(drawn, minlength=count) / len(drawn)


@pytest.mark.parametrize(("exponent", "count"), [(1.0, 5), (0.5, 1000)])
def test_rows_are_drawn_in_proportion_to_the_power_of_their_error(exponent, count):
    made = priorities(count, exponent)
    error = torch.rand(count, generator=torch.Generator().manual_seed(1)) + 0.01
    made.set(torch.arange(count), -error)  # of any sign
    chance = error**exponent / (error**exponent).sum()
    drawn = 100_000
    found = frequencies(made.draw(drawn), count)
    assert ((found - chance).abs() < 4.5 * (chance / drawn).sqrt()).all()


def test_each_of_equal_parts_of_the_whole_is_drawn_from_once():
    assert priorities(128).draw(2).div(64, rounding_mode="floor").tolist() == [0, 1]


@pytest.mark.slow
def test_new_rows_get_the_largest_error_that_was_ever_told():
    made = Priorities(4, 1.0, CPU, seed=0)
    two = torch.ones(2, dtype=torch.bool)
    made.on_add(0, two)
    made.set(torch.tensor([0, 1]), torch.tensor([6.0, 2.0]))
    made.set(torch.tensor([0]), torch.tensor([1.0]))  # 6 is forgotten by the row only
    made.on_add(2, two)
    found = frequencies(made.draw(150_000), 4)
    assert found.tolist() == pytest.approx([1 / 15, 2 / 15, 6 / 15, 6 / 15], abs=2e-3)


def test_of_a_row_that_was_drawn_twice_the_larger_error_counts():
    made = priorities(2)
    made.set(torch.tensor([0, 1, 0]), torch.tensor([3.0, 1.0, 2.0]))
    assert frequencies(made.draw(40_000), 2).tolist() == pytest.approx([0.75, 0.25], abs=1e-3)
    made.set(torch.tensor([1, 0, 1]), torch.tensor([1.0, 1.0, 0.5]))  # smaller than before, too
    assert frequencies(made.draw(40_000), 2).tolist() == pytest.approx([0.5, 0.5], abs=1e-3)


def test_invalid_rows_and_rows_not_yet_filled_are_never_drawn():
    made = Priorities(1000, 0.6, CPU, seed=3)
    valid = torch.rand(300, generator=torch.Generator().manual_seed(0)) > 0.5
    made.on_add(0, valid)
    drawn = made.draw(100_000)
    assert valid[drawn].all()  # an index beyond 300 would raise
    assert len(drawn.unique()) == int(valid.sum())


def test_where_all_rows_are_invalid_nothing_is_learned():
    told = story([[1.0, 2.0]] * 3, invalid=[(t, n) for t in range(3) for n in (0, 1)])
    batch = told.tell(told.replay(config=CONFIG)).sample(50)
    assert (batch.weight == 0).all()
    assert batch.extra["index"].max() < 6


def test_importance_weights_undo_the_chances_when_fully_corrected():
    made = priorities(4)
    made.set(torch.arange(4), torch.tensor([1.0, 2.0, 4.0, 8.0]))
    drawn = torch.tensor([1, 2, 3, 2])
    assert made.weight(drawn, 1.0).tolist() == pytest.approx([1, 1 / 2, 1 / 4, 1 / 2])
    assert made.weight(drawn, 0.5).tolist() == pytest.approx([1, 2**-0.5, 1 / 2, 2**-0.5])
    assert made.weight(drawn, 0.0).tolist() == [1.0] * 4
    # Weighed means over draws are plain means over rows: of the row's number, 1.5.
    drawn = made.draw(100_000)
    weight = made.weight(drawn, 1.0)
    assert float((weight * drawn).sum() / weight.sum()) == pytest.approx(1.5, abs=0.01)


def test_an_error_that_is_no_number_does_not_poison_the_draws():
    made = priorities(3)
    made.set(torch.arange(3), torch.tensor([torch.nan, 1.0, torch.inf]))
    assert frequencies(made.draw(3_000), 3).tolist() == pytest.approx([0, 1, 0], abs=1e-3)


@pytest.mark.slow
def test_sums_do_not_drift_over_many_updates():
    made, generator = priorities(777), torch.Generator().manual_seed(0)
    for _ in range(1000):
        made.set(made.draw(32), 1e3 * torch.rand(32, generator=generator))
    state = made.state_dict()
    assert torch.equal(state["sums"], state["chance"].sum(-1, dtype=torch.float64))


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("capacity", [8, 24], ids=["wrapped", "not yet full"])
def test_transitions_drawn_by_priority_are_those_of_the_uniform_ring(n_step, capacity):
    told = story([[float(t), -float(t)] for t in range(9)], terminated=[(6, 0)], invalid=[(7, 1)])
    replay = told.tell(told.replay(capacity=capacity, n_step=n_step, config=CONFIG))
    found = by_place(replay, told)
    oldest = max(0, 9 - capacity // 2)
    assert set(found) == {(t, n) for t in range(oldest, 9) for n in (0, 1)} - {(7, 1)}
    for (step, world), row in found.items():
        assert row == pytest.approx(expected(told, step, world, n_step, newest=8))


def test_what_was_wrong_is_drawn_more_often_and_weighs_less():
    replay = TWELVE.tell(TWELVE.replay(config=CONFIG))
    index = torch.arange(24)
    replay.set_priorities(index, torch.where(index == 5, 99.0, 1.0))
    batch = replay.sample(3200, progress=1.0)
    often = batch.extra["index"] == 5
    assert float(often.float().mean()) == pytest.approx(99**0.5 / (99**0.5 + 23), abs=0.01)
    assert torch.allclose(batch.weight, torch.where(often, 99**-0.5, 1.0))
    # beta grows from its first value to 1
    for progress, beta in ((0.0, 0.4), (0.5, 0.7)):
        weight = replay.sample(320, progress=progress).weight
        assert float(weight.min()) == pytest.approx(99 ** (-0.5 * beta), rel=1e-5)


def test_a_ring_that_starts_empty_draws_what_comes_then():
    replay = TWELVE.tell(TWELVE.replay(config=CONFIG))
    other = TWELVE.tell(TWELVE.replay(config=CONFIG))
    other.load_state_dict(copied(replay.state_dict(None)), None)
    TWELVE.tell(other, stop=2)
    assert set(other.sample(200).extra["index"].tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("wrong", [{"priority": -0.1}, {"correction": 2.0}])
def test_exponents_outside_their_range_are_refused(wrong):
    with pytest.raises(ConfigError, match=rf"replay.{next(iter(wrong))} must lie in \[0, 1\]"):
        ReplayConfig(**wrong)
