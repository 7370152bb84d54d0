"""Sums in a fixed order, for laws of equal bits on a GPU."""

from collections.abc import Iterator

import pytest
import torch


class FixedOrder:
    """Laws of equal bits hold on a GPU where sums run in a fixed order."""

    @pytest.fixture(autouse=True)
    def sums_run_in_a_fixed_order(self) -> Iterator[None]:
        torch.use_deterministic_algorithms(True)
        yield
        torch.use_deterministic_algorithms(False)
