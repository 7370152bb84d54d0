"""Equality of whole states, steps and observations, to the bit or nearly."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor


def assert_same(got: Any, expected: Any, within: float = 0.0) -> None:
    """Bit-equal, or within a difference, NaN in the same places, all the way down."""
    if isinstance(expected, Tensor):
        torch.testing.assert_close(got, expected, rtol=within, atol=within, equal_nan=True)
    elif isinstance(expected, Mapping):
        assert sorted(got) == sorted(expected)
        for key, value in expected.items():
            assert_same(got[key], value, within)
    elif isinstance(expected, (list, tuple)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other, within)
    elif is_dataclass(expected):
        for field in fields(expected):
            assert_same(getattr(got, field.name), getattr(expected, field.name), within)
    else:
        assert got == expected


def same(one: Any, other: Any) -> bool:
    """True if two states are bit-equal."""
    try:
        assert_same(one, other)
    except AssertionError:
        return False
    return True


def tensors(state: Any, path: str = "") -> dict[str, Tensor]:
    """Every tensor of a state by its path."""
    if isinstance(state, Tensor):
        return {path: state}
    if isinstance(state, list | tuple):
        state = dict(enumerate(state))
    parts = state.items() if isinstance(state, Mapping) else ()
    return {k: v for name, part in parts for k, v in tensors(part, f"{path}/{name}").items()}
