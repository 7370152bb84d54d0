"""`robot-rl train learner=qc`: from data to steps in worlds to a bundle, and on again."""

import pytest

from robot_rl.training.reporting.metrics import read_metrics
from tests.robot_rl.cli.demonstrations import write_demonstrations
from tests.robot_rl.cli.tiny_run import (
    action_difference,
    assert_equal_ends,
    last_state,
    only_run,
    tensors,
)

pytestmark = pytest.mark.slow

SMALL = (
    "experiment=smoke", "learner=qc", "learner.actor.hidden=[16]", "learner.actor.steps=2",
    "learner.critic.hidden=[16]", "learner.candidates=4", "learner.next_candidates=3",
    "learner.batch_size=16", "num_envs=4", "logging.tensorboard=false",
    "logging.interval_seconds=1000", "training.offline.updates=40",
    "training.offline.evaluation_interval=20", "training.warm_up_steps=80",
    "training.total_steps=400", "training.evaluation_interval=200",
    "training.evaluation_episodes=4", "training.replay_capacity=4000",
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_demonstrations(tmp_path_factory.mktemp("data") / "set", count=30)
    return f"training.prior.run={folder}"


def test_data_become_a_policy_that_goes_on_in_the_worlds_and_into_a_bundle(here, command, data):
    answer = command("train", *SMALL, data)
    run = only_run()
    records = read_metrics(run / "metrics.jsonl")
    assert {r["train/phase"] for r in records} == {0.0, 2.0}
    assert records[-1]["step"] == 440
    assert 0 < min(r["train/whole_chunks"] for r in records) < 1  # episodes end within some
    answer = command("evaluate", f"bundle={run / 'bundle'}", "episodes=5", "video=false")
    assert action_difference(answer.out) < 1e-4


def test_a_resumed_run_equals_the_uninterrupted_one(here, train_only, data):
    train_only(*SMALL, data, "runs=whole")
    train_only(*SMALL, data, "runs=parts", "training.total_steps=204")  # in the middle of plans
    part = only_run("parts")
    train_only(f"resume={part}", "training.total_steps=400")
    assert_equal_ends(part, only_run("whole"))
    assert any("plans" in name for name in tensors(last_state(part).state))
