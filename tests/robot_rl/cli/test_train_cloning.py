"""`robot-rl train learner=bc`, `flow`, `act`, `qc`: from data to a bundle, and on again."""

import pytest

from robot_rl.training.reporting.metrics import read_metrics
from robot_rl.training.storage.checkpoint import CheckpointStore
from tests.equality import tensors
from tests.robot_rl.cli.demonstrations import write_demonstrations
from tests.robot_rl.cli.tiny_run import (
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
    assert "none were named" in refused("train", "learner=bc")
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
