"""`robot-rl evaluate`: what it says and writes, and what it refuses."""

import json
from pathlib import Path

import pytest

from robot_rl.training.trainer import VALIDATION_SEED

pytestmark = pytest.mark.slow  # they need a finished run


def result(folder):
    return json.loads((Path(folder) / "result.json").read_text())


def test_evaluation_says_rate_interval_and_distributions(command, run):
    answer = command("evaluate", "video=false", f"run={run}", "episodes=20", "out=first")
    assert answer.code == 0
    assert "of 20 episodes (95 % interval 0.0% to 16.1%)" in answer.out
    for word in ("mean_distance", "median", "p95", "max", "terminated"):
        assert word in answer.out
    assert Path("first/plot.png").stat().st_size > 10_000
    found = result("first")
    assert found["episodes"] == 20
    assert found["success"]["rate"] == 0.0
    assert set(found["metrics"]["distance"]) == {"mean", "median", "p95", "max"}
    assert found["checkpoint"]["step"] in (800, 1600)


def test_equal_seeds_give_equal_results_and_others_do_not(command, run):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        command(
            "evaluate", "video=false", f"run={run}", "episodes=8", f"seed={seed}", f"out={name}"
        )
    a, b, c = (result(name)["metrics"] for name in "abc")
    assert a == b
    assert a != c


def test_each_evaluation_has_its_own_folder_in_the_run(command, run):
    for _ in range(3):
        command("evaluate", "video=false", "run=latest", "episodes=2")
    folders = list((run / "evaluations").iterdir())
    assert len(folders) == 3
    assert all((folder / "result.json").is_file() for folder in folders)


def test_task_and_robot_can_be_changed_for_a_test(command, run):
    changes = ("task.evaluation_start.position=0", "robot.plant=measured")
    command("evaluate", "video=false", f"run={run}", "episodes=4", "out=changed", *changes)
    command("evaluate", "video=false", f"run={run}", "episodes=4", "out=plain")
    assert result("changed")["overrides"] == list(changes)
    assert result("changed")["metrics"] != result("plain")["metrics"]


def test_bundle_flies_like_the_policy_it_was_exported_from(command, run):
    plain = command("evaluate", "video=false", f"run={run}", "episodes=16", "out=torch")
    flown = command("evaluate", "video=false", f"bundle={run}/bundle", "episodes=16", "out=bundle")
    assert (plain.code, flown.code) == (0, 0)
    assert "actions of the bundle and of torch differ by" in flown.out
    found = result("bundle")
    assert found["bundle_action_difference"] < 1e-5
    for name, values in result("torch")["metrics"].items():
        assert found["metrics"][name]["mean"] == pytest.approx(values["mean"], rel=1e-3)


def test_checkpoint_can_be_chosen(command, run):
    first = min((run / "checkpoints").glob("step_*"))
    command("evaluate", "video=false", f"run={run}", f"checkpoint={first}", "episodes=2", "out=one")
    command("evaluate", "video=false", f"run={run}", "checkpoint=latest", "episodes=2", "out=two")
    assert (result("one")["checkpoint"]["step"], result("two")["checkpoint"]["step"]) == (800, 1600)


def test_result_goes_into_no_file(refused, run):
    Path("file").touch()
    told = refused("evaluate", f"run={run}", "episodes=2", "out=file")
    assert "cannot write the evaluation" in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "say which: run=runs/..."),
        (["run=runs/two"], "is not a run: it does not exist; nearest: runs/one"),
        (["run=runs/one", "episodes=0"], "episodes must be at least 1, got 0"),
        (["run=runs/one", "episods=5"], "did you mean 'episodes'"),
        (["run=runs/one", "episodes=few"], "episodes must be a whole number"),
        (["run=runs/one", f"seed={VALIDATION_SEED}"], "the best checkpoint was chosen on"),
        (["run=runs/one", "task.radus=1"], "did you mean 'task.radius'"),
        (["run=runs/one", "task=tracking"], "fields of the task and the robot"),
        (["run=runs/one", "learner.gamma=1"], "changes nothing in an evaluation"),
        (["run=runs/one", "device=tpu"], "device 'tpu' is unknown"),
        (["run=runs/one", "checkpoint=nothing"], "expected best, latest or the folder of one"),
        (["bundle=runs/one"], "name the run too: run=runs/..."),
        (["run=latest", "runs=elsewhere"], "there is no run in elsewhere"),
        (["bundle=nowhere/bundle"], "'nowhere/bundle' is not a folder"),
        (["runs/one"], "is not an override; expected key=value"),
        (["run=runs/one", "bundle=runs/one"], "is not a policy bundle"),
        (["run=runs/one", "task.actor=[{term: position_error_w}]"], "no policy of this shape"),
    ],
)
def test_mistake_is_one_sentence(refused, run, arguments, told):
    assert told in refused("evaluate", *arguments)
    assert not (run / "evaluations").exists()
