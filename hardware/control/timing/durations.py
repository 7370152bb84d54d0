"""How late a loop is, and where its time goes: percentiles over the last samples, fixed memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Latency:
    """Summary of one stage."""

    count: int
    """Samples ever seen."""
    p50: float
    """Median of those remembered [s]."""
    p99: float
    """99th percentile of those remembered [s]."""
    longest: float
    """Longest ever [s]."""


class Latencies:
    """A ring of samples for each stage of a tick."""

    def __init__(self, stages: Sequence[str], remembered: int = 5000) -> None:
        """Make room.

        Args:
            stages: Their names.
            remembered: Samples of each stage that percentiles are taken of.
        """
        self._rows = {stage: row for row, stage in enumerate(stages)}
        self._samples = np.zeros((len(stages), remembered))
        self._counts = np.zeros(len(stages), dtype=np.int64)
        self._longest = np.zeros(len(stages))

    def add(self, stage: str, seconds: float) -> None:
        """Take a sample. Real-time: allocates nothing, never blocks."""
        row = self._rows[stage]
        self._samples[row, self._counts[row] % self._samples.shape[1]] = seconds
        self._counts[row] += 1
        self._longest[row] = max(self._longest[row], seconds)

    def samples(self, stage: str) -> np.ndarray:
        """Those of a stage that are remembered, in no order [s]; a copy."""
        row = self._rows[stage]
        return self._samples[row, : min(int(self._counts[row]), self._samples.shape[1])].copy()

    def summary(self) -> dict[str, Latency]:
        """Every stage that has samples; takes a millisecond, so not within a tick."""
        found: dict[str, Latency] = {}
        for stage, row in self._rows.items():
            count = int(self._counts[row])
            if count:
                p50, p99 = np.percentile(self.samples(stage), [50, 99])
                found[stage] = Latency(count, float(p50), float(p99), float(self._longest[row]))
        return found
