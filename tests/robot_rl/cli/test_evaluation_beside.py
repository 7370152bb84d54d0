"""`training.evaluation_beside`: the same run and the same best, and nothing that stays behind."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robot_rl.core.process import clean_environ
from robot_rl.training.reporting.metrics import read_metrics
from robot_rl.training.storage.checkpoint import CheckpointStore
from tests.robot_rl.cli.tiny_run import ROOT, TINY, assert_equal_ends, only_run

pytestmark = pytest.mark.slow

WORDS = (
    *TINY, "training.evaluation_interval=400", "training.evaluation_episodes=9",
    "training.evaluation_conditions=[delay 20,all of]",
)  # fmt: skip
BESIDE = "training.evaluation_beside=true"
LONG = (
    *TINY, "training.total_steps=1e8", "training.evaluation_interval=4e4",
    "training.evaluation_episodes=4", "video=false",
)  # fmt: skip


def found(run: Path) -> dict[float, dict[str, float]]:
    """Evaluations by step."""
    records = read_metrics(run / "metrics.jsonl")
    values = {r["step"]: {n: v for n, v in r.items() if n.startswith("eval/")} for r in records}
    return {step: one for step, one in values.items() if one}


def test_a_run_ends_as_it_does_without_a_process_beside(command, here):
    command("train", *WORDS, "runs=plain")
    told = command("train", *WORDS, BESIDE, "runs=beside").out
    plain, beside = only_run("plain"), only_run("beside")
    assert_equal_ends(beside, plain)
    assert repr(found(beside)) == repr(found(plain))  # NaN too
    assert len(found(beside)) == 4
    marks = [(run / "checkpoints" / "best.json").read_bytes() for run in (plain, beside)]
    assert marks[0] == marks[1]
    assert re.search(r"evaluation: step 1\.60k: success .*worst_success", told)
    assert "validation starts, the worst condition: " in told


def children_of(number: int) -> list[int]:
    """Processes that it started."""
    found = Path(f"/proc/{number}/task").glob("*/children")
    return [int(child) for one in found for child in one.read_text().split()]


def exists(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def waits_for(what, seconds: float = 120.0) -> bool:
    end = time.monotonic() + seconds
    while not (met := what()) and time.monotonic() < end:
        time.sleep(0.05)
    return bool(met)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_training_that_is_stopped_or_killed_leaves_no_process_behind(here, number):
    command = [sys.executable, "-m", "robot_rl.cli", "train", *LONG, BESIDE]
    environ = clean_environ({"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)})
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as training:

        def scored() -> bool:
            runs = list(Path("runs").glob("*/checkpoints"))
            return bool(runs) and CheckpointStore(runs[0], read_only=True).best() is not None

        try:
            assert waits_for(scored)
            children = children_of(training.pid)
            training.send_signal(number)
            said = training.communicate(timeout=60)[0]
        finally:
            training.kill()
    assert children
    assert waits_for(lambda: not any(map(exists, children)), 10.0)
    assert "Traceback" not in said
    assert training.returncode == (130 if number == signal.SIGINT else -number)
    if number == signal.SIGINT:
        assert "everything is saved; resume with: robot-rl train resume=" in said


def test_what_cannot_evaluate_beside_is_refused(command, here):
    told = command("train", "learner=bc", "training.demonstrations.data=x", BESIDE, exits=2).err
    assert "is not for learners of demonstrations" in told
