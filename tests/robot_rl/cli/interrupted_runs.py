"""Trains one run whole and many to which something happens; started by `test_interrupted_runs.py`.

Every session is a fork of this process, which has imported everything and started nothing. What
happens is bound to a call: the signal comes as the child enters the named function for the n-th
time, so a way to lose a run is the same each time and on each machine.
"""

import contextlib
import fcntl
import json
import os
import resource
import select
import signal
import subprocess
import sys
import termios
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

INTERVAL = 800
"""Steps between two checkpoints."""
OVERRIDES = (
    "experiment=smoke", "num_envs=16", "training.total_steps=3200", "training.random_steps=160",
    f"training.evaluation_interval={INTERVAL}", "training.evaluation_episodes=2",
    "training.replay_capacity=1600", "task.episode_length=0.2", "task.success_window=0.1",
    "learner.batch_size=16", "logging.tensorboard=false",
)  # fmt: skip
STARTING = {
    "it is built": ("robot_rl.cli.session:build_run", 1),
    "its folder is made": ("robot_rl.cli.session:keep_base", 1),
    "its logs are opened": ("robot_rl.cli.session:open_sinks", 1),
}
"""Moments before the first step: function and number of the call."""
TRAINING = {
    "the first step": ("robot_rl.training.trainer:Trainer.train_step", 1),
    "a later step": ("robot_rl.training.trainer:Trainer.train_step", 130),
    "an update": ("robot_rl.training.trainer:Trainer._update", 60),
    "the first evaluation": ("robot_rl.training.trainer:evaluate", 1),
    "a later evaluation": ("robot_rl.training.trainer:evaluate", 3),
    "metrics are written": ("robot_rl.training.reporting.metrics:MetricLog.write", 2),
    "a checkpoint is encoded": ("robot_rl.training.storage.checkpoint:encode_checkpoint", 2),
    "a checkpoint is named": (
        "robot_rl.training.storage.checkpoint:CheckpointStore._put_in_place", 2,
    ),
    "the best is marked": ("robot_rl.training.storage.checkpoint:CheckpointStore._mark_best", 2),
    "old checkpoints go": ("robot_rl.training.storage.checkpoint:CheckpointStore.prune", 2),
}  # fmt: skip
ENDING = {
    "the outcome is reported": ("robot_rl.cli.session:report_outcome", 1),
    "the bundle is written": ("robot_rl.cli.finish:export_run", 1),
}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)


@dataclass(kw_only=True)
class Way:
    """One thing that happens to a run."""

    name: str
    code: int
    """Exit code that the session is to have; -n for one that signal n ended."""
    prepare: Callable[[], None] = lambda: None
    """Done in the child before it trains."""
    damage: Callable[[Path], object] = lambda run: None
    """Done to the run's folder after it has ended."""
    output: str = ""
    """File that the child's output goes to, `pipe` or `terminal`; a file of its own if empty."""
    reports: bool = False
    """True makes plots and bundle after training: seconds, which most ways do without."""


@dataclass(kw_only=True)
class Result:
    """Outcome of one way, and of going on afterwards."""

    name: str
    wanted: int
    code: int
    run: str
    saved: int
    """Step of the newest checkpoint when it had ended; -1 without one."""
    resumed: int
    """Exit code of the session that went on."""
    said: str = ""
    """Output of the first session."""
    then: str = ""
    """Output of the second."""
    steps: list[int] = field(default_factory=list[int])
    """Of the metrics at the end."""


def at(where: str, number: int, act: Callable[[], None]) -> None:
    """Let `act` happen as a function is entered for the n-th time."""
    module, _, path = where.partition(":")
    owner: Any = import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    inner, calls = getattr(owner, name), [0]

    def entered(*args: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == number:
            act()
        return inner(*args, **options)

    setattr(owner, name, entered)


def send(*numbers: signal.Signals) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)
        time.sleep(0.02)


class Terminal:
    """A terminal of the session's own: somebody types, and closes its window."""

    def __init__(self, said: Path) -> None:
        """Become the leader of its session; what is shown is written to a file."""
        os.setsid()
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for number in (0, 1, 2):
            os.dup2(slave, number)
        os.close(slave)
        sys.stdout, sys.stderr = (  # those of before believe that they can seek
            open(number, "w", buffering=1, closefd=False) for number in (1, 2)  # noqa: SIM115
        )  # fmt: skip
        self._closing, self._closed = threading.Event(), threading.Event()
        threading.Thread(target=self._show, args=(said,), daemon=True).start()

    def type(self, keys: bytes) -> None:
        """Press keys; Ctrl-C is 3."""
        os.write(self._master, keys)
        time.sleep(0.1)

    def close(self) -> None:
        """Close the window."""
        self._closing.set()
        self._closed.wait()
        time.sleep(0.1)

    def _show(self, said: Path) -> None:
        with said.open("ab") as file:
            while not self._closing.is_set():
                if select.select([self._master], [], [], 0.01)[0]:
                    file.write(os.read(self._master, 4096))
                    file.flush()
        os.close(self._master)
        self._closed.set()


def forbid_folders() -> None:
    """No permission from here on: no folder can be made."""

    def refused(path: Any, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    os.mkdir = refused


def train_it_too() -> None:
    """Another process goes on with the run that this one trains; it has to refuse."""
    (runs,) = (word.partition("=")[2] for word in sys.argv if word.startswith("runs="))
    (run,) = found(Path(runs))
    command = [sys.executable, "-m", "robot_rl.cli", "train", f"resume={run}"]
    other = subprocess.run(command, capture_output=True, text=True, check=False)
    assert other.returncode == 2, other
    assert "Traceback" not in other.stderr, other.stderr


def limit_files(size: int) -> None:
    """A disk without room: what is written beyond a size fails."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def ways() -> Iterator[Way]:
    for moments, trains in ((STARTING, False), (TRAINING, True), (ENDING, False)):
        for moment, (where, number) in moments.items():
            for sent in SIGNALS:
                code = -sent if sent is signal.SIGKILL else 128 + sent if trains else -sent
                if sent is signal.SIGINT:
                    code = 130
                yield Way(
                    name=f"{sent.name} while {moment}", code=code, reports=moments is ENDING,
                    prepare=lambda where=where, number=number, sent=sent: at(
                        where, number, lambda: send(sent)
                    ),
                )  # fmt: skip
    for moment in ("a later step", "a later evaluation", "a checkpoint is named"):
        where, number = TRAINING[moment]
        yield Way(
            name=f"Ctrl-C twice while {moment}", code=130,
            prepare=lambda where=where, number=number: at(
                where, number, lambda: send(signal.SIGINT, signal.SIGINT)
            ),
        )  # fmt: skip
    yield from _surroundings()
    yield from _damages()


def _surroundings() -> Iterator[Way]:
    later = TRAINING["a later step"]

    def without_terminal() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        at(*later, lambda: send(signal.SIGHUP))

    yield Way(name="SIGHUP under nohup", code=0, prepare=without_terminal)
    yield Way(
        name="no room for the second checkpoint", code=2,
        prepare=lambda: at(
            TRAINING["a checkpoint is encoded"][0], 2, lambda: limit_files(1000)
        ),
    )  # fmt: skip
    yield Way(
        name="no room for metrics", code=2,
        prepare=lambda: at(TRAINING["metrics are written"][0], 3, lambda: limit_files(10)),
    )  # fmt: skip
    yield Way(
        name="no permission for the second checkpoint", code=2,
        prepare=lambda: at(TRAINING["a checkpoint is encoded"][0], 2, forbid_folders),
    )  # fmt: skip
    yield Way(
        name="another process that trains the same run", code=0,
        prepare=lambda: at(*TRAINING["a later evaluation"], train_it_too),
    )  # fmt: skip
    yield Way(name="a terminal to the end", code=0, output="terminal")
    yield Way(
        name="Ctrl-C typed in a terminal", code=130, output="terminal",
        prepare=lambda: at(*later, lambda: _terminals[0].type(b"\x03")),
    )  # fmt: skip
    yield Way(
        name="a terminal that is closed", code=128 + signal.SIGHUP, output="terminal",
        prepare=lambda: at(*later, lambda: _terminals[0].close()),
    )  # fmt: skip
    yield Way(name="a full disk behind the output", code=0, output="/dev/full")
    yield Way(name="an output without a reader", code=0, output="pipe")


def _damages() -> Iterator[Way]:
    def killed() -> None:
        at(TRAINING["a later evaluation"][0], 3, lambda: send(signal.SIGKILL))

    def newest(run: Path) -> Path:
        return max((run / "checkpoints").glob("step_*"))

    def cut(path: Path) -> None:
        path.write_bytes(path.read_bytes()[:-7])

    damages: dict[str, Callable[[Path], object]] = {
        "its newest checkpoint was cut off": lambda run: cut(
            max(newest(run).iterdir(), key=lambda file: file.stat().st_size)
        ),
        "the last line of its metrics was cut off": lambda run: cut(run / "metrics.jsonl"),
        "its status was emptied": lambda run: (run / "status.json").write_text(""),
        "its mark of the best is gone": lambda run: (
            run / "checkpoints" / "best.json"
        ).unlink(),
    }  # fmt: skip
    for name, damage in damages.items():
        yield Way(name=f"killed, and {name}", code=-signal.SIGKILL, prepare=killed, damage=damage)


def session(
    words: list[str], output: Path | str, prepare: Callable[[], None], *, reports: bool,
    said: Path | None = None,
) -> int:  # fmt: skip
    """A session in a fork, to its end; returns its exit code.

    Args:
        said: File of what a terminal shows.
    """
    child = os.fork()
    if not child:
        sys.argv = ["train", *words]
        if output == "terminal" and said is not None:
            _terminals.append(Terminal(said))
        else:
            _become(str(output))
        if not reports:
            vars(import_module("robot_rl.cli.session"))["report_outcome"] = lambda *_: {}
        try:
            prepare()
            import_module("robot_rl.cli.main").main(["train", *words])
            _leave(0)
        except SystemExit as ended:
            _leave(int(ended.code or 0))
        except BaseException as error:  # noqa: BLE001 - as the interpreter would
            with contextlib.suppress(OSError):
                traceback.print_exception(error)
            _leave(1)
    status = os.waitpid(child, 0)[1]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


_terminals: list[Terminal] = []
"""Of this session."""


def _become(output: str) -> None:
    """A process with an output of its own."""
    os.setpgid(0, 0)
    if output == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(writer, 1)
    os.dup2(os.open("/dev/null", os.O_WRONLY) if output.startswith(("pipe", "/dev")) else writer, 2)


def _leave(code: int) -> None:
    for terminal in _terminals:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # of the window that closes here
        time.sleep(0.1)
        terminal.close()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def newest_step(run: Path) -> int:
    steps = [path.name.removeprefix("step_") for path in (run / "checkpoints").glob("step_*")]
    return max(map(int, steps), default=-1)


def found(root: Path) -> list[Path]:
    return [config.parent for config in root.glob("*/config.yaml")]


def steps_of(run: Path) -> list[int]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [int(json.loads(line)["step"]) for line in lines]


def attempt(way: Way, root: Path) -> Result:
    """Train until it happens, then go on; without a folder of a run nothing was announced."""
    root.mkdir()
    first, second = root / "first.txt", root / "second.txt"
    began = [*OVERRIDES, f"runs={root / 'runs'}"]
    code = session(began, way.output or first, way.prepare, reports=way.reports, said=first)
    runs = found(root / "runs")
    if not runs:
        again, saved = began, -1
    else:
        saved = newest_step(runs[0])
        way.damage(runs[0])
        again = [f"resume={runs[0]}"]
    resumed = session(again, second, lambda: None, reports=way.reports)
    (run,) = found(root / "runs")
    return Result(
        name=way.name, wanted=way.code, code=code, run=str(run), saved=saved, resumed=resumed,
        said=first.read_text() if first.exists() else "", then=second.read_text(),
        steps=steps_of(run),
    )  # fmt: skip


def main(root: Path, every: int, first: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    for name in ("robot_rl.cli.train", "robot_rl.cli.resume", "robot_rl.cli.finish"):
        import_module(name)
    import_module("torch._dynamo")  # by an optimiser
    began = [*OVERRIDES, f"runs={root / 'whole'}"]
    assert session(began, root / "whole.txt", lambda: None, reports=False) == 0
    chosen = [way for i, way in enumerate(ways()) if i % every == first]
    results = [asdict(attempt(way, root / f"way_{i}")) for i, way in enumerate(chosen)]
    (whole,) = found(root / "whole")
    (root / "report.json").write_text(json.dumps({"whole": str(whole), "results": results}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
