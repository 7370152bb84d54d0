"""Shapes that the reward terms of many tasks take."""

from torch import Tensor


def closeness(distance: Tensor, half: float) -> Tensor:
    """1 at distance 0, one half at `half`, towards 0 far away; as of the distance's shape."""
    return 1 / (1 + (distance / half) ** 2)


def square_sum(value: Tensor) -> Tensor:
    """Sum of the squares along the last axis, (..., width) -> (...)."""
    return (value * value).sum(-1)
