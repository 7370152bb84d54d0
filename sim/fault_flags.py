"""Sticky device flags for numbers that are not finite: set without waiting, read when asked."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from robot_rl.core.env_selection import counting_is_free
from robot_rl.core.errors import NonFiniteError


class FaultFlags:
    """Remembers which worlds and which columns of actions, observations and rewards went bad."""

    def __init__(self, num_worlds: int, device: torch.device) -> None:
        """Start clean for N worlds."""
        self._worlds = torch.zeros(num_worlds, dtype=torch.bool, device=device)
        self.everyone = ~self._worlds
        """(N,) all true: what `watch` returns, this very tensor, where it found nothing at once."""
        self._columns: dict[str, Tensor] = {}

    def watch(
        self, values: Mapping[str, Tensor], excused: Tensor, joined: Sequence[Tensor] = ()
    ) -> Tensor:
        """Look at one step of all worlds.

        Args:
            values: What must be finite, by name, each (N, width).
            excused: (N,) bool, worlds whose fault the engine has already reported.
            joined: The same numbers in fewer tensors, of any shape, where they lie in one memory.

        Returns:
            (N,) bool: true where everything is finite and nothing was reported.
        """
        # A sum is finite if and only if its parts are, short of overflow.
        asking_is_free = counting_is_free(self._worlds)
        parts = joined or values.values()
        if asking_is_free and all(math.isfinite(part.sum()) for part in parts):
            return ~excused if excused.any() else self.everyone  # most steps end here
        finite = torch.stack([part.sum(dim=-1) for part in values.values()]).isfinite().all(dim=0)
        self._worlds |= ~(finite | excused)
        for name, part in values.items():
            counted = torch.where(excused[:, None], 0.0, part)
            if name not in self._columns:
                self._columns[name] = torch.zeros_like(part[0], dtype=torch.bool)
            self._columns[name] |= ~counted.isfinite().all(dim=0)
        return finite & ~excused

    def check(self, names: Mapping[str, Sequence[str]]) -> None:
        """Read the flags; waits for the device.

        Args:
            names: Name of every column of every watched tensor.

        Raises:
            NonFiniteError: Names worlds and columns; the flags are cleared.
        """
        if not bool(self._worlds.any()):
            return
        worlds = self._worlds.nonzero()[:, 0].tolist()
        bad = [
            f"{name} term '{names[name][i]}'"
            for name, flags in self._columns.items()
            for i in flags.nonzero()[:, 0].tolist()
        ]
        self._worlds.zero_()
        for flags in self._columns.values():
            flags.zero_()
        shown = ", ".join(map(str, worlds[:5])) + (", ..." if len(worlds) > 5 else "")
        raise NonFiniteError(
            f"{' and '.join(dict.fromkeys(bad)) or 'a value'} was NaN or infinite in "
            f"{len(worlds)} env(s) ({shown}); expected finite numbers: look at the term's "
            "formula for this robot's states"
        )
