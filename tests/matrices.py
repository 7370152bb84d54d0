"""Matrices of which a few cases run by default and all under `--full`."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def some(default: Iterable[Any], rest: Iterable[Any]) -> list[Any]:
    """Values of a parametrised test: `default` always, `rest` under the marker `full`."""
    marked = (
        pytest.param(*value.values, id=value.id, marks=(*value.marks, pytest.mark.full))
        if isinstance(value, type(pytest.param(0)))
        else pytest.param(*value, marks=pytest.mark.full)
        if isinstance(value, tuple)
        else pytest.param(value, marks=pytest.mark.full)
        for value in rest
    )
    return [*default, *marked]


def split(values: Iterable[Any], default: Collection[Any]) -> list[Any]:
    """All values of a parametrised test: those of `default` always, the others as of `some`."""
    values = list(values)
    return some([v for v in values if v in default], [v for v in values if v not in default])
