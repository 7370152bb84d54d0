"""From a teacher that knows all to a student in a bundle, and every teacher that does not fit."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import onnx
import pytest

from robot_rl.cli.components import check_teacher, open_teacher
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.training.runs.run_folder import RunFolder, find_runs
from robot_rl.training.storage.checkpoint import CheckpointStore
from tests.compositions import composed
from tests.equality import assert_same
from tests.robot_rl.cli.tiny_run import (
    TINY,
    action_difference,
    assert_equal_ends,
    interrupt,
    output_of,
)

pytestmark = pytest.mark.slow

STUDENT = (
    "task=hover", "learner=distill", "num_envs=16", "task.episode_length=0.5",
    "task.success_window=0.2", "learner.actor.hidden=[16]", "learner.batch_size=16",
    "learner.mixture_updates=100", "training.total_steps=1600", "training.replay_capacity=800",
    "training.evaluation_interval=800", "training.evaluation_episodes=4",
    "logging.tensorboard=false", "logging.interval_seconds=1000", "video=false",
    "learner.actor.encoder.kind=mlp", "learner.actor.encoder.hidden=[8]",
)  # fmt: skip


@pytest.fixture(scope="session")
def teacher(tmp_path_factory) -> Path:
    """A folder with a finished run whose actor sees the group `critic`, made once."""
    root = tmp_path_factory.mktemp("teacher")
    output_of(
        "train", *TINY, f"runs={root}", "learner.actor.groups=[critic]",
        "learner.actor.encoder.kind=mlp", "learner.actor.encoder.terms=[sensed/plant]",
    )  # fmt: skip
    return root


def state_of(root: Path, which: str = "latest") -> dict:
    return CheckpointStore(find_runs(root)[-1] / "checkpoints", read_only=True).load(which).state


def test_a_teacher_is_not_exported_and_its_student_is(command, refused, here, teacher):
    told = refused("export", f"run={find_runs(teacher)[-1]}")
    assert "group 'critic', which no robot measures" in told
    assert "learner=distill" in told
    student = (*STUDENT, "learner.actor.encoder.estimate=[linear_velocity_w]")
    command("train", *student, f"learner.teacher={teacher}", "learner.estimation.next_obs=true")
    (run,) = find_runs("runs")
    names = {name for line in (run / "metrics.jsonl").open() for name in json.loads(line)}
    assert {"train/actor_loss", "train/estimate_loss", "train/next_obs_loss"} <= names
    inputs = onnx.load(run / "bundle" / "policy.onnx").graph.input
    assert [value.name for value in inputs] == ["actor"]
    # Nobody needs the teacher any more.
    shutil.copytree(run, "copy")
    config = Path("copy/config.yaml")
    config.write_text(config.read_text().replace(str(teacher), "runs/gone"))
    flown = command("evaluate", "run=copy", "episodes=4", "video=false", "bundle=copy/bundle")
    assert action_difference(flown.out) < 1e-4


def test_a_stopped_and_resumed_student_equals_the_uninterrupted_one(
    train_only, here, teacher, at_collect
):
    arguments = (*STUDENT, f"learner.teacher={teacher}", "learner.latent_weight=1")
    train_only(*arguments, "runs=whole")
    at_collect(1000, interrupt)
    train_only(*arguments, exits=130)
    (run,) = find_runs("runs")
    train_only(f"resume={run}")
    assert_equal_ends(run, find_runs("whole")[-1])
    assert_same(state_of(Path("runs"))["learner"]["teacher"], state_of(teacher, "best")["policy"])


def test_a_teacher_that_learned_on_measurements_answers_to_the_true_state(
    command, train_only, refused, here, teacher
):
    words = (*STUDENT, "learner.noiseless_teacher=true", "learner.actor.encoder.kind=none")
    told = refused("train", *words, f"learner.teacher={teacher}")
    assert "with learner.actor.groups=[actor]" in told
    assert "['critic']; set learner.noiseless_teacher=false" in told
    assert "groups=[critic]" not in refused("train", *words)
    train_only(*TINY, "runs=measuring")
    ours = (*words, "learner.teacher=measuring")
    assert "learner.noiseless_teacher=true is for robot-rl train" in refused(
        "learn", *(word for word in ours if not word.startswith("num_envs")), "driver=sim"
    )
    others = [word for word in ours if not word.startswith("task")]
    told = refused("train", *others, "task=tracking")
    assert "has another kind of task than this run: hover, expected tracking" in told
    told = refused(
        "train", *ours, "learner.actor.encoder.kind=mlp",
        "learner.actor.encoder.estimate=[linear_velocity_w]",
    )  # fmt: skip
    assert "which learner.actor.encoder.estimate=['linear_velocity_w'] would be compared" in told
    told = refused("train", *others, "env=gymnasium", "env.id=Pendulum-v1")
    assert "another kind of env" in told
    seen = "task.actor=[{term: orientation_matrix}]"
    began = train_only(*words, "learner.teacher=measuring", seen)
    (run,) = find_runs("runs")
    (theirs,) = find_runs("measuring")
    store = CheckpointStore(theirs / "checkpoints", read_only=True)
    told = r"teacher at step \S+: 0\.0% of 4 episodes on the true state, return (\S+)\n"
    returns = dict(zip(store.steps(), map(float, re.findall(told, began.out)), strict=True))
    assert list(returns) == [800, 1600]
    chosen = RunFolder.open(run).config()["learner"]["teacher"]
    best = max(returns, key=lambda step: returns[step])
    assert chosen == str(theirs / "checkpoints" / f"step_{best:012d}")
    ours, saw = (RunFolder.open(one).config()["task"] for one in (run, theirs))
    assert ours["critic"] == saw["actor"]
    assert [term["term"] for term in ours["actor"]] == ["orientation_matrix"]
    kept = state_of(Path("runs"))["learner"]["teacher"]
    assert_same(kept, store.load(Path(chosen)).state["policy"])
    train_only(f"resume={run}", "training.total_steps=3200")
    command("evaluate", f"run={run}", "episodes=4", "video=false")


TEACHER = ("task=velocity_hidden", "learner.actor.groups=[critic]")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (["robot=go1"], "has name go1"),
        (["robot.decimation=8"], r"another control period \[s\]"),
        (["task.randomization.payload=[0,1]"], "randomization.payload, which sensed/plant"),
    ],
)
def test_a_teacher_of_other_worlds_is_refused(change, told):
    theirs, ours = (composed(one).config for one in (TEACHER, ("task=velocity_hidden", *change)))
    check_teacher("runs/t", theirs, theirs, ("critic",))
    with pytest.raises(SpecMismatchError, match=told):
        check_teacher("runs/t", theirs, ours, ("critic",))


def test_a_teacher_that_sees_other_terms_is_refused():
    theirs, ours = composed(["task=velocity"]).config, composed(TEACHER).config
    with pytest.raises(SpecMismatchError, match=r"group 'actor'.*3 frame.*10 frame"):
        check_teacher("runs/t", theirs, ours, ("actor",))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"average": 0}, r"average over 200.*expected.*clip 1'"),
        ({"clip": None}, r"clip 1, average.*expected.*frame\(s\), average"),
    ],
)
def test_a_teacher_that_sees_terms_clipped_or_averaged_otherwise_is_refused(change, told):
    """Clips and averages were not compared: the teacher saw other numbers than in its training."""
    theirs = composed(["task=hover"]).config
    terms = [
        dataclasses.replace(term, **change) if term.average else term
        for term in theirs.task.actor
    ]  # fmt: skip
    ours = dataclasses.replace(theirs, task=dataclasses.replace(theirs.task, actor=terms))
    with pytest.raises(SpecMismatchError, match=told):
        check_teacher("runs/t", theirs, ours, ("actor",))


def test_no_teacher_and_no_run_are_refused(here):
    with pytest.raises(ConfigError, match="needs a teacher: give learner"):
        open_teacher("")
    with pytest.raises(ConfigError, match="runs/none is neither a run nor a folder of runs"):
        open_teacher("runs/none")
