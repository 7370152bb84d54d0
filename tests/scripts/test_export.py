"""`scripts/export.py`: a bundle that loads, and what it refuses."""

import json
import shutil
from pathlib import Path

import pytest

from policies.bundle import load_bundle

pytestmark = pytest.mark.slow  # they need a finished run


@pytest.fixture
def run(finished_run, here) -> Path:
    """A copy of the finished run."""
    return Path(shutil.copytree(finished_run, "runs/one"))


def test_bundle_is_written_read_back_and_says_where_it_comes_from(command, run):
    shutil.rmtree(run / "bundle")
    answer = command("export", "run=latest", "checkpoint=latest")
    assert answer.code == 0
    assert f"{run}/bundle" in answer.out
    assert "actions differ from torch by at most" in answer.out
    runner = load_bundle(run / "bundle")
    assert runner.spec.robot.name == "crazyflie"
    origin = json.loads((run / "bundle" / "provenance.json").read_text())
    assert origin["checkpoint"]["step"] == 1600
    assert origin["run"]["task"] == "hover"
    assert origin["config"]["training"]["total_steps"] == 1600
    assert str(Path.cwd()) not in json.dumps(origin), "no folder of one machine"


def test_bundle_can_go_elsewhere(command, run):
    assert command("export", f"run={run}", "out=elsewhere/bundle").code == 0
    load_bundle("elsewhere/bundle")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "say which: run=runs/..."),
        (["run=runs/two"], "nearest: runs/one"),
        (["run=runs/one", "chekpoint=best"], "did you mean 'checkpoint'"),
        (["run=runs/one", "task.radius=1"], "option 'task.radius' is unknown"),
        (["run=runs/one", "out=runs"], "exists and is not a policy bundle"),
        (["run=runs/one", "checkpoint=runs"], "is damaged or not one"),
    ],
)
def test_mistake_is_one_sentence(refused, run, arguments, told):
    assert told in refused("export", *arguments)


def test_damaged_checkpoint_is_named(refused, run):
    for file in (run / "checkpoints").glob("*/tensors.safetensors"):
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert "is damaged: tensors.safetensors" in refused("export", f"run={run}")
