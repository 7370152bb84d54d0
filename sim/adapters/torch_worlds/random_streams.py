"""The process's global random generators, as one environment sees them.

mjlab and Isaac Lab draw from torch's, NumPy's and Python's global generators and seed them on
reset. Left alone, an evaluation would seed training anew, the same way every time.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


class RandomStreams:
    """Global generators of an environment's own: put in place while it works, taken out after."""

    def __init__(self, device: torch.device) -> None:
        """Begin with the generators as they are.

        Args:
            device: Whose generator of torch is used beside the CPU's.
        """
        self._cuda = device if device.type == "cuda" else None
        self._own = self._read()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """While this lasts, the global generators are the environment's."""
        outside = self._read()
        self._write(self._own)
        try:
            yield
        finally:
            self._own = self._read()
            self._write(outside)

    def _read(self) -> tuple[Any, ...]:
        cuda = None if self._cuda is None else torch.cuda.get_rng_state(self._cuda)
        return torch.get_rng_state(), cuda, np.random.get_state(), random.getstate()

    def _write(self, states: tuple[Any, ...]) -> None:
        cpu, cuda, numpy, python = states
        torch.set_rng_state(cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state(cuda, self._cuda)
        np.random.set_state(numpy)
        random.setstate(python)
