"""Arrays of N envs, and the envs of them that a mask selects, without stalling an accelerator.

An episode ends in a few of thousands of envs. Where counting the selected ones is free (numpy,
torch on the CPU) only they are computed; on an accelerator, where counting would make the host
wait, every env is computed and the mask decides which are kept. Callers write one story for both.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

Array: TypeAlias = Any
"""A numpy array or a torch tensor, float32 unless said otherwise.

Functions that take one compute through `array_api_compat`, allocate on the array's own device and
return the type they were given. The array standard has no static type that both satisfy, hence Any.
"""


def counting_is_free(array: Array) -> bool:
    """True if the host can read an array without waiting: not on an accelerator."""
    return not is_torch_array(array) or array.device.type == "cpu"


class EnvSelection:
    """The envs whose mask is set; made once a step and handed to everything that resets."""

    def __init__(self, mask: Array) -> None:
        self.mask = mask
        self._ids: Array | None = None
        if not is_torch_array(mask):
            self._ids = mask.nonzero()[0]  # numpy answers with a tuple of axes
        elif counting_is_free(mask):
            self._ids = mask.nonzero()[:, 0]

    @property
    def count(self) -> int:
        """Rows that `take` returns and `put` expects: all N on an accelerator."""
        return int(self.mask.shape[0]) if self._ids is None else int(self._ids.shape[0])

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """Numbers of the picked rows, ascending, (count,); not on an accelerator."""
        return np.asarray(self._ids)

    def take(self, source: Array) -> Array:
        """Picked rows of `source` (N, ...), as (count, ...)."""
        return source if self._ids is None else source[self._ids]

    def put(self, target: Array, values: Array | float) -> None:
        """Overwrite the picked rows of `target` (N, ...) with `values` (count, ...) or a scalar."""
        if self._ids is not None:
            if not is_torch_array(target):
                target[self._ids] = values
            elif isinstance(values, (int, float)):
                target.index_fill_(0, self._ids, values)  # makes no tensor of it
            else:  # for so few numbers torch takes several times as long
                target.numpy()[self.ids] = values.numpy()
            return
        mask = self.mask.reshape(-1, *([1] * (target.ndim - 1)))
        if isinstance(values, (int, float)):
            target.masked_fill_(mask, values)
        else:
            target.copy_(values.where(mask, target))


class SelectedRows(Mapping[str, Array]):
    """Picked rows of arrays with names; only those that are asked for are taken."""

    def __init__(self, rows: EnvSelection, source: Mapping[str, Array]) -> None:
        self._rows, self._source = rows, source

    def __getitem__(self, name: str) -> Array:
        return self._rows.take(self._source[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._source)

    def __len__(self) -> int:
        return len(self._source)
