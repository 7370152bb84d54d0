"""Global random generators of an environment's own."""

import random

import numpy as np
import torch

from sim.adapters.torch_envs.env import RandomStreams


def drawn() -> tuple[float, float, float]:
    return float(torch.rand(())), float(np.random.rand()), random.random()


def test_what_is_drawn_inside_neither_changes_nor_depends_on_what_is_drawn_outside():
    streams = RandomStreams(torch.device("cpu"))
    with streams.entered():
        torch.manual_seed(3)
        np.random.seed(3)
        random.seed(3)
        expected = [drawn(), drawn()]
        torch.manual_seed(3)
        np.random.seed(3)
        random.seed(3)
    torch.manual_seed(7)
    np.random.seed(7)
    random.seed(7)
    outside = [drawn(), drawn()]
    torch.manual_seed(7)
    np.random.seed(7)
    random.seed(7)
    got = []
    for expectation in outside:
        with streams.entered():
            got.append(drawn())
        assert drawn() == expectation
    assert got == expected


def test_generators_are_given_back_when_an_environment_fails():
    streams = RandomStreams(torch.device("cpu"))
    before = torch.get_rng_state()
    try:
        with streams.entered():
            torch.manual_seed(9)
            raise RuntimeError
    except RuntimeError:
        pass
    assert torch.equal(torch.get_rng_state(), before)
