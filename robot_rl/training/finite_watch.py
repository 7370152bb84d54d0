"""Remembers which tensors were ever NaN or infinite, without making the device wait.

Every look leaves on the device when a tensor was first not finite; `found` reads it all at once.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.transition import Batch
from robot_rl.training.storage.checkpoint import CheckpointStore

_SHOWN = 5
"""Names that a sentence tells of one look."""


class FiniteWatch:
    """The first look at which each named tensor was not finite; later ones excuse nothing."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self._looks = 0
        self._first: dict[tuple[str, ...], Tensor] = {}

    def see_batch(self, batch: Batch) -> None:
        """Look at all sampled numbers."""
        entries = {"reward": batch.reward, "action": batch.action}
        for side, groups in (("obs", batch.obs), ("next_obs", batch.next_obs)):
            entries |= {f"{side}.{name}": group for name, group in groups.items()}
        floats = {f"sampled {name}": t for name, t in entries.items() if t.is_floating_point()}
        ends = [torch.stack(t.aminmax()) for t in floats.values()]  # a NaN is both ends
        self._remember(tuple(floats), torch.stack(ends).isfinite().all(-1))

    def see_metrics(self, metrics: Mapping[str, Tensor]) -> None:
        """Look at 0-dim tensors."""
        if metrics:
            self._remember(tuple(metrics), torch.stack(list(metrics.values())).isfinite())

    def found(self) -> list[list[str]]:
        """Names that were not finite, together where one look found them, earliest first.

        Waits for the device.
        """
        first: dict[str, float] = {}
        for names, looks in self._first.items():
            for name, look in zip(names, looks.tolist(), strict=True):
                # A metric may be seen in the company of others, later.
                first[name] = min(look, first.get(name, torch.inf))
        times = sorted({look for look in first.values() if look < torch.inf})
        return [[name for name, look in first.items() if look == time] for time in times]

    def earliest(self) -> float:
        """The look that was the first to find something; infinite where none has.

        Waits for the device.
        """
        return min((float(looks.min()) for looks in self._first.values()), default=torch.inf)

    def _remember(self, names: tuple[str, ...], finite: Tensor) -> None:
        self._looks += 1
        now = torch.where(finite, torch.inf, float(self._looks))
        self._first[names] = torch.minimum(self._first[names], now) if names in self._first else now


def what_ends_a_run(
    watch: FiniteWatch, learner: Any, when: str, checkpoints: CheckpointStore, hint: str
) -> str:
    """Sentence about what was not a number; empty where everything was. Waits for the device.

    Args:
        watch: What was seen.
        learner: Looked at too, all that it keeps; None leaves it out.
        when: Such as "by step 100".
        checkpoints: Of the run, to go on from.
        hint: With what to go on.
    """
    found = watch.found()
    if learner is not None and not found:
        kept = not_finite(learner.state_dict(), "the learner")
        found = [kept] if kept else []
    if not found:
        return ""
    told = ", then ".join(
        " and ".join(names[:_SHOWN]) + f" and {len(names) - _SHOWN} more" * (len(names) > _SHOWN)
        for names in found
    )
    left = "the last checkpoint is intact: resume it"
    if not checkpoints.steps():
        left = "there is no checkpoint yet: begin anew"
    return f"{told} became NaN or infinite {when}; {left} {hint}"


def not_finite(state: Any, name: str) -> list[str]:
    """Names of the tensors in a state that hold a NaN or an infinity; waits for the device.

    Args:
        state: Tensors in mappings and sequences, as of `state_dict`.
        name: Of the whole.
    """
    tensors = list(_tensors(state, name))
    if not tensors:
        return []
    finite = torch.stack([tensor.isfinite().all() for _, tensor in tensors]).tolist()
    return [name for (name, _), good in zip(tensors, finite, strict=True) if not good]


def _tensors(state: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(state, Tensor):
        if state.is_floating_point() and state.numel():
            yield name, state
    elif isinstance(state, Mapping):
        for key, value in state.items():
            yield from _tensors(value, f"{name}.{key}")
    elif isinstance(state, list | tuple):
        for i, value in enumerate(state):
            yield from _tensors(value, f"{name}.{i}")
