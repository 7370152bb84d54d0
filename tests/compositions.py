"""Compositions for tests of what is made of them: each is composed once in a process."""

import copy
import functools
from collections.abc import Sequence

from configs.compose import Composition, compose


def composed(overrides: Sequence[str]) -> Composition:
    """What `compose` returns, as the caller's own copy."""
    return copy.deepcopy(_once(*overrides))


@functools.cache
def _once(*overrides: str) -> Composition:
    return compose(overrides)
