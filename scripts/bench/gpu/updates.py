"""Updates of SAC on a device: captured as a graph, and kernel by kernel."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from robot_rl.core.transition import Batch
from scripts.bench.gpu.waiting import until_done
from scripts.bench.timing import Section, interleave
from scripts.bench.updates import Size, own_learner, random_batch

_UPDATES = 100
"""In one turn."""


def measure_captured(device: torch.device, batches: Sequence[int], *, rounds: int) -> Section:
    """Updates per second at each batch size in turn, either way.

    Args:
        device: Of the learner.
        batches: Transitions per update.
        rounds: Turns of each contender.
    """
    contenders: dict[str, Callable[[], float]] = {}
    notes: dict[str, Callable[[float], str]] = {}
    for batch in batches:
        for capture in (True, False):
            name = f"batch {batch}, {'captured' if capture else 'kernel by kernel'}"
            size = Size(batch=batch)
            learner: Any = own_learner(size, device=device, capture=capture)
            contenders[name] = until_done(_rate(learner, random_batch(size, device)), device)
            notes[name] = lambda _, one=learner: f"graphs replayed: {one.cuda_graphs.captures}"
    return interleave(
        f"SAC, networks 256-256, {device}", "updates/s", contenders, rounds=rounds, notes=notes
    )


def _rate(learner: Any, batch: Batch) -> Callable[[], float]:
    def measure() -> float:
        start = time.perf_counter()
        for _ in range(_UPDATES):
            learner.update(batch)
        return _UPDATES / (time.perf_counter() - start)

    return measure
