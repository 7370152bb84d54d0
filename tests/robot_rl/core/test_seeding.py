"""Streams of one run are unrelated."""

import torch

from robot_rl.core.seeding import derive_seed


def test_equal_arguments_give_equal_seeds_in_the_range_of_a_generator():
    assert derive_seed(3, "episodes") == derive_seed(3, "episodes")
    for seed in range(100):
        assert 0 <= derive_seed(seed, "episodes") < 2**63
        torch.Generator().manual_seed(derive_seed(seed, "episodes"))


def test_purposes_and_neighbouring_seeds_share_no_stream():
    purposes = ("episodes", "sensor noise", "replay", "random actions")
    drawn = {derive_seed(seed, purpose) for seed in range(50) for purpose in purposes}
    assert len(drawn) == 50 * len(purposes)
