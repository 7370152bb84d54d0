"""Shapes of reward terms, by hand."""

import torch

from sim.tasks.terms import closeness, square_sum


def test_closeness_is_one_half_at_the_half_distance_and_does_not_ask_for_the_side() -> None:
    near = closeness(torch.tensor([0.0, 0.05, 0.1, -0.1]), 0.05)
    torch.testing.assert_close(near, torch.tensor([1.0, 0.5, 0.2, 0.2]))


def test_squares_are_summed_along_the_last_axis() -> None:
    values = torch.tensor([[[1.0, -2.0], [0.0, 3.0]]])
    torch.testing.assert_close(square_sum(values), torch.tensor([[5.0, 9.0]]))
