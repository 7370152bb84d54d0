"""Growth with size: memory and time of replays, envs and learning curves, ten times as large.

What costs the same per row, env or line at every size grows linearly; a table that climbs to its
right does not.
"""

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.training.reporting.curves import plot_run
from robot_rl.training.storage.segments import SegmentStore
from scripts.bench.replay_sampling import filled_replay
from scripts.bench.tasks import task_env

MOST = 1.5
"""Largest growth of the cost of one row, env or line, from the smallest size to the largest."""
_BATCH = 256
_SAMPLES = 200


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Cost of one of many, by how many there are."""

    name: str
    """Cost and its unit."""
    costs: dict[int, float]
    """By size, the smallest first."""
    judged: bool = True
    """False for what may grow: a sample of a larger ring misses the processor's caches."""

    def line(self) -> str:
        """The costs and the verdict."""
        told = "  ".join(f"{size:,}: {cost:.3g}" for size, cost in self.costs.items())
        first, *_, last = self.costs.values()
        if first <= 0:  # memory that the process had already
            return f"{self.name}\n  {told}\n  the smallest is too small to be measured"
        verdict = "reached" if last <= MOST * first else "missed"
        bar = f", bar {MOST:g}: {verdict}" if self.judged else ""
        return f"{self.name}\n  {told}\n  largest / smallest: {last / first:.2f}{bar}"

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure_growth(*, quick: bool = False) -> Iterator[Growth]:
    """Costs of replays, envs and learning curves, one after the other.

    Args:
        quick: Tiny sizes.
    """
    rows = (2_000, 20_000) if quick else (100_000, 1_000_000, 10_000_000)
    yield from _replays(rows)
    yield from _envs((16, 64) if quick else (64, 512, 4096), 5 if quick else 200)
    yield _curves((100, 1_000) if quick else (1_000, 10_000, 100_000))


def _replays(sizes: Sequence[int]) -> Iterator[Growth]:
    names = ("memory of a replay, bytes a row", "the same by the process, bytes a row",
             "filling it, us a row", f"a sample of {_BATCH}, ms",
             "writing it to the disk, us a row", "reading it back, us a row")  # fmt: skip
    found: dict[str, dict[int, float]] = {name: {} for name in names}
    for size in sizes:
        for name, cost in zip(names, _replay(size), strict=True):
            found[name][size] = cost
    for name in names:
        yield Growth(name=name, costs=found[name], judged="sample" not in name)


def _replay(size: int) -> tuple[float, ...]:
    before, begin = _resident(), time.perf_counter()
    replay = filled_replay(size)
    filled = time.perf_counter() - begin
    grown = _resident() - before
    sampled = _seconds(lambda: replay.sample(_BATCH), _SAMPLES)
    with TemporaryDirectory() as folder:
        store = SegmentStore(Path(folder))
        begin = time.perf_counter()
        state = replay.state_dict(store)
        written = time.perf_counter() - begin
        begin = time.perf_counter()
        replay.load_state_dict(state, store)
        read = time.perf_counter() - begin
    held = _exact_bytes(replay) / size
    return (held, grown / size, 1e6 * filled / size, 1e3 * sampled, 1e6 * written / size,
            1e6 * read / size)  # fmt: skip


def _exact_bytes(replay: ReplayBuffer) -> int:
    state = replay.state_dict(None)
    return replay.num_bytes + state["stamps"].numel() * state["stamps"].element_size()


def _envs(sizes: Sequence[int], steps: int) -> Iterator[Growth]:
    memory: dict[int, float] = {}
    speed: dict[int, float] = {}
    task_env(["task=hover"], sizes[0]).close()  # what comes once: libraries, compiled kernels
    for size in sizes:
        before = _resident()
        env = task_env(["task=hover"], size)
        action = torch.zeros(size, env.spec.action_size)
        env.step(action)
        memory[size] = (_resident() - before) / size / 1024
        speed[size] = 1e6 * _seconds(lambda env=env, a=action: env.step(a), steps) / size
        env.close()
    yield Growth(name="memory of hover, KiB an env", costs=memory, judged=False)
    yield Growth(name="a step of hover, us an env", costs=speed)


def _curves(sizes: Sequence[int]) -> Growth:
    costs: dict[int, float] = {}
    with TemporaryDirectory() as folder:
        for size in sizes:
            records = [
                {"step": 1000 * i, "seconds": float(i), "rollout/return": float(i % 7),
                 "train/critic_loss": 1.0 / (1 + i)}
                for i in range(size)
            ]  # fmt: skip
            path = Path(folder) / "curve.png"
            costs[size] = _seconds(lambda r=records, p=path: plot_run(r, p, title="growth"), 1)
    return Growth(
        name="a learning curve, ms a line",
        costs={size: 1e3 * cost / size for size, cost in costs.items()},
    )


def _seconds(call: Callable[[], object], times: int) -> float:
    """Wall time of a call, after one that does not count [s]."""
    call()
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begin) / times


def _resident() -> int:
    """Memory that the process holds now [bytes]."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
