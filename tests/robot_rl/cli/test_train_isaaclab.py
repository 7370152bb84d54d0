"""The commands over Isaac Lab's double: trained, resumed and evaluated in one simulation."""

import json
from pathlib import Path

import pytest

from robot_rl.training.reporting.metrics import read_metrics
from robot_rl.training.storage.checkpoint import CheckpointStore
from tests.isaaclab_double import LIMIT, Episodes, installed
from tests.matrices import some
from tests.robot_rl.cli.tiny_run import FOREIGN, only_run

pytestmark = pytest.mark.slow

TINY = ("env=isaaclab", "env.id=Isaac-Drift-Manager-v0", *FOREIGN, "device=cpu")


@pytest.fixture(params=some([True], [False]), ids=["3.x", "2.x"])
def lab(request, tmp_path_factory):
    with installed(tmp_path_factory.mktemp("lab"), modern=request.param):
        yield


def test_a_task_is_trained_resumed_and_evaluated_by_its_id(lab, command, here):
    answer = command("train", *TINY, "env.success=[time_out]", "env.metrics=[Episode/length]")
    run = only_run()
    assert run.name.endswith("Isaac-Drift-Manager-v0_isaaclab_sac_s0")
    assert "a resumed run will begin new episodes" in answer.out
    assert "'isaaclab', which describes no robot" in answer.out
    records = read_metrics(run / "metrics.jsonl")
    # One row of four worlds after each of two evaluations; the second ends the run.
    assert [record["rollout/invalid_steps"] for record in records][-1] == 4
    told = [record for record in records if "eval/success" in record]
    assert len(told) == 2
    assert 0 < told[-1]["eval/Episode/length"] <= LIMIT
    assert Episodes.open == 0

    answer = command("train", f"resume={run}", "training.total_steps=600")
    assert "the state of these envs cannot be saved: all begin new episodes" in answer.out
    assert CheckpointStore(run / "checkpoints", read_only=True).steps()[-1] == 600

    answer = command("evaluate", f"run={run}", "episodes=3", "out=result")
    assert json.loads(Path("result/result.json").read_text())["episodes"] == 3
