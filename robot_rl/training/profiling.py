"""A profile of a run: shares of its wall time, and a trace of some iterations (`profile=true`).

The methods of a trainer and of its parts are wrapped from outside for as long as it runs, so that
a run without a profile costs nothing. The time of a part is the host's, without the parts within
it. Kernels of a GPU run later than they are launched: how long they take is in the trace.
"""

import functools
import json
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function

from robot_rl.core.errors import StorageError
from robot_rl.training import trainer as trainer_module
from robot_rl.training.cloning_trainer import CloningTrainer
from robot_rl.training.storage.durable import storage_errors
from robot_rl.training.trainer import Trainer

_COLLECT = ("act", "env step", "store", "wait")
_REST = ("sample", "update", "priorities", "finite checks", "evaluate", "checkpoints", "host syncs")
_PARTS = ("collect", *_COLLECT, *_REST)
_OPTIONAL = ("wait", "priorities")
"""Parts that few runs have: no line where they were never called."""
_SYNCS = ("item", "tolist", "cpu", "__bool__", "__float__", "__int__")
"""Methods of tensors that wait for the device."""

Method = Callable[..., Any]


@dataclass
class _Frame:
    """A part that is running, and the time of other parts within it so far [s]."""

    part: str
    within: float = 0.0


class Profiler:
    """Measures one session of a trainer."""

    def __init__(self, path: Path, device: torch.device) -> None:
        """Measure nothing yet.

        Args:
            path: File of the trace.
            device: Of the learner; on CUDA kernels are in the trace, too.
        """
        self._trace = _Trace(path, device)
        self._undo, self._local, self._main = ExitStack(), threading.local(), 0
        # By part, and whether it ran beside, in another thread than the trainer's.
        self._calls = Counter[tuple[str, bool]]()
        self._seconds = defaultdict[tuple[str, bool], float](float)
        self._wall = 0.0

    @contextmanager
    def attached(self, trainer: Trainer | CloningTrainer) -> Iterator[None]:
        """Measure a trainer while the body runs it in this thread; it is as before afterwards."""
        self._main, start = threading.get_ident(), time.perf_counter()
        with self._undo:
            self._wrap_all(trainer)
            try:
                yield
            finally:
                self._trace.end(last=True)
                self._wall = time.perf_counter() - start - self._trace.seconds

    def lines(self) -> list[str]:
        """The table, and where the trace lies."""
        calls = {part: self._calls[part, False] + self._calls[part, True] for part in _PARTS}
        seconds = {part: self._seconds[part, False] + self._seconds[part, True] for part in _PARTS}
        seconds["store"] += seconds.pop("collect")  # what it does besides its parts
        calls["store"] = max(calls["store"], calls["collect"])  # either, as envs step beside or not
        beside = {part for part in seconds if self._seconds[part, True]}
        here = {part: self._seconds[part, False] for part in _PARTS}
        collect = sum(here[part] for part in ("collect", *_COLLECT))
        rows = [self._row("collect", collect, calls["store"])]
        for part, spent in seconds.items():
            if calls[part] or part not in _OPTIONAL:
                name = "  " * (part in _COLLECT) + part + " *" * (part in beside)
                rows.append(self._row(name, spent, calls[part]))
        rows.append(self._row("other", self._wall - sum(here.values()), 0))
        if beside:
            total = 1 + sum(seconds[part] - here[part] for part in beside) / max(self._wall, 1e-9)
            rows.append(f"  * in a thread beside the others: with it shares add up to {total:.0%}")
        return [
            f"profile of {self._wall:.1f} s of training, without {self._trace.seconds:.1f} s in "
            "which the trace was recorded",
            f"  {'':<24}{'share':>7}{'calls':>11}{'ms per call':>13}",
            *rows,
            *self._trace.lines,
        ]

    def _row(self, name: str, seconds: float, calls: int) -> str:
        row = f"  {name:<24}{seconds / max(self._wall, 1e-9):>7.1%}"
        return f"{row}{calls:>11,}{1e3 * seconds / calls:>13.3f}" if calls else row

    def _wrap_all(self, trainer: Any) -> None:
        """Wrap all parts; loops and collectors differ, and what one of them lacks is passed by."""
        online = isinstance(trainer, Trainer)
        self._replace(trainer, "train_step" if online else "_learn", self._iteration)
        self._time("evaluate", trainer, "_evaluate_and_save", "_finish_evaluations")
        self._time("checkpoints", trainer, "_save")
        self._time("update", trainer.learner, "update")
        self._time("finite checks", trainer._watch, "see_batch", "see_metrics")
        for name in _SYNCS:
            self._replace(torch.Tensor, name, self._sync)
        if not online:
            self._time("sample", trainer.demonstrations, "draw")
            return
        self._time("act", trainer.collector, "act")
        self._time("env step", trainer.env, "step")
        self._time("store", trainer.collector, "store")
        self._time("collect", trainer.collector, "collect")
        self._time("wait", trainer_module, "wait")  # for the thread of the envs
        self._time("wait", getattr(trainer.env, "fleet", None), "take", "wait")
        self._time("priorities", trainer.replay, "set_priorities")
        for minibatches in (trainer._minibatches, trainer.schedule.minibatches):
            self._replace(minibatches, "draw", self._draw)

    def _replace(self, owner: Any, name: str, around: Callable[[Method], Method]) -> None:
        if (inner := getattr(owner, name, None)) is None:
            return
        own = vars(owner).get(name)
        if own is None:
            self._undo.callback(delattr, owner, name)
        else:
            self._undo.callback(setattr, owner, name, own)
        setattr(owner, name, functools.wraps(inner)(around(inner)))

    def _time(self, part: str, owner: Any, *names: str) -> None:
        def around(inner: Method) -> Method:
            def timed(*args: Any, **kwargs: Any) -> Any:
                with self._span(part):
                    return inner(*args, **kwargs)

            return timed

        for name in names:
            self._replace(owner, name, around)

    def _draw(self, inner: Method) -> Method:
        """Of an iterator, the time of each item, and not what is done between them."""

        def draw(*args: Any, **kwargs: Any) -> Iterator[Any]:
            batches = inner(*args, **kwargs)
            while True:
                with self._span("sample", calls=0):
                    batch = next(batches, None)
                if batch is None:
                    return
                self._calls["sample", False] += not self._trace.recording
                yield batch

        return draw

    def _iteration(self, inner: Method) -> Method:
        def iteration() -> None:
            self._trace.begin_iteration(learns=self._calls["update", False] > 0)
            inner()

        return iteration

    def _sync(self, inner: Method) -> Method:
        """Of a host sync within a part, which is its own time, nothing; else its time."""

        def sync(*args: Any, **kwargs: Any) -> Any:
            with nullcontext() if self._stack else self._span("host syncs"):
                return inner(*args, **kwargs)

        return sync

    @contextmanager
    def _span(self, part: str, calls: int = 1) -> Iterator[None]:
        """Count the body to a part, or show it in the trace while that is recorded."""
        stack = self._stack
        if stack and stack[-1].part == part:  # of a method that calls another one of the part
            yield
            return
        if part == "evaluate":  # thousands of steps, which nobody looks for in a trace
            self._trace.end()
        recording, start = self._trace.recording, time.perf_counter()
        stack.append(_Frame(part))
        try:
            with record_function(part) if recording else nullcontext():
                yield
        finally:
            elapsed, frame = time.perf_counter() - start, stack.pop()
            if stack:
                stack[-1].within += elapsed
            if not recording:
                key = part, threading.get_ident() != self._main
                self._calls[key] += calls
                self._seconds[key] += elapsed - frame.within

    @property
    def _stack(self) -> list[_Frame]:
        """Parts that run in this thread, the innermost last."""
        return vars(self._local).setdefault("stack", [])


_ENVIRON = {"KINETO_LOG_LEVEL": "6"}
"""No probe points of the profiler on standard error."""
_CUDA_ENVIRON = {"TEARDOWN_CUPTI": "0", "DISABLE_CUPTI_LAZY_REINIT": "1"}
"""PyTorch's own remedy, in `torch/profiler/profiler.py`, where CUDA graphs are profiled twice."""


class _Trace:
    """Records an iteration, which tells the size of a trace, and then as many as fit into a file.

    It begins after `WARM_UP` iterations with updates. An evaluation cuts it off; if that leaves
    fewer than `SHORTEST` iterations, it is recorded anew.
    """

    WARM_UP, LONGEST, SHORTEST = 10, 50, 10
    BYTES = 40e6

    def __init__(self, path: Path, device: torch.device) -> None:
        self.seconds = 0.0
        """Wall time in which it was recorded and written [s]."""
        self.lines = ["trace: none, the run ended before it"]
        """Its place, where to look, and what each part launches."""
        self._path, self._on_cuda = path, device.type == "cuda"
        self._profile: profile | None = None
        self._start, self._done = 0.0, False
        self._warm, self._iterations, self._length = 0, 0, 1

    @property
    def recording(self) -> bool:
        """True while it is recorded."""
        return self._profile is not None

    def begin_iteration(self, *, learns: bool) -> None:
        """Begin or end it when it is time; to be called before each iteration."""
        if self._iterations >= self._length:
            self.end()
        if not (self.recording or self._done):
            self._warm += learns
            if self._warm > self.WARM_UP:
                self._begin()
        self._iterations += self.recording

    def _begin(self) -> None:
        for name, value in (_ENVIRON | (_CUDA_ENVIRON if self._on_cuda else {})).items():
            os.environ.setdefault(name, value)
        self._start = time.perf_counter()
        self._profile = profile(
            activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * self._on_cuda,
            experimental_config=_ExperimentalConfig(profile_all_threads=True),
        )
        self._profile.start()

    def end(self, *, last: bool = False) -> None:
        """End it where it is recorded; what cannot be written ends no run, and is told."""
        if self._profile is None:
            return
        try:
            self._profile.stop()
            if last or self._iterations >= min(self.SHORTEST, self._length):
                with storage_errors("write the trace", self._path):
                    self._write(self._profile)
        except (StorageError, RuntimeError, ValueError) as error:  # ValueError: half a file
            self.lines, self._done = [f"trace: none, {error}"], True
        self._profile, self._iterations = None, 0
        self.seconds += time.perf_counter() - self._start

    def _write(self, recorded: profile) -> None:
        self._path.parent.mkdir(exist_ok=True)
        recorded.export_chrome_trace(str(self._path))
        counts = count_launches(json.loads(self._path.read_bytes())["traceEvents"])
        size, count = self._path.stat().st_size, self._iterations
        length, self._length = self._length, min(self.LONGEST, int(self.BYTES * count / size))
        self._done = length > 1 or self._length < 2
        streams = "; in those of the streams: gaps between kernels" if self._on_cuda else ""
        kinds = ("ATen operators", "kernels", "graphs") if self._on_cuda else ("ATen operators",)
        self.lines = [
            f"trace of {count} iteration{'s' * (count > 1)}: {self._path} ({size / 1e6:.1f} MB)",
            "  open it at ui.perfetto.dev or chrome://tracing; look in the lines named python at "
            f"{', '.join(counts)}{streams}",
        ]
        for kind in kinds:
            told = ", ".join(f"{part} {found[kind]:.0f}" for part, found in counts.items())
            self.lines.append(f"  {kind} per call: {told}")


def count_launches(events: Sequence[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """By part, per call: ATen operators that no other one calls; kernels and graphs of CUDA.

    Args:
        events: Of a Chrome trace. A thread without parts, such as that of autograd on CUDA, counts
            to what runs meanwhile in the thread of the updates.
    """
    timed = [event for event in events if event["ph"] == "X"]
    parts = [e for e in timed if e.get("cat") == "user_annotation" and e["name"] in _PARTS]
    calls = Counter(event["name"] for event in parts)
    own = {event["tid"] for event in parts}
    updating = next((event["tid"] for event in parts if event["name"] == "update"), None)
    threads = defaultdict[Any, list[Mapping[str, Any]]](list)
    for event in timed:
        threads[event["tid"] if event["tid"] in own else updating].append(event)
    counts = {part: Counter[str]() for part in _PARTS if part in calls}
    for found in threads.values():
        stack, covered = list[tuple[float, str]](), 0.0
        for event in sorted(found, key=lambda event: (event["ts"], -event["dur"])):
            start, name, category = event["ts"], event["name"], event.get("cat", "")
            while stack and stack[-1][0] <= start:
                stack.pop()
            if category == "user_annotation" and name in counts:
                stack.append((start + event["dur"], name))
            elif stack and category == "cpu_op" and name.startswith("aten::") and start >= covered:
                covered = start + event["dur"]
                counts[stack[-1][1]]["ATen operators"] += 1
            elif stack and category in ("cuda_runtime", "cuda_driver"):
                counts[stack[-1][1]]["kernels"] += "LaunchKernel" in name
                counts[stack[-1][1]]["graphs"] += "GraphLaunch" in name
    return {
        part: Counter({kind: n / calls[part] for kind, n in found.items()})
        for part, found in counts.items()
    }
