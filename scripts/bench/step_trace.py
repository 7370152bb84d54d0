"""Traces one training step and one assembly of a run: our files, calls, jumps between files.

    python -m scripts.bench.step_trace [task=hover ...]

A call is one of a function that lies in this checkout; a jump is a call whose caller among our
functions lies in another file. A stay in a file ends when another one is entered, by a call or by a
return. Rooms of the assembly are the files of `robot_rl/cli`, `configs` and `robot_rl/training`
that it walks through; what it builds there (envs, learners, buffers) is counted with the files.
"""

import contextlib
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from configs.compose import compose
from robot_rl.cli.build import build_run
from robot_rl.training.ranks import Ranks
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.storage.segments import SegmentStore
from robot_rl.training.trainer import Trainer

ROOT = Path(__file__).resolve().parents[2]
"""Of the checkout: functions below it are ours."""
_ASSEMBLY = ("robot_rl/cli/", "configs/", "robot_rl/training/")
"""Folders whose files assemble a run."""
_INLINE = ("<module>", "<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")
"""Code that stands in a function, and is no call of another one."""
_OURS = ("robot_rl", "configs", "policies", "sim", "hardware")


@dataclass
class Trace:
    """Counts of one traced walk."""

    calls: Counter[str] = field(default_factory=Counter)
    """Calls by file, relative to the checkout."""
    jumps: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Calls by the files of caller and callee, where these differ."""
    stays: list[str] = field(default_factory=list)
    """Files in the order in which they were entered, by calls and returns."""

    @property
    def rooms(self) -> list[str]:
        """Files of the assembly itself."""
        return [name for name in self.calls if name.startswith(_ASSEMBLY)]

    def lines(self, title: str) -> Iterator[str]:
        """Table of the trace."""
        yield (
            f"{title}: {len(self.calls)} files, {self.calls.total()} calls, "
            f"{self.jumps.total()} jumps between files, {len(self.stays)} stays, "
            f"{len(self.rooms)} rooms of the assembly"
        )
        entered = Counter(callee for _, callee in self.jumps.elements())
        for name, count in sorted(self.calls.items()):
            yield f"  {name:60} {count:5} calls {entered[name]:5} jumps into it"


@contextlib.contextmanager
def traced() -> Iterator[Trace]:
    """Count the calls of our functions in this thread."""
    trace, stack, names = Trace(), [""], dict[str, str]()

    def ours(frame: FrameType) -> str:
        path = frame.f_code.co_filename
        if path not in names:
            inside = path.startswith(f"{ROOT}/") and not frame.f_code.co_name.startswith("<frozen")
            name = path.removeprefix(f"{ROOT}/") if inside else ""
            names[path] = name if name.partition("/")[0] in _OURS else ""
        return names[path]

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "return") or not (name := ours(frame)):
            return
        if frame.f_code.co_name in _INLINE:
            return
        if event == "return":
            if len(stack) > 1:
                stack.pop()
            stay = stack[-1]
        else:
            trace.calls[name] += 1
            if stack[-1] and stack[-1] != name:
                trace.jumps[stack[-1], name] += 1
            stack.append(name)
            stay = name
        if stay and (not trace.stays or trace.stays[-1] != stay):
            trace.stays.append(stay)

    sys.setprofile(watch)
    try:
        yield trace
    finally:
        sys.setprofile(None)


def trace_assembly(overrides: Sequence[str]) -> tuple[Trace, Trainer]:
    """The walk from a typed configuration to a trainer that can begin."""
    config = compose([*overrides, "device=cpu"]).config
    with tempfile.TemporaryDirectory() as folder:
        segments = SegmentStore(Path(folder) / "replay")
        store = CheckpointStore(Path(folder) / "checkpoints", segments=segments)
        with traced() as trace:
            trainer = build_run(config, Ranks()).make_trainer(store, lambda _: None)
    assert isinstance(trainer, Trainer)
    return trace, trainer


def trace_step(trainer: Trainer, warm_up: int = 3) -> Trace:
    """One step of all envs and the updates that follow, after some that are not counted."""
    trainer.begin()
    trainer.collector.start()
    while trainer.collector.exploring_at_random:
        trainer.train_step()
    for _ in range(warm_up):
        trainer.train_step()
    with traced() as trace:
        trainer.train_step()
    return trace


def main(arguments: Sequence[str]) -> None:
    """Print both traces."""
    small = ["training.updates_per_step=1", "training.random_steps=2000", "num_envs=64"]
    small += ["training.overlap=false"]  # one thread is traced
    overrides = ["task=hover", *small, "training.replay_capacity=10000", *arguments]
    assembly, trainer = trace_assembly(overrides)
    print(*assembly.lines("assembly"), sep="\n")
    print(*trace_step(trainer).lines("training step"), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
