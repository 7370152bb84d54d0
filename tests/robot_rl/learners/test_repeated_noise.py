"""Noise that is held: for how long, in which worlds, and until when."""

import pytest
import torch
from torch import Tensor

from robot_rl.learners.flash_sac import NoiseRepeat
from tests.equality import assert_same
from tests.fakes import CPU, copied


def noise(longest: int = 16, seed: int = 0) -> NoiseRepeat:
    return NoiseRepeat(2, exponent=2.0, longest=longest, device=CPU, seed=seed)


def drawn(source: NoiseRepeat, worlds: int, steps: int) -> Tensor:
    """(T, N, A)."""
    return torch.stack([source.draw(worlds) for _ in range(steps)])


def test_holding_times_follow_the_power_law() -> None:
    values = drawn(noise(), 500, 400)
    changed = (values[1:] != values[:-1]).any(-1)  # (T - 1, N)
    turns = changed.float().cumsum(0)
    lengths = torch.cat([
        torch.bincount(turns[:, world].long())[1:-1] for world in range(500)  # whole ones only
    ])  # fmt: skip
    assert len(lengths) > 80_000
    # Sum of 1/k over sum of 1/k^2 up to 16 is 3.3807 / 1.5843. Deviation of k is 2.4: four
    # standard errors of 80,000 are 0.034; cutting episodes of 400 steps favours short ones by less.
    assert float(lengths.float().mean()) == pytest.approx(2.134, abs=0.04)
    shares = torch.bincount(lengths, minlength=17) / len(lengths)
    for k in range(1, 17):
        assert float(shares[k]) == pytest.approx(k**-2 / 1.58435, abs=0.006)
    assert float(shares[1]) == pytest.approx(0.631, abs=0.006)
    assert lengths.max() == 16


def test_noise_is_standard_normal() -> None:
    values = drawn(noise(), 2000, 50)
    assert abs(float(values.mean())) < 0.02
    assert float(values.std()) == pytest.approx(1.0, abs=0.02)


def test_worlds_turn_at_times_of_their_own() -> None:
    values = drawn(noise(), 64, 100)
    turns = (values[1:] != values[:-1]).any(-1).float().mean(-1)  # (T - 1,): share of the worlds
    # Each world turns in 1 of 2.134 steps; one count for all would give shares of 0 and 1.
    assert float(turns.min()) > 0.2
    assert float(turns.max()) < 0.8
    assert not torch.equal(values[0, 0], values[0, 1])


def test_an_episode_begins_with_noise_of_its_own_and_leaves_the_others_alone() -> None:
    source, twin = noise(seed=3), noise(seed=3)
    for _ in range(50):
        before, same = source.draw(40).clone(), twin.draw(40)
        assert torch.equal(before, same)
        starting = torch.arange(40) < 20
        source.begin(starting)
        after, plain = source.draw(40), twin.draw(40)
        assert (after[:20] != before[:20]).any(-1).all()
        assert torch.equal(after[20:], plain[20:])
        twin.load_state_dict(copied(source.state_dict()))


def test_a_longest_time_of_one_draws_anew_in_every_step() -> None:
    values = drawn(noise(longest=1), 8, 20)
    assert (values[1:] != values[:-1]).any(-1).all()


def test_a_restored_source_goes_on_bit_equal_and_seeds_differ() -> None:
    source, other = noise(), noise(seed=1)
    assert not torch.equal(source.draw(5), other.draw(5))
    other.load_state_dict(copied(source.state_dict()))
    assert_same(drawn(other, 5, 20), drawn(source, 5, 20))
