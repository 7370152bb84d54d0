"""Trains one run whole and one that is killed again and again; started by `test_train.py`.

Every session is a fork of this process, which has imported everything but has started nothing: a
session costs milliseconds instead of the seconds that a fresh interpreter with torch takes.
"""

import contextlib
import json
import os
import random
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

TOTAL = 16_000
INTERVAL = 800
"""Steps between two checkpoints."""
OVERRIDES = (
    "experiment=smoke",
    "num_envs=16",
    f"training.total_steps={TOTAL}",
    "training.random_steps=160",
    f"training.evaluation_interval={INTERVAL}",
    "training.evaluation_episodes=2",
    "training.replay_capacity=1600",
    "task.episode_length=0.2",
    "task.success_window=0.1",
    "learner.batch_size=16",
    "logging.tensorboard=false",
    "logging.quiet=true",
)


def train(*arguments: str) -> int:
    """Start a session in a fork; returns its process id."""
    child = os.fork()
    if child:
        return child
    try:
        import_module("robot_rl.cli.main").main(["train", *arguments])
        os._exit(0)
    except SystemExit as ended:
        os._exit(int(ended.code or 0))
    finally:
        os._exit(1)


def found(root: Path) -> list[Path]:
    """Runs that can be resumed."""
    return [config.parent for config in root.glob("*/config.yaml")]


def step_of(run: Path) -> int:
    names = [path.name for path in (run / "checkpoints").glob("step_*")]
    return max((int(name.removeprefix("step_")) for name in names), default=-1)


def progress(folder: Path) -> int:
    """Checkpoints that the run below `folder` has got to; 0 before there is one."""
    runs = found(folder)
    return max(0, step_of(runs[0])) // INTERVAL if runs else 0


def wait_for_the_moment(
    number: int, child: int, folder: Path, starting: float, rng: random.Random
) -> None:
    """Wait until a session is to be killed: every fourth starts, others are checkpoints further.

    Counted in checkpoints, not in seconds: how long a session starts and how fast it trains differs
    between machines, and sessions killed after a drawn time may never get as far as to train.
    """
    if number % 4 == 0:
        time.sleep(rng.uniform(0.0, starting))
        return
    wanted, began = progress(folder) + rng.randint(1, 3), time.monotonic()
    while progress(folder) < wanted:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return  # it ended by itself
        time.sleep(0.005)
    # Into the part of the session between two checkpoints, or the writing of the next.
    time.sleep(rng.uniform(0.0, (time.monotonic() - began) / 2))


def main(root: Path, kills: int) -> None:
    for name in ("robot_rl.cli.train", "robot_rl.cli.resume", "torch._dynamo"):  # by an optimiser
        import_module(name)
    # What follows training is not tested here, and takes seconds.
    vars(import_module("robot_rl.cli.session"))["report_outcome"] = lambda *_: {}
    whole, began = root / "whole", time.monotonic()
    assert os.waitpid(train(*OVERRIDES, f"runs={whole}"), 0)[1] == 0
    starting, rng = (time.monotonic() - began) / 9, random.Random(0)
    steps: list[int] = []
    killed: list[str] = []
    while len(steps) < kills:  # a run that ended before its last kill is followed by another
        folder, status = root / f"killed_{len(killed)}", -1
        while status:
            runs = found(folder)
            child = train(*([f"resume={runs[0]}"] if runs else [*OVERRIDES, f"runs={folder}"]))
            if len(steps) < kills:
                wait_for_the_moment(len(steps), child, folder, starting, rng)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            if os.WIFSIGNALED(status):
                steps.append(step_of(found(folder)[0]) if found(folder) else -1)
            else:
                assert status == 0, status
        killed.append(str(found(folder)[0]))
    report = {"kills": len(steps), "steps": steps, "whole": str(found(whole)[0]), "killed": killed}
    (root / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
