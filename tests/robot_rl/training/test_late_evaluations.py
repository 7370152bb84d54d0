"""Evaluations beside: the run and its best checkpoint are those that it has without them."""

import logging
import os
import signal
from typing import Any

import pytest

from robot_rl.training.late_evaluations import EvaluationProcess
from robot_rl.training.storage.checkpoint import CheckpointStore, read_manifest
from tests.equality import assert_same
from tests.robot_rl.training.loop import Loop, future_of
from tests.robot_rl.training.toy_evaluation_process import process

pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {"total_steps": 240, "evaluation_interval": 60, "keep_last": 1}


def scores(store: CheckpointStore) -> dict[str, Any]:
    """Score of each checkpoint that is left, and the best."""
    found = {str(step): read_manifest(store.path_of(step))["score"] for step in store.steps()}
    return {**found, "best": (store.folder / "best.json").read_bytes()}


End = dict[str, Any]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> End:
    """The end of a run that evaluates by itself."""
    loop = Loop(tmp_path_factory.mktemp("plain"), **SETTINGS)
    assert loop.trainer.run() is True
    return end_of(loop)


def end_of(*sessions: Loop) -> End:
    evaluations = {}
    for one in sessions:
        evaluations |= one.evaluations()
    last = sessions[-1]
    return {"future": future_of(last), "scores": scores(last.store), "evaluations": evaluations}


def assert_ends_like(loop: Loop, plain: End, *before: Loop) -> None:
    end = end_of(*before, loop)
    assert_same(end["future"], plain["future"])
    assert end["scores"] == plain["scores"]
    evaluations = end["evaluations"]
    assert evaluations == plain["evaluations"]
    assert sorted(evaluations) == [60, 120, 180, 240]


def is_gone(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    return False


def number_of(beside: EvaluationProcess) -> int:
    assert beside._process is not None
    return beside._process.pid


def test_a_run_and_its_best_checkpoint_are_the_same_bit_for_bit(tmp_path, plain):
    for name, seconds in (("quick", 0.0), ("slow", 0.5)):
        beside = process(tmp_path / name, seconds=seconds)
        beside.start()
        number = number_of(beside)
        loop = Loop(tmp_path / name, beside=beside, **SETTINGS)
        assert loop.trainer.run() is True
        assert_ends_like(loop, plain)
        assert is_gone(number)


@pytest.mark.parametrize(
    ("trouble", "told"),
    [({"fails": True}, "ValueError: a part is missing"), ({"ends": True}, "exit code 3; ")],
)
def test_a_process_that_fails_is_told_and_the_run_evaluates_by_itself(
    tmp_path, plain, caplog, trouble, told
):
    loop = Loop(tmp_path, beside=process(tmp_path, **trouble), **SETTINGS)
    with caplog.at_level(logging.WARNING):
        assert loop.trainer.run() is True
    (said,) = [one.message for one in caplog.records if "beside" in one.message]
    assert told in said
    assert said.endswith("from here on this one evaluates")
    assert_ends_like(loop, plain)


def test_a_process_that_is_killed_is_told_by_its_signal(tmp_path, plain, caplog):
    beside = process(tmp_path, seconds=60.0)
    beside.start()
    loop = Loop(tmp_path, beside=beside, **SETTINGS)
    os.kill(number_of(beside), signal.SIGKILL)
    assert loop.trainer.run() is True
    assert "it was ended by SIGKILL" in caplog.text
    assert_ends_like(loop, plain)


@pytest.mark.parametrize("again_beside", [True, False])
def test_what_a_stopped_run_was_waiting_for_is_evaluated_when_it_goes_on(
    tmp_path, plain, again_beside
):
    beside = process(tmp_path, seconds=60.0)
    first = Loop(tmp_path, beside=beside, stop_at=80, **SETTINGS)
    assert first.trainer.run() is False  # without waiting a minute
    assert first.store.load().state["unscored"] == [{"step": 60, "settled": False}]
    assert first.store.best() is None
    late = process(tmp_path) if again_beside else None
    again = Loop(tmp_path, seed=9, beside=late, **SETTINGS).resume()
    assert again.trainer.run() is True
    assert_ends_like(again, plain, first)
    longer = Loop(tmp_path, **{**SETTINGS, "total_steps": 280}).resume()
    assert longer.trainer.run() is True
    assert list(longer.evaluations()) == [280]  # what has its score is not evaluated again


def test_a_stop_at_an_evaluation_leaves_both_to_the_resumed_run(tmp_path, plain):
    first = Loop(tmp_path, beside=process(tmp_path, seconds=60.0), **SETTINGS)

    def stop_at_second(record):
        if record["step"] >= 60:
            first.trainer.stop()

    first.trainer._record = stop_at_second
    assert first.trainer.run() is False
    again = Loop(tmp_path, seed=9, **SETTINGS).resume()
    assert again.trainer.run() is True
    assert_ends_like(again, plain)
