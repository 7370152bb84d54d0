"""A graph for the CPU: remembers what torch computed below autograd, and computes it again.

It shares what a CUDA graph is dangerous for: no line of Python runs again, plain values are those
of the capture, tensors are those that lay there. It refuses what a capture on a GPU refuses.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from robot_rl.core.transition import Batch
from robot_rl.learners.cuda_graphs import Replay, UpdateResult, tensors_of, with_tensors

REFUSED = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "lift_fresh", "item")
"""What waits for the device or brings numbers of the host to it."""


class TapeRecorder:
    def warm_up(self, step: Callable[[], UpdateResult]) -> UpdateResult:
        return step()

    def capture(self, step: Callable[[Batch], UpdateResult], batch: Batch) -> Replay:
        """Nothing yet: the tape is made where it is first played."""
        del batch
        return Tape(step)


class Tape(TorchDispatchMode):
    """Operations of a step, recorded when it is first played."""

    def __init__(self, step: Callable[[Batch], UpdateResult]) -> None:
        super().__init__()
        self._step: Callable[[Batch], UpdateResult] | None = step
        self._operations: list[tuple[Any, Any, Any, Any]] = []
        self._inputs: list[Tensor] = []
        self._outcome: Any = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.name().partition("::")[2].partition(".")[0]
        masked = name == "index" and any(
            isinstance(leaf, Tensor) and leaf.dtype is torch.bool for leaf in tree_leaves(args[1])
        )
        if name in REFUSED or masked:
            raise AssertionError(f"a GPU cannot capture {func}")
        found = func(*args, **(kwargs or {}))
        self._operations.append((func, args, kwargs or {}, found))
        return found

    def __call__(self, batch: Batch) -> UpdateResult:
        if self._step is not None:
            self._inputs = [tensor.detach() for tensor in tensors_of(batch)]  # each another object
            step, self._step = self._step, None
            with self:
                self._outcome = step(with_tensors(batch, self._inputs))
            return self._outcome
        return self._again(batch)

    @torch.no_grad()
    def _again(self, batch: Batch) -> UpdateResult:
        now = dict(zip(map(id, self._inputs), tensors_of(batch), strict=True))

        def present(tensor: Tensor) -> Tensor:
            return now.get(id(tensor), tensor)

        for func, args, kwargs, then in self._operations:
            found = func(*tree_map_only(Tensor, present, args),
                         **tree_map_only(Tensor, present, kwargs))  # fmt: skip
            now |= zip(map(id, tree_leaves(then)), tree_leaves(found), strict=True)
        return tree_map_only(Tensor, present, self._outcome)
