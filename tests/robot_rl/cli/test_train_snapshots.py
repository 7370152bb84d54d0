"""`robot-rl collect states=true` and `training.snapshots`: from data to runs that begin in it."""

import importlib
from pathlib import Path

import pytest
import torch

from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.training.evaluation import evaluate
from tests.robot_rl.cli.tiny_run import assert_equal_ends, only_run

pytestmark = pytest.mark.slow

TASK = ("task=reach", "task.episode_length=0.8", "task.success_window=0.04")
SMALL = (
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
    trainer = importlib.import_module("robot_rl.training.trainer")
    lengths: list[torch.Tensor] = []

    def watched(env, act, **around):
        found = evaluate(env, act, **around)
        lengths.append((found.seconds / env.spec.control_dt).round())
        return found

    monkeypatch.setattr(trainer, "evaluate", watched)
    given = f"training.snapshots.data={data}"
    answer = train_only(*SMALL, given, "runs=whole")
    assert "begin in 120 states of set" in answer.out  # six episodes of twenty steps
    assert len(lengths) == 2
    assert all(int(one.max()) == 20 for one in lengths), "no evaluation begins in them"
    train_only(*SMALL, given, "runs=parts", "training.total_steps=64")
    part = only_run("parts")
    train_only(f"resume={part}", "training.total_steps=240")
    assert_equal_ends(part, only_run("whole"))


def test_another_data_set_of_the_same_name_stops_a_run_that_goes_on(
    command, train_only, refused, here
):
    data = collect(command)
    train_only(*SMALL, f"training.snapshots.data={data}", "training.total_steps=64")
    collect(command, "seed=1", "append=true", "episodes=7")
    run = only_run()
    before = (run / "config.yaml").read_bytes()
    told = refused("train", f"resume={run}", "training.total_steps=240")
    assert "are not those that the run began in" in told
    assert (run / "config.yaml").read_bytes() == before
