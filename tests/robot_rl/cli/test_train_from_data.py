"""`robot-rl train` from data: clones, chunks and residuals to a bundle; starts in stored states."""

import importlib
import shutil
from pathlib import Path

import pytest
import torch

from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.training.evaluation import evaluate
from robot_rl.training.reporting.metrics import read_metrics
from robot_rl.training.storage.checkpoint import CheckpointStore
from tests.bases import write_base
from tests.equality import tensors
from tests.robot_rl.cli.demonstrations import write_demonstrations
from tests.robot_rl.cli.tiny_run import (
    TINY,
    action_difference,
    assert_equal_ends,
    last_state,
    only_run,
)

pytestmark = pytest.mark.slow

SMALL = {
    "bc": ("learner=bc", "learner.actor.hidden=[16]"),
    "flow": ("learner=flow", "learner.actor.hidden=[16]", "learner.actor.steps=2"),
    "act": ("learner=act", "learner.actor.width=16", "learner.actor.feedforward=16",
            "learner.actor_lr=1e-3", "learner.replan_interval=1", "learner.ensemble=true"),
}  # fmt: skip
SHORT = (
    "task.episode_length=0.2", "task.success_window=0.1", "video=false",
    "logging.tensorboard=false",
    "logging.interval_seconds=1000", "training.evaluation_episodes=4",
    "training.evaluation_interval=20", "training.total_steps=60", "learner.batch_size=16",
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_demonstrations(tmp_path_factory.mktemp("data") / "set")
    return f"training.demonstrations.data={folder}"


def test_demonstrations_become_a_bundle_that_is_evaluated(here, command, data):
    command("train", *SMALL["act"], *SHORT, data)
    run = only_run()
    records = read_metrics(run / "metrics.jsonl")
    losses = [r["eval/validation_loss"] for r in records if "eval/validation_loss" in r]
    assert len(losses) == 3
    assert losses[-1] < losses[0]
    assert all("eval/success" in r for r in records if "eval/validation_loss" in r)
    answer = command("evaluate", f"bundle={run / 'bundle'}", "episodes=5", "video=false")
    assert action_difference(answer.out) < 1e-4


@pytest.mark.parametrize("learner", [pytest.param("flow", marks=pytest.mark.full), "act"])
def test_a_resumed_run_equals_the_uninterrupted_one(here, train_only, data, learner):
    average = "learner.average=0.9"
    train_only(*SMALL[learner], *SHORT, data, "runs=whole", average)
    often = ("training.total_steps=20", "training.checkpoint_interval=8")
    train_only(*SMALL[learner], *SHORT, data, "runs=parts", average, *often)
    part = only_run("parts")
    assert CheckpointStore(part / "checkpoints", read_only=True).steps() == [16, 20]
    train_only(f"resume={part}", "training.total_steps=60")
    assert_equal_ends(part, only_run("whole"))


def test_a_run_that_gets_no_better_stops_early(here, train_only, data):
    patience = "training.demonstrations.patience=2"
    train_only(
        "learner=bc", *SHORT, data, patience, "learner.actor_lr=0", "training.total_steps=400"
    )
    run = only_run()
    assert read_metrics(run / "metrics.jsonl")[-1]["step"] == 60
    train_only(f"resume={run}")  # it is tired still
    assert read_metrics(run / "metrics.jsonl")[-1]["step"] == 60


def test_what_cannot_be_learned_from_is_a_sentence(here, refused, data):
    told = refused("train", "learner=bc")
    assert "none were named" in told
    assert told.strip().endswith('(see "Behaviour cloning")')
    assert "learn from demonstrations alone" in refused("train", "learner=sac", data)
    told = refused("train", "learner=bc", "task=reach", data)
    assert "are of task hover, and this run is of task reach" in told
    told = refused("train", "learner=bc", "robot=x500", data)
    assert "the robot crazyflie" in told
    told = refused("train", "learner=bc", "training.demonstrations.data=nowhere")
    assert "nowhere" in told
    told = refused("train", "learner=flow", data, "learner.replan_interval=9")
    assert "learner.replan_interval must lie in [1, 8], got 9" in told
    for ignored in ("training.prior.run=x", "training.symmetry=augment"):
        told = refused("train", "learner=bc", data, ignored)
        assert f"{ignored} is for learners that step envs" in told
    assert not (here / "runs").exists() or not list((here / "runs").iterdir())


CHUNKED = (
    "experiment=smoke", "learner=qc", "learner.actor.hidden=[16]", "learner.actor.steps=2",
    "learner.critic.hidden=[16]", "learner.candidates=4", "learner.next_candidates=3",
    "learner.batch_size=16", "num_envs=4", "logging.tensorboard=false",
    "logging.interval_seconds=1000", "training.offline.updates=40",
    "training.offline.evaluation_interval=20", "training.warm_up_steps=80",
    "training.total_steps=400", "training.evaluation_interval=200",
    "training.evaluation_episodes=4", "training.replay_capacity=4000",
)  # fmt: skip


@pytest.fixture(scope="module")
def prior(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_demonstrations(tmp_path_factory.mktemp("prior") / "set", count=30)
    return f"training.prior.run={folder}"


def test_by_q_chunking_data_become_a_policy_that_goes_on_in_the_worlds_and_into_a_bundle(
    here, command, prior
):
    answer = command("train", *CHUNKED, prior)
    run = only_run()
    records = read_metrics(run / "metrics.jsonl")
    assert {r["train/phase"] for r in records} == {0.0, 2.0}
    assert records[-1]["step"] == 440
    assert 0 < min(r["train/whole_chunks"] for r in records) < 1  # episodes end within some
    answer = command("evaluate", f"bundle={run / 'bundle'}", "episodes=5", "video=false")
    assert action_difference(answer.out) < 1e-4


def test_a_resumed_run_of_q_chunking_equals_the_uninterrupted_one(here, train_only, prior):
    train_only(*CHUNKED, prior, "runs=whole")
    train_only(*CHUNKED, prior, "runs=parts", "training.total_steps=204")  # in the middle of plans
    part = only_run("parts")
    train_only(f"resume={part}", "training.total_steps=400")
    assert_equal_ends(part, only_run("whole"))
    assert any("plans" in name for name in tensors(last_state(part).state))


RESIDUAL = (
    *TINY, "learner=residual", "num_envs=8", "task.episode_length=0.5",
    "task.success_window=0.2", "video=false", "learner.actor.hidden=[16]",
    "learner.critic.hidden=[16]", "learner.actor_steps.critic_updates=4", "training.random_steps=0",
    "training.warm_up_steps=80", "training.total_steps=160", "training.evaluation_interval=80",
)  # fmt: skip


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("given")
    return write_base(folder / "base.onnx", 85, 4), write_demonstrations(folder / "set")


def residual_settings(base: Path, data: Path) -> tuple[str, ...]:
    rest = tuple(one for one in RESIDUAL if not one.startswith("experiment="))
    return (*rest, f"learner.base.paths=[{base}]", f"training.prior.run={data}")


def test_a_resumed_residual_equals_the_uninterrupted_one_and_brings_its_base(
    here, command, train_only, given
):
    base = Path(shutil.copy(given[0], here / "base.onnx"))
    told = residual_settings(base, given[1])
    train_only(*told, "runs=whole")
    train_only(*told, "runs=parts", "training.total_steps=80")
    base.unlink()  # the run has its own
    part, whole = (next((here / name).iterdir()) for name in ("parts", "whole"))
    answer = train_only(f"resume={part}", "training.total_steps=160")
    assert_equal_ends(part, whole)
    answer = command("evaluate", f"run={part}", "episodes=3", "video=false")
    answer = command("export", f"run={part}", "out=bundle")
    answer = command("critics", f"run={part}", "parts=2")
    _, _, early, late = answer.out.splitlines()
    assert early.split()[:4] == ["0%", "to", "50%", "60"]  # of 6 episodes of 20 steps
    assert late.split()[:5] == ["50%", "to", "100%", "60", "0"]  # nothing was paid


def test_critics_that_cannot_be_asked_are_a_sentence(refused, given, run):
    assert "run is empty" in refused("critics")
    assert "'seed=3' changes nothing here" in refused("critics", "run=nowhere", "seed=3")
    assert "learned from no stored steps" in refused("critics", f"run={run}")


TASK = ("task=reach", "task.episode_length=0.8", "task.success_window=0.04")
REACH = (
    *TASK, "learner=sac", "num_envs=4", "learner.actor.hidden=[16]", "learner.critic.hidden=[16]",
    "learner.batch_size=16", "video=false", "logging.tensorboard=false",
    "logging.interval_seconds=1000", "training.total_steps=240", "training.random_steps=40",
    "training.updates_per_step=1", "training.evaluation_interval=120",
    "training.evaluation_episodes=4", "training.replay_capacity=400",
    "training.snapshots.episode_steps=5", "training.snapshots.steps=120",
)  # fmt: skip


def collect(command, *arguments: str) -> Path:
    command("collect", *TASK, "num_envs=4", "episodes=6", "out=set", "states=true", *arguments)
    return Path("set")


def test_a_run_begins_in_states_of_the_data_for_a_while(command, train_only, here, monkeypatch):
    data = collect(command)
    assert "states    position" in command("data", "info", str(data)).out
    stored = EpisodeDataset(data).episode(0)
    assert stored.states["position"].shape[0] == stored.num_steps
    evaluation = importlib.import_module("robot_rl.training.evaluation")
    lengths: list[torch.Tensor] = []

    def watched(env, act, **around):
        found = evaluate(env, act, **around)
        lengths.append((found.seconds / env.spec.control_dt).round())
        return found

    monkeypatch.setattr(evaluation, "evaluate", watched)
    given = f"training.snapshots.data={data}"
    answer = train_only(*REACH, given, "runs=whole")
    assert "begin in 120 states of set" in answer.out  # six episodes of twenty steps
    assert len(lengths) == 2
    assert all(int(one.max()) == 20 for one in lengths), "no evaluation begins in them"
    train_only(*REACH, given, "runs=parts", "training.total_steps=64")
    part = only_run("parts")
    train_only(f"resume={part}", "training.total_steps=240")
    assert_equal_ends(part, only_run("whole"))


def test_another_data_set_of_the_same_name_stops_a_run_that_goes_on(
    command, train_only, refused, here
):
    data = collect(command)
    train_only(*REACH, f"training.snapshots.data={data}", "training.total_steps=64")
    collect(command, "seed=1", "append=true", "episodes=7")
    run = only_run()
    before = (run / "config.yaml").read_bytes()
    told = refused("train", f"resume={run}", "training.total_steps=240")
    assert "are not those that the run began in" in told
    assert (run / "config.yaml").read_bytes() == before
