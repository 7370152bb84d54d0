"""A run of less than a second, where the commands lie, and the state that a run ends in."""

import contextlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from robot_rl.cli.main import main
from robot_rl.core.process import clean_environ
from robot_rl.training.storage.checkpoint import Checkpoint, CheckpointStore
from robot_rl.training.storage.segments import SegmentStore
from tests.equality import tensors

ROOT = Path(__file__).parents[3]
TINY = (
    "experiment=smoke", "num_envs=16", "training.total_steps=1600", "training.random_steps=160",
    "training.evaluation_interval=800", "training.evaluation_episodes=4",
    "training.replay_capacity=800", "learner.batch_size=16", "logging.tensorboard=false",
    "logging.interval_seconds=1000",
)  # fmt: skip
FOREIGN = (
    "num_envs=4", "training.total_steps=400", "training.random_steps=40",
    "training.updates_per_step=1", "training.evaluation_interval=200",
    "training.evaluation_episodes=2", "training.replay_capacity=400", "learner.batch_size=16",
    "learner.actor.hidden=[8]", "learner.critic.hidden=[8]", "logging.tensorboard=false",
    "logging.interval_seconds=1000",
)  # fmt: skip
"""The same for environments of others."""


def output_of(*arguments: str, exits: int = 0) -> str:
    """Output of a command in this process, for fixtures that serve several tests."""
    said, code = io.StringIO(), 0
    with contextlib.redirect_stdout(said):
        try:
            main(list(arguments))
        except SystemExit as ended:
            code = int(ended.code or 0)
    assert code == exits, said.getvalue()
    return said.getvalue()


def python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, which finds the repository."""
    environ = clean_environ({"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)})
    command = [sys.executable, *arguments]
    values = {"env": environ, "capture_output": True, "text": True, "timeout": 600, **options}
    return subprocess.run(command, **values)


def only_run(root: Path | str = "runs") -> Path:
    (run,) = Path(root).iterdir()
    return run


def action_difference(said: str) -> float:
    """Answers of an evaluation about the actions of a bundle and of torch."""
    (line,) = [one for one in said.splitlines() if one.startswith("actions of the bundle")]
    return float(line.split()[-1])


def interrupt() -> None:
    """Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)


def last_state(run: Path) -> Checkpoint:
    return CheckpointStore(run / "checkpoints", read_only=True).load("latest")


def assert_equal_ends(run: Path, other: Path) -> None:
    """Bit for bit: networks, optimisers, normalisers, random streams, envs, replay."""
    one, two = last_state(run), last_state(other)
    assert one.step == two.step
    left, right = tensors(one.state), tensors(two.state)
    # The entries of the replay differ in how they cut the rows; the rows are compared below.
    assert left.keys() == right.keys()
    assert len(left) > 10
    assert [name for name in left if not torch.equal(left[name], right[name])] == []
    if "replay" in one.state:
        assert torch.equal(_replay_rows(run, one), _replay_rows(other, two))


def _replay_rows(run: Path, checkpoint: Checkpoint) -> torch.Tensor:
    store, replay = SegmentStore(run / "replay"), checkpoint.state["replay"]
    rows = torch.cat([store.read(entry)["rows"] for entry in replay["entries"]])
    return rows[-replay["shape"][0] :]
