"""Whole runs in miniature on two ranks: their end, their checkpoints, what stops them."""

from pathlib import Path
from typing import Any

import pytest

from robot_rl.core.errors import CheckpointError, NonFiniteError
from robot_rl.training.ranks import Ranks
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.storage.segments import SegmentStore
from tests.equality import assert_same
from tests.robot_rl.training.forked_ranks import on_ranks
from tests.robot_rl.training.loop import SETTINGS, Loop, future_of

pytestmark = pytest.mark.slow


def run(folder: Path, *, resume: bool = False, **settings: Any) -> list[Any]:
    """Whether each rank came to the end, its state and its records."""

    def work(ranks: Ranks) -> Any:
        loop = Loop(folder, ranks=ranks, **settings)
        if resume:
            loop.resume()
        ended = loop.trainer.run()
        return ended, future_of(loop), loop.records, loop.env.steps

    return on_ranks(work)


def test_two_ranks_collect_half_each_and_end_with_the_same_weights(tmp_path):
    (first, second) = run(tmp_path)
    assert first[0] is second[0] is True
    # 240 steps of eight worlds in two shares of four.
    assert (first[3], second[3]) == (30, 30)
    assert first[1]["collector"]["world_steps"] == SETTINGS["total_steps"]
    for part in ("actor", "critic", "target_critic", "temperature"):
        assert_same(first[1]["learner"][part], second[1]["learner"][part])
    assert CheckpointStore(tmp_path / "checkpoints", read_only=True).steps() == [104, 200, 240]
    worlds = [one[1]["env"]["state"] for one in (first, second)]
    assert not worlds[0].equal(worlds[1]), "each rank has worlds of its own"
    assert "eval/success" in first[2][-1]
    assert [record["step"] for record in first[2]] == [104, 200, 240]
    # Only what differs between ranks is saved twice.
    (entry,) = CheckpointStore(tmp_path / "checkpoints", read_only=True).load().state["ranks"]
    names = SegmentStore(tmp_path / "segments").read(entry["tensors"]).keys()
    assert {"/learner/generator", "/env/state"} <= names
    assert not [name for name in names if name.startswith("/learner/actor/")]


def test_a_resumed_run_equals_the_uninterrupted_one_on_every_rank(tmp_path):
    whole = run(tmp_path / "whole")
    stopped = run(tmp_path / "parts", stop_at=120)
    assert [one[0] for one in stopped] == [False, False]
    resumed = run(tmp_path / "parts", resume=True, seed=99)
    for one, other in zip(resumed, whole, strict=True):
        assert one[0] is True
        assert_same(one[1], other[1])


def test_another_number_of_ranks_is_refused_with_the_right_one(tmp_path):
    run(tmp_path, stop_at=40)
    with pytest.raises(CheckpointError, match=r"written by 2 rank.*this session has 1.*torchrun"):
        Loop(tmp_path).resume()
    Loop(tmp_path / "alone", stop_at=40).trainer.run()
    for error in run(tmp_path / "alone", resume=True):
        assert "written by 1 rank(s)" in str(error)
        assert "one process" in str(error)


def test_a_nan_in_the_worlds_of_one_rank_stops_both_and_names_it(tmp_path):
    def work(ranks: Ranks) -> None:
        where = {"nan_at": {"reward": (20, 2)}} if ranks.rank == 1 else {}
        Loop(tmp_path, ranks=ranks, env=where, updates_per_step=0).trainer.run()

    for error in on_ranks(work):
        assert isinstance(error, NonFiniteError)
        assert str(error).startswith("on rank 1 of 2, reward was NaN in world 2")
    assert CheckpointStore(tmp_path / "checkpoints", read_only=True).steps() == [104]


def test_ranks_whose_clocks_differ_and_of_which_one_hears_a_signal_save_together(tmp_path):
    def work(ranks: Ranks) -> Any:
        seconds = 1e-9 if ranks.rank == 1 else 0.0
        loop = Loop(tmp_path, ranks=ranks, interval_seconds=0.0, checkpoint_seconds=seconds)
        if ranks.rank == 1:
            loop.stop_at = 64
        return loop.trainer.run(), loop.trainer.collector.env_steps

    assert on_ranks(work) == [(False, 64), (False, 64)]
    steps = CheckpointStore(tmp_path / "checkpoints", read_only=True).steps()
    assert steps == [*range(8, 65, 8)]
