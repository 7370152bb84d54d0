"""Updates of learners on a device: captured as a graph, and kernel by kernel."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from configs.compose import compose
from robot_rl.cli.components import make_learner
from robot_rl.core.transition import Batch
from robot_rl.learners.optimization import Precision
from scripts.bench.gpu.waiting import until_done
from scripts.bench.timing import Section, interleave
from scripts.bench.updates import Size, env_spec, own_learner, random_batch

_UPDATES = 100
"""In one turn."""
_PRESETS = ("fast_sac", "flash_sac")
"""Of `configs/learner/`, measured with their own networks and batches."""
_OBS, _ACTIONS = 131, 12
"""Widths of the Go2's observation and action."""


def measure_captured(device: torch.device, batches: Sequence[int], *, rounds: int) -> Section:
    """Updates per second of SAC at each batch size in turn, either way.

    Args:
        device: Of the learner.
        batches: Transitions per update.
        rounds: Turns of each contender.
    """
    learners: dict[str, tuple[Any, Size]] = {}
    for batch in batches:
        for capture in (True, False):
            size = Size(batch=batch)
            learner = own_learner(size, device=device, capture=capture)
            learners[f"batch {batch}, {_way(capture)}"] = learner, size
    return _measure(f"SAC, networks 256-256, {device}", learners, device, rounds)


def measure_presets(
    device: torch.device, *, rounds: int, batch: int | None = None
) -> Iterator[Section]:
    """Updates per second of presets for thousands of envs, either way and in either precision.

    Args:
        device: Of the learner.
        rounds: Turns of each contender.
        batch: Transitions per update; None takes the preset's.
    """
    for preset in _PRESETS:
        learners: dict[str, tuple[Any, Size]] = {}
        for precision in Precision:
            for capture in (True, False):
                learner, size = _preset(preset, precision, capture, device, batch)
                learners[f"{precision.value}, {_way(capture)}"] = learner, size
        size = next(iter(learners.values()))[1]
        yield _measure(f"{preset}, batch {size.batch}, {device}", learners, device, rounds)


def _way(capture: bool) -> str:
    return "captured" if capture else "kernel by kernel"


def _preset(
    name: str, precision: Precision, capture: bool, device: torch.device, batch: int | None
) -> tuple[Any, Size]:
    """A learner as its preset sets it, and the size of its batches."""
    overrides = [
        "env=gymnasium", f"learner={name}", f"learner.precision={precision.value}",
        f"learner.capture={str(capture).lower()}",
    ]  # fmt: skip
    if batch is not None:
        overrides.append(f"learner.batch_size={batch}")
    config = compose(overrides).config
    size = Size(batch=config.learner.batch_size, obs=_OBS, action=_ACTIONS)
    return make_learner(config, env_spec(size, device)), size


def _measure(
    title: str, learners: dict[str, tuple[Any, Size]], device: torch.device, rounds: int
) -> Section:
    contenders: dict[str, Callable[[], float]] = {}
    notes: dict[str, Callable[[float], str]] = {}
    for name, (learner, size) in learners.items():
        contenders[name] = until_done(_rate(learner, random_batch(size, device)), device)
        notes[name] = lambda _, one=learner: f"graphs replayed: {one.cuda_graphs.captures}"
    return interleave(title, "updates/s", contenders, rounds=rounds, notes=notes)


def _rate(learner: Any, batch: Batch) -> Callable[[], float]:
    def measure() -> float:
        start = time.perf_counter()
        for _ in range(_UPDATES):
            learner.update(batch)
        return _UPDATES / (time.perf_counter() - start)

    return measure
