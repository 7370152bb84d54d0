"""What MuJoCo derives from masses and inertias (`mj_setConst`), for many models at once."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterable, Mapping
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import MODEL_FIELDS, Batch
from numpy.typing import NDArray


class ModelConstants:
    """Models of one kind that differ in fields of their own; no world is stepped with them.

    The threads share them, and worlds that get the constants copy rows instead of calling MuJoCo.
    """

    def __init__(self, model: mujoco.MjModel, count: int, threads: int) -> None:
        """Allocate.

        Args:
            model: What they have in common; copied.
            count: How many models are made at a time.
            threads: CPU threads; 0 for one per core.
        """
        self._batch = Batch(model, count, threads)
        numbers = {name: np.asarray(getattr(model, name, 0)) for name in MODEL_FIELDS}
        self._names = [n for n, v in numbers.items() if v.size and v.dtype.kind == "f" and v.ndim]
        self._asked: set[str] = set()
        self._differing: dict[str, NDArray[Any]] = {}

    def derive(self, fields: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """All fields of models that begin with these.

        Args:
            fields: Fields of the model by name, (count, ...) each, any count.

        Returns:
            The same, and every other field that then differs from the common model's.
        """
        model, most = self._batch.model, self._batch.nsim
        count = len(next(iter(fields.values())))
        made = dict(fields)
        for start in range(0, count, most):
            some = slice(start, min(start + most, count))
            chosen = np.arange(some.stop - start, dtype=np.int32)
            for name, values in fields.items():
                self._batch.expand(name)[chosen] = values[some]
            self._batch.set_const(chosen)
            for name, rows in self._found(fields.keys()).items():
                if name in fields:
                    continue
                if name not in made:
                    made[name] = getattr(model, name)[None, : rows.shape[1]].repeat(count, 0)
                made[name][some] = rows[chosen]
        return made

    def _found(self, asked: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Fields that have values per model, live; looked for anew when others are written."""
        if not self._asked.issuperset(asked):
            self._asked.update(asked)
            rows = {name: self._batch.expanded(name) for name in self._names}
            self._differing = {name: found for name, found in rows.items() if found is not None}
        return self._differing
