"""Rows of a ring on disk: each save writes those that are new, each load puts all of them back."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

_SEGMENT_BYTES = 64 << 20
"""Rows are saved in pieces of about this size: each is held in memory twice while it is written."""


class Segments(Protocol):
    """Durable storage for parts of a buffer, referred to by entries of plain values."""

    def write(self, name: str, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Store tensors under a name; returns the entry to read them back with."""
        ...

    def read(self, entry: Mapping[str, Any]) -> dict[str, Tensor]:
        """Tensors of an entry."""
        ...


class SavedRows:
    """Steps of a ring that are on disk, and their files."""

    def __init__(self, name: str = "steps") -> None:
        """Nothing is on disk yet.

        Args:
            name: Begins the names of the segments.
        """
        self._name = name
        self.entries: list[dict[str, Any]] = []
        """Segment entries with `first_step` and `num_steps`, in order of time."""
        self._steps = 0

    def save(self, rows: Tensor, total_steps: int, segments: Segments) -> None:
        """Write the steps that were added since the last save, and forget those overwritten.

        Args:
            rows: The ring, (T, N, W); step s lies in slot s mod T.
        """
        num_steps = rows.shape[0]
        first = max(self._steps, total_steps - num_steps)
        count = max(1, _SEGMENT_BYTES // (rows[0].numel() * rows.element_size()))
        for start in range(first, total_steps, count):
            length = min(count, total_steps - start)
            slot = start % num_steps
            if slot + length <= num_steps:
                part = rows[slot : slot + length]  # on the CPU nothing is copied
            else:
                part = torch.cat([rows[slot:], rows[: slot + length - num_steps]])
            entry = segments.write(f"{self._name}_{start:012d}", {"rows": part.cpu()})
            self.entries.append({**entry, "first_step": start, "num_steps": length})
        oldest = total_steps - num_steps
        self.entries = [e for e in self.entries if e["first_step"] + e["num_steps"] > oldest]
        self._steps = total_steps

    def load(
        self,
        rows: Tensor,
        total_steps: int,
        entries: Sequence[Mapping[str, Any]],
        segments: Segments,
    ) -> None:
        """Put saved steps back into a ring, arguments as of `save`."""
        self.entries = [dict(entry) for entry in entries]
        self._steps = total_steps
        for step, saved in read_steps(self.entries, segments):
            rows[step % rows.shape[0]].copy_(saved)

    def forget(self) -> None:
        """Begin as if nothing had been saved."""
        self.entries, self._steps = [], 0


def read_steps(
    entries: Sequence[Mapping[str, Any]], segments: Segments
) -> Iterator[tuple[int, Tensor]]:
    """Saved steps in order of time: number of the step, rows of all envs (N, W)."""
    for entry in entries:
        rows = segments.read(entry)["rows"]
        for offset in range(rows.shape[0]):
            yield int(entry["first_step"]) + offset, rows[offset]
