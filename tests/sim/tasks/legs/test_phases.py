"""Phases: bins in which robots fail are begun in more often, and none is forgotten."""

import pytest
import torch

from robot_rl.core.errors import ConfigError
from sim.tasks.legs.phases import PhaseConfig, Phases

CPU = torch.device("cpu")


def phases(*, adaptive: bool = True, starts: int = 25, repeats: bool = True, **config) -> Phases:
    """Bins of 1 s with ten frames each; the last has five."""
    return Phases(PhaseConfig(**config), starts=starts, control_dt=0.1, adaptive=adaptive,
                  device=CPU, repeats=repeats)  # fmt: skip


def test_all_bins_are_alike_at_first():
    torch.testing.assert_close(phases().chances, torch.full((3,), 1 / 3))


def test_failures_count_by_hand():
    one = phases(decay=0.5, uniform=0.3)
    frame = torch.tensor([3, 12, 14, 30])  # bins 0, 1, 1; the last one is in its second round
    one.follow(frame, torch.tensor([False, True, True, True]))
    # Half of the counts 0, 2, 1 is kept: frame 30 is frame 5 again, in bin 0.
    expected = torch.tensor([0.5 + 0.1, 1.0 + 0.1, 0.1])
    torch.testing.assert_close(one.chances, expected / expected.sum())
    one.follow(frame, torch.zeros(4, dtype=torch.bool))
    expected = torch.tensor([0.25 + 0.1, 0.5 + 0.1, 0.1])
    torch.testing.assert_close(one.chances, expected / expected.sum())


def test_a_failure_while_the_last_pose_is_held_counts_at_the_end():
    one = phases(decay=0.9, uniform=1e-6, repeats=False)
    one.follow(torch.tensor([40]), torch.tensor([True]))  # it was counted in the first bins
    torch.testing.assert_close(one.chances, torch.tensor([0.0, 0.0, 1.0]), atol=1e-5, rtol=0)


def test_starts_follow_the_chances_and_stay_within_the_motion():
    one = phases(decay=0.5, uniform=0.3)
    one.follow(torch.tensor([12, 12]), torch.ones(2, dtype=torch.bool))
    frames = one.draw(20_000, torch.Generator().manual_seed(0))
    assert (int(frames.min()), int(frames.max())) == (0, 24)
    share = torch.bincount(frames // 10, minlength=3) / 20_000
    torch.testing.assert_close(share, one.chances, atol=0.01, rtol=0)


def test_evaluation_draws_every_frame_alike_whatever_failed():
    one = phases(adaptive=False)
    one.follow(torch.tensor([12]), torch.tensor([True]))
    frames = one.draw(25_000, torch.Generator().manual_seed(0))
    assert torch.bincount(frames, minlength=25).min() > 850


def test_a_motion_shorter_than_a_bin_is_one_bin():
    one = phases(starts=4)
    assert one.chances.tolist() == [1.0]
    assert int(one.draw(500, torch.Generator().manual_seed(0)).max()) == 3


def test_counts_are_saved():
    one, other = phases(), phases()
    one.follow(torch.tensor([1]), torch.tensor([True]))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.chances, other.chances)


@pytest.mark.parametrize("bad", [{"bin": 0.0}, {"decay": 1.0}, {"uniform": 0.0}])
def test_rates_that_cannot_be_are_refused_by_name(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        PhaseConfig(**bad)
