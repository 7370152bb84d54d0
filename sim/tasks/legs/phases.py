"""Where in a motion episodes begin: rather where robots fail (adaptive sampling).

Liao et al. 2025, "BeyondMimic" (arXiv:2508.08241): the motion is cut into bins, failures of each
are counted with a slow decay, and a bin is drawn in proportion to its count plus a share that all
bins have.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError
from sim import draws
from sim.tasks import checks


@dataclass(kw_only=True)
class PhaseConfig:
    """How starts are drawn in training; evaluation draws them uniformly."""

    bin: float = 1.0
    """Length of a bin [s]."""
    decay: float = 0.001
    """Share of a bin's count that a control step replaces (the authors' `adaptive_alpha`)."""
    uniform: float = 0.1
    """Weight that all bins share (the authors' `adaptive_uniform_ratio`); counts are failures of a
    control step in all worlds."""

    def __post_init__(self) -> None:
        """Refuse rates that forget nothing, or bins without length."""
        checks.positive(self, "bin", "uniform", of="phases")
        if not 0 <= self.decay < 1:
            raise ConfigError(f"phases.decay must lie in [0, 1), got {self.decay}")


class Phases:
    """Draws the frames that episodes begin in."""

    def __init__(
        self, config: PhaseConfig, *, starts: int, control_dt: float, adaptive: bool,
        device: torch.device, repeats: bool = True,
    ) -> None:  # fmt: skip
        """Begin with all bins alike.

        Args:
            config: How they are drawn.
            starts: Frames to choose from.
            control_dt: Time of a frame [s].
            adaptive: Follow failures; else draw uniformly.
            device: Where the counts live.
            repeats: Frames behind those to choose from are the first ones again; else the last one
                is held.
        """
        self.config, self._adaptive = config, adaptive
        self._starts, self._repeats = starts, repeats
        self._width = min(starts, max(1, round(config.bin / control_dt)))  # frames of a bin
        self._failures = torch.zeros(-(-starts // self._width), device=device)

    @property
    def chances(self) -> Tensor:
        """Of each bin, (bins,)."""
        weight = self._failures + self.config.uniform / len(self._failures)
        return weight / weight.sum()

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Frames to begin in, (count,) int64."""
        unit = draws.uniform((2, count), 0.0, 1.0, generator)
        if not self._adaptive:
            return (unit[0] * self._starts).long().clamp(max=self._starts - 1)
        bins = torch.searchsorted(self.chances.cumsum(0), unit[0].contiguous())
        bins = bins.clamp(max=len(self._failures) - 1)
        frame = bins * self._width + (unit[1] * self._width).long()
        return frame.clamp(max=self._starts - 1)  # the last bin may be shorter

    def follow(self, frame: Tensor, failed: Tensor) -> None:
        """Count the failures of a step.

        Args:
            frame: Where every world's motion is, (N,) int64.
            failed: (N,) bool.
        """
        if not self._adaptive:
            return
        now = torch.zeros_like(self._failures)
        at = frame % self._starts if self._repeats else frame.clamp(max=self._starts - 1)
        now.index_add_(0, at // self._width, failed.float())
        self._failures.lerp_(now, self.config.decay)

    def state_dict(self) -> dict[str, Any]:
        """Counts."""
        return {"failures": self._failures.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._failures.copy_(state["failures"])
