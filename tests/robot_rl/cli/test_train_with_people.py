"""`robot-rl train` by the learners of human-in-the-loop learning, from stored steps to a bundle."""

from pathlib import Path

import pytest

from robot_rl.training.reporting.metrics import read_metrics
from tests.matrices import split
from tests.robot_rl.cli.demonstrations import write_demonstrations
from tests.robot_rl.cli.tiny_run import action_difference, assert_equal_ends, only_run

pytestmark = pytest.mark.slow

MIXED = (
    "experiment=smoke", "learner.batch_size=16", "learner.critic.hidden=[16]", "num_envs=4",
    "learner.actor.hidden=[16]", "video=false", "logging.tensorboard=false",
    "logging.interval_seconds=1000", "training.warm_up_steps=80", "training.random_steps=80",
    "training.updates_per_step=2", "training.total_steps=400", "training.evaluation_interval=200",
    "training.evaluation_episodes=4", "training.replay_capacity=4000",
)  # fmt: skip
OFFLINE = ("training.offline.updates=40", "training.offline.evaluation_interval=20")
LEARNERS: dict[str, tuple[str, ...]] = {
    "hil_serl": ("learner.grasp_penalty=0", "learner.gripper.network.hidden=[16]"),
    "silri": (
        *OFFLINE, "learner.expert.hidden=[16]", "learner.multiplier.hidden=[16]",
        "learner.gripper.network.hidden=[16]",
    ),
    "expo": (
        *OFFLINE, "learner.actor.steps=2", "learner.edit.hidden=[16]", "learner.candidates=3",
        "learner.next_candidates=2", "learner.edit_lr=0.03", "learner.chunk_length=2",
        "learner.replan_interval=2",
    ),
    "wsrl": OFFLINE,
}  # fmt: skip


@pytest.fixture(scope="module")
def prior(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_demonstrations(tmp_path_factory.mktemp("prior") / "set", count=30)
    return f"training.prior.run={folder}"


def settings(learner: str, prior: str) -> tuple[str, ...]:
    return (f"learner={learner}", *MIXED, *LEARNERS[learner], prior)


@pytest.mark.parametrize("learner", split(LEARNERS, ["hil_serl", "expo"]))
def test_stored_and_own_steps_become_a_policy_and_that_a_bundle(here, command, prior, learner):
    command("train", *settings(learner, prior))
    run = only_run()
    records = read_metrics(run / "metrics.jsonl")
    offline = 40 if "training.offline.updates=40" in LEARNERS[learner] else 0
    assert records[-1]["step"] == 400 + offline
    assert ({r["train/phase"] for r in records if "train/phase" in r} == {0.0, 2.0}) == (
        offline > 0
    )
    answer = command("evaluate", f"bundle={run / 'bundle'}", "episodes=5", "video=false")
    assert action_difference(answer.out) < 1e-4


@pytest.mark.parametrize("learner", split(LEARNERS, ["silri"]))
def test_a_resumed_run_equals_the_uninterrupted_one(here, train_only, prior, learner):
    told = settings(learner, prior)
    train_only(*told, "runs=whole")
    train_only(*told, "runs=parts", "training.total_steps=204")  # in the middle of plans
    part = only_run("parts")
    train_only(f"resume={part}", "training.total_steps=400")
    assert_equal_ends(part, only_run("whole"))


@pytest.mark.parametrize("learner", ["silri", "expo"])
def test_a_run_begins_with_what_another_one_imitated(here, train_only, prior, learner):
    """As on a robot: imitation beforehand, in a run of its own."""
    train_only(*settings(learner, prior), "training.total_steps=0", "runs=imitated")
    online = [one for one in settings(learner, prior) if "offline" not in one]
    answer = train_only(*online, "training.start.run=imitated")
    assert "begins with the learner of" in answer.out + answer.err
    assert read_metrics(only_run() / "metrics.jsonl")[-1]["step"] == 400


def test_critics_beside_a_gripper_are_asked_about_the_arm(here, command, train_only, prior):
    train_only(*settings("hil_serl", prior))
    answer = command("critics", f"run={only_run()}", "parts=2")
    assert len(answer.out.splitlines()) == 4


def test_a_penalty_of_grasping_without_an_observed_opening_is_refused(here, refused, prior):
    told = refused("train", *settings("hil_serl", prior), "learner.grasp_penalty=0.02")
    assert "term of the group 'actor' 'gripper_opening' is unknown" in told
    assert "set learner.grasp_penalty=0" in told
    assert not list(Path("runs").glob("*/checkpoints/*"))
