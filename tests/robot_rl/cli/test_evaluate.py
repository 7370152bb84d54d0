"""`robot-rl evaluate`: what it says and writes, and what it refuses."""

import json
from pathlib import Path

import pytest
import torch

from configs.schema import make_env
from robot_rl.cli.components import make_learner, make_policy
from robot_rl.cli.evaluation import _describe
from robot_rl.training.trainer import VALIDATION_SEED
from tests.compositions import composed

pytestmark = pytest.mark.slow  # they need a finished run


def result(folder):
    return json.loads((Path(folder) / "result.json").read_text())


def test_evaluation_says_rate_interval_and_distributions(command, run):
    answer = command("evaluate", "video=false", f"run={run}", "episodes=20", "out=first")
    assert "of 20 episodes (95 % interval 0.0% to 16.1%)" in answer.out
    for word in ("mean_distance", "median", "p95", "max", "terminated"):
        assert word in answer.out
    assert Path("first/plot.png").stat().st_size > 10_000
    found = result("first")
    assert found["episodes"] == 20
    assert found["success"]["rate"] == 0.0
    assert set(found["metrics"]["distance"]) == {"mean", "median", "p95", "max"}
    assert found["checkpoint"]["step"] in (800, 1600)


def test_the_median_of_an_even_number_lies_between_the_two_in_the_middle():
    """It was the lower of the two."""
    assert _describe(torch.tensor([20.0, 1.0, 2.0, 10.0]))["median"] == 6.0
    assert _describe(torch.tensor([0.0, 7.0, 3.0]))["median"] == 3.0


def test_what_decides_an_evaluation_is_seed_checkpoint_and_changes(command, run):
    def evaluated(*arguments, out=True):
        line = (f"run={run}", "video=false", "episodes=8", *arguments)
        command("evaluate", *line, *(["out=out"] if out else []))
        return result("out") if out else {}

    first = min((run / "checkpoints").glob("step_*"))
    plain = evaluated("seed=3", f"checkpoint={first}")
    assert plain["checkpoint"]["step"] == 800
    for seed in (3, 4):
        evaluated(f"seed={seed}", f"checkpoint={first}", out=False)
    folders = sorted((run / "evaluations").iterdir())
    assert len(folders) == 2, "each has its own"
    same = [result(folder)["metrics"] == plain["metrics"] for folder in folders]
    assert sorted(same) == [False, True], "equal seeds give equal results, and others do not"
    changes = ["task.evaluation_start.position=0", "robot.plant=measured"]
    changed = evaluated("seed=3", "checkpoint=latest", *changes)
    assert changed["checkpoint"]["step"] == 1600
    assert changed["overrides"] == changes
    assert changed["metrics"] != plain["metrics"]


def test_bundle_flies_like_the_policy_it_was_exported_from(command, run):
    command("evaluate", "video=false", f"run={run}", "episodes=16", "out=torch")
    flown = command("evaluate", "video=false", f"bundle={run}/bundle", "episodes=16", "out=bundle")
    assert "actions of the bundle and of torch differ by" in flown.out
    found = result("bundle")
    assert found["bundle_action_difference"] < 1e-5
    for name, values in result("torch")["metrics"].items():
        assert found["metrics"][name]["mean"] == pytest.approx(values["mean"], rel=1e-3)


def test_an_agent_plays_a_task_that_nobody_has_trained(command, here):
    line = ("task=reach", "robot=ur5e", "agent=scripted", "episodes=4", "out=agent")
    answer = command("evaluate", *line)
    assert "of 4 episodes" in answer.out
    found = result("agent")
    assert (found["run"], found["bundle"], found["agent"]) == (None, None, "scripted")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "say which: run=runs/..."),
        (["task=reach"], "or an agent that needs none: task=reach agent=zero"),
        (["task=reach", "agent=clever"], "agent 'clever' is unknown"),
        (["task=raech", "agent=zero"], "did you mean 'reach'"),
        (["agent=zero", "num_envs=4"], "changes nothing in an evaluation"),
        (["env=gymnasium", "agent=zero"], "acts on robots of our own"),
        (["run=runs/two"], "is not a run: it does not exist; newest: runs/one"),
        (["run=runs/one", "episodes=0"], "episodes must be at least 1, got 0"),
        (["run=runs/one", f"seed={VALIDATION_SEED}"], "the best checkpoint was chosen on"),
        (["run=runs/one", "task=tracking"], "fields of the task and the robot"),
        (["run=runs/one", "learner.gamma=1"], "changes nothing in an evaluation"),
        (["run=runs/one", "checkpoint=nothing"], "expected best, latest or the folder of one"),
        (["bundle=runs/one"], "runs/one is not a policy bundle"),
        (["bundle=nowhere/bundle"], "'nowhere/bundle' is not a folder"),
        (["run=runs/one", "bundle=runs/one"], "is not a policy bundle"),
        (["run=runs/one", "episodes=2", "out=file"], "file is a file; expected a folder"),
        (["run=runs/one", "task.actor=[{term: position_error_w}]"], "no policy of this shape"),
    ],
)
def test_mistake_is_one_sentence(refused, run, arguments, told):
    Path("file").touch()
    assert told in refused("evaluate", *arguments)
    assert not (run / "evaluations").exists()


def test_a_policy_alone_needs_no_library_of_updates(monkeypatch):
    def load():
        raise AssertionError("compiled updates were asked for")

    monkeypatch.setattr("robot_rl.learners.compiled.steps.load", load)
    config = composed(["task=hover", "learner.compile=true"]).config
    env = make_env(config, num_envs=2, device=torch.device("cpu"), seed=0, evaluation=True)
    with pytest.raises(AssertionError, match="asked for"):
        make_learner(config, env.spec)
    assert make_policy(config, env.spec)(env.reset(seed=0)).shape == (2, env.spec.action_size)
