"""Prioritised experience replay, proportional (Schaul et al. 2016, arXiv:1511.05952, algorithm 1).

A row is drawn with a chance proportional to (|error| + epsilon)^alpha; what is drawn too often is
weighed less: (1 / P)^beta, over the largest of the batch. The paper's sum tree has two levels here:
rows in blocks of 64, and the sums of the blocks. Draws and updates are a few operations on whole
tensors, on any device, without a loop over levels or rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError

_BLOCK_ROWS = 64
"""Rows per block: the sums of 1M rows are 16k numbers, and a draw looks at 64 rows more."""
_EPSILON = 1e-6
"""Added to every error, so that no row is lost for ever (section 3.3 of the paper)."""


@dataclass(kw_only=True)
class ReplayConfig:
    """Frequency at which transitions are drawn."""

    priority: float = 0.0
    """Exponent alpha of the error that a transition is drawn by; 0 draws all equally often. The
    paper: 0.6."""
    correction: float = 0.4
    """Exponent beta of the importance weights at the start; it grows linearly to 1 at the end of
    the run. The paper: 0.4."""

    def __post_init__(self) -> None:
        for name in ("priority", "correction"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(
                    f"training.replay.{name} must lie in [0, 1], got {getattr(self, name)}"
                )


class Priorities:
    """Chance of each of a ring's rows to be drawn. A chance of 0 is never drawn."""

    def __init__(self, capacity: int, exponent: float, device: torch.device, seed: int) -> None:
        """Begin with rows that are never drawn; the exponent is alpha, above 0."""
        blocks = -(-capacity // _BLOCK_ROWS)
        self._capacity, self._exponent = capacity, exponent
        self._chance = torch.zeros(blocks, _BLOCK_ROWS, device=device)
        self._sums = torch.zeros(blocks, dtype=torch.float64, device=device)
        self._largest = torch.ones((), device=device)  # error, epsilon included
        self._generator = torch.Generator(device=device).manual_seed(seed)

    def on_add(self, first: int, valid: Tensor) -> None:
        """New rows get the largest priority so far; invalid ones are never drawn.

        Args:
            first: Row of the first one.
            valid: (N,) bool, of the rows that follow it.
        """
        stop = first + len(valid)
        self._chance.view(-1)[first:stop] = self._largest**self._exponent * valid
        touched = slice(first // _BLOCK_ROWS, (stop - 1) // _BLOCK_ROWS + 1)
        self._sums[touched] = self._chance[touched].sum(-1, dtype=torch.float64)

    def forget(self, first: int, count: int) -> None:
        """Never draw some rows again, from the first one on."""
        self._chance.view(-1)[first : first + count] = 0.0
        touched = slice(first // _BLOCK_ROWS, (first + count - 1) // _BLOCK_ROWS + 1)
        self._sums[touched] = self._chance[touched].sum(-1, dtype=torch.float64)

    def draw(self, count: int) -> Tensor:
        """Rows by their chance, (count,): one from each of `count` equal parts of all chances."""
        unit = torch.rand(
            2, count, dtype=torch.float64, generator=self._generator, device=self._sums.device
        )
        ends = self._sums.cumsum(0)
        part = torch.arange(count, device=ends.device)
        place = (part + unit[0]) * (ends[-1] / count)
        # Never at the very end, behind which rows that are not filled yet would begin.
        place = torch.minimum(place, torch.nextafter(ends[-1], torch.zeros_like(ends[-1])))
        block = torch.searchsorted(ends, place, right=True).clamp_(max=len(ends) - 1)
        inside = self._chance[block].double().cumsum(-1)  # (count, _BLOCK_ROWS)
        place = unit[1] * inside[:, -1]
        # The first row whose end lies beyond the place: its own chance is not 0.
        row = block * _BLOCK_ROWS + (inside <= place[:, None]).sum(-1)
        return row.clamp_(max=self._capacity - 1)  # where no row can be drawn at all

    def weight(self, rows: Tensor, correction: float) -> Tensor:
        """Importance weights of drawn rows, (B,): the largest is 1, or 0 if none has a chance."""
        chance = self._chance.view(-1)[rows]
        return (chance.amin() / chance.clamp_min(1e-30)) ** correction

    def set(self, rows: Tensor, error: Tensor) -> None:
        """Give drawn rows their new errors; of a row that was drawn twice the larger counts.

        Args:
            error: (B,), of any sign. What is not finite counts as none: the loss tells of it.
        """
        error = error.detach().abs().nan_to_num(nan=0.0, posinf=0.0).float() + _EPSILON
        self._largest = torch.maximum(self._largest, error.amax())
        chance = self._chance.view(-1)
        chance[rows] = 0.0
        chance.scatter_reduce_(0, rows, error**self._exponent, "amax")
        block = rows // _BLOCK_ROWS
        self._sums[block] = self._chance[block].sum(-1, dtype=torch.float64)

    def clear(self) -> None:
        """No row is drawn any more."""
        self._chance.zero_()
        self._sums.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Chances, their sums and the stream of draws, copied."""
        return {
            "chance": self._chance.clone(),
            "sums": self._sums.clone(),
            "largest": self._largest.clone(),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._chance.copy_(state["chance"])
        self._sums.copy_(state["sums"])
        self._largest = state["largest"].to(self._largest.device)
        self._generator.set_state(state["generator"])
