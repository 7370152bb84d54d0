"""Exploration noise that is held for a while: a push in one direction reaches further than jitter.

Normals are held for k steps with P(k) proportional to k^-exponent, up to a longest k (FlashSAC,
arXiv:2604.04539; after the zeta distribution of ez-greedy, Dabney et al. 2021, arXiv:2006.01782).
Each world has its own count and draws anew where an episode starts; the authors' code has one count
for all worlds, which then all turn in the same step.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


class RepeatedNoise:
    """Standard normals for N worlds, each held for its own number of steps."""

    def __init__(
        self, action_size: int, *, exponent: float, longest: int, device: torch.device, seed: int
    ) -> None:
        """Hold nothing yet; N is known with the first draw.

        Args:
            action_size: A.
            exponent: Of the power law.
            longest: Largest number of steps; 1 draws anew in every step.
            device: Where the noise lives.
            seed: Of everything that is drawn here.
        """
        weight = torch.arange(1, longest + 1, dtype=torch.float64, device=device) ** -exponent
        # Of a uniform number, the count of bounds below it is k - 1.
        self._bounds = (weight.cumsum(0) / weight.sum())[:-1].float()
        self._generator = torch.Generator(device=device).manual_seed(seed)
        self._noise = torch.zeros(0, action_size, device=device)
        self._left = torch.zeros(0, dtype=torch.int64, device=device)

    def begin(self, mask: Tensor) -> None:
        """Draw anew in the worlds, (N,) bool, where an episode starts."""
        if mask.shape == self._left.shape:
            self._left *= ~mask

    def draw(self, count: int) -> Tensor:
        """Noise of this step, (N, A)."""
        device, size = self._noise.device, self._noise.shape[1]
        if count != self._left.shape[0]:
            self._noise = torch.zeros(count, size, device=device)
            self._left = torch.zeros(count, dtype=torch.int64, device=device)
        # Drawn for all worlds and used where it is time: nothing waits for the device.
        fresh = torch.randn(count, size, generator=self._generator, device=device)
        chance = torch.rand(count, generator=self._generator, device=device)
        over = self._left == 0
        steps = torch.bucketize(chance, self._bounds) + 1
        self._noise = torch.where(over[:, None], fresh, self._noise)
        self._left = torch.where(over, steps, self._left) - 1
        return self._noise

    def state_dict(self) -> dict[str, Any]:
        """Noise, steps left and RNG."""
        return {
            "noise": self._noise.clone(),
            "left": self._left.clone(),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._noise = state["noise"].to(self._noise.device, copy=True)
        self._left = state["left"].to(self._left.device, copy=True)
        self._generator.set_state(state["generator"])
