"""A run that was interrupted ends where the uninterrupted one does, bit for bit."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from robot_rl.core.errors import CheckpointError
from robot_rl.training.storage.checkpoint import CheckpointStore
from tests.equality import assert_same
from tests.fakes import ToyEnv
from tests.robot_rl.training.loop import WORLD, WORLDS, Loop, ends_as_if_uninterrupted

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "stops",
    [
        pytest.param([20], id="in the random phase"),
        pytest.param([100], id="at an evaluation"),
        # between two updates of the actor, twice before the ring is full, after it has wrapped
        pytest.param([44, 52, 56, 120, 176], id="five times"),
    ],
)
def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path, stops):
    ends_as_if_uninterrupted(tmp_path, stops, total_steps=240, evaluation_interval=100)


@pytest.mark.parametrize("stops", [[20], [44, 120]])
def test_a_resumed_run_goes_on_with_the_mean_of_its_policy(tmp_path, stops):
    settings: dict[str, Any] = {"evaluation_interval": 100, "policy_average": 30}
    ends_as_if_uninterrupted(tmp_path, stops, **settings)
    whole, parts = (Loop(tmp_path / name, **settings).resume() for name in ("whole", "parts"))
    assert_same(dict(whole.trainer.policy.state_dict()), dict(parts.trainer.policy.state_dict()))
    newest = whole.learner.policy().state_dict()
    moved = [name for name, mean in whole.trainer.policy.state_dict().items()
             if not torch.equal(mean, newest[name])]  # fmt: skip
    assert moved
    assert_same(whole.store.load().state["policy"], dict(whole.trainer.policy.state_dict()))


def test_a_resumed_run_is_evaluated_under_the_same_conditions(tmp_path):
    def conditions() -> dict[str, ToyEnv]:
        return {"near": ToyEnv(replace(WORLD, bound=0.6), 4, limit=7, seed=8)}

    whole = Loop(tmp_path / "whole", changed=conditions())
    whole.trainer.run()
    first = Loop(tmp_path / "parts", changed=conditions(), stop_at=120)
    assert first.trainer.run() is False
    again = Loop(tmp_path / "parts", seed=7, changed=conditions()).resume()
    assert again.trainer.run() is True
    assert {**first.evaluations(), **again.evaluations()} == whole.evaluations()
    assert again.store.best() is not None
    assert again.store.load("best").step == whole.store.load("best").step


def test_the_policy_of_a_checkpoint_is_that_of_its_learner(tmp_path):
    loop = Loop(tmp_path)
    loop.trainer.run()
    assert_same(loop.store.load().state["policy"], dict(loop.learner.policy().state_dict()))


def test_without_its_replay_a_run_goes_on_from_everything_else(tmp_path):
    loop = Loop(tmp_path, stop_at=120, save_replay=False)
    loop.trainer.run()
    assert not (tmp_path / "segments").exists()
    assert loop.store.load().state["replay"]["rows_saved"] is False
    other = Loop(tmp_path, seed=5, save_replay=False).resume()
    assert len(other.trainer.replay) == 0
    assert_same(other.learner.state_dict(), loop.learner.state_dict())
    assert other.trainer.collector.env_steps == 120
    assert other.trainer.run() is True
    assert len(other.trainer.replay) == 60


def test_a_run_whose_replay_was_lost_goes_on_with_an_empty_one(tmp_path):
    Loop(tmp_path, stop_at=120).trainer.run()
    for segment in (tmp_path / "segments").iterdir():
        segment.unlink()
    loop = Loop(tmp_path, seed=5, save_replay=False)
    loop.trainer.load_state_dict(CheckpointStore(loop.store.folder).load().state)
    assert len(loop.trainer.replay) == 0
    assert loop.trainer.lost_its_replay
    assert loop.trainer.run() is True


def test_the_wall_time_of_all_sessions_is_added_up(tmp_path):
    first = Loop(tmp_path, stop_at=52)
    first.trainer.run()
    second = Loop(tmp_path).resume()
    assert second.trainer.seconds == pytest.approx(first.trainer.seconds)
    second.trainer.run()
    assert second.records[-1]["seconds"] > first.records[-1]["seconds"]


def test_worlds_that_cannot_be_restored_begin_anew_and_the_rest_goes_on(tmp_path):
    Loop(tmp_path, stop_at=100).trainer.run()
    loop = Loop(tmp_path, seed=1)
    loop.env.spec = replace(loop.env.spec, resumable=False)
    held = len(Loop(tmp_path).resume().trainer.replay)
    loop.resume()
    assert len(loop.trainer.replay) == min(held + WORLDS, 60)
    assert loop.trainer.collector.env_steps == 100
    assert_same(loop.trainer.learner.state_dict(), Loop(tmp_path).resume().learner.state_dict())
    assert not loop.env.state_dict()["episode_step"].any()
    assert loop.trainer.run()


def test_best_is_of_the_highest_return_where_nothing_judges_success(tmp_path):
    loop = Loop(tmp_path)
    evaluation_env = loop.trainer.evaluation_env
    assert isinstance(evaluation_env, ToyEnv)
    evaluation_env.spec = replace(evaluation_env.spec, judges_success=False)
    loop.trainer.run()
    found = [record for record in loop.records if "eval/return" in record]
    assert not any(key.startswith("eval/success") for record in found for key in record)
    best = max(found, key=lambda record: record["eval/return"])
    assert loop.store.load("best").step == best["step"]


def test_a_learner_of_another_version_is_refused_in_words(tmp_path):
    Loop(tmp_path).trainer.run()
    again = Loop(tmp_path)
    state = again.store.load().state
    del state["learner"]["temperature"]
    with pytest.raises(CheckpointError, match=r"has no entry 'temperature'.*provenance\.json"):
        again.trainer.load_state_dict(state)
