"""A saved ring goes on as if it had never been away, and saves only what is new."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from robot_rl.buffers.priorities import ReplayConfig
from robot_rl.core.errors import CheckpointError
from tests.equality import assert_same
from tests.fakes import copied
from tests.robot_rl.buffers.story import Story, by_place, story

TOLD = story([[float(t), -float(t)] for t in range(12)], terminated=[(3, 0)], truncated=[(6, 1)])


class MemorySegments:
    def __init__(self) -> None:
        self.held: dict[str, dict[str, Tensor]] = {}

    def write(self, name: str, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        assert name not in self.held
        self.held[name] = {key: value.clone() for key, value in tensors.items()}
        return {"segment": name}

    def read(self, entry: Mapping[str, Any]) -> dict[str, Tensor]:
        return self.held[entry["segment"]]


def with_terms() -> Story:
    told = story([[[float(t), 1.0]] for t in range(6)])
    told.weights = {0: [1.0, 0.5]}
    return told


@pytest.mark.parametrize(("n_step", "priority"), [(1, 0.0), (3, 0.0), (1, 0.5)])
@pytest.mark.parametrize("saves", [(5,), (2, 4, 10), (12,)])
@pytest.mark.parametrize("capacity", [8, 24])
def test_a_restored_ring_samples_bit_equal_now_and_later(n_step, priority, saves, capacity):
    segments, state, done = MemorySegments(), {}, 0
    made = {"capacity": capacity, "n_step": n_step, "config": ReplayConfig(priority=priority)}
    replay = TOLD.replay(**made, seed=1)
    for stop in saves:
        TOLD.tell(replay, done, stop)
        drawn = replay.sample(7).extra["index"]
        replay.set_priorities(drawn, torch.arange(7.0) ** 2)
        state, done = copied(replay.state_dict(segments)), stop
    other = TOLD.replay(**made, seed=2)
    other.load_state_dict(state, segments)
    assert len(other) == len(replay)
    assert_same(other.sample(64), replay.sample(64))
    for each in (replay, other):
        TOLD.tell(each, done)
        each.set_priorities(torch.tensor([1, 2]), torch.tensor([7.0, 0.1]))
    assert_same(other.sample(64), replay.sample(64))
    # It saves as the other would: only what came since.
    assert_same(other.state_dict(MemorySegments()), replay.state_dict(MemorySegments()))


def test_reward_weights_are_restored_before_the_next_step():
    told, segments = with_terms(), MemorySegments()
    replay = told.tell(told.replay())
    other = told.replay(seed=5)
    other.load_state_dict(copied(replay.state_dict(segments)), segments)
    assert_same(other.sample(32), replay.sample(32))


def test_each_save_writes_new_rows_only():
    segments, replay = MemorySegments(), TOLD.replay()
    for stop in (4, 5, 5, 9):
        TOLD.tell(replay, replay.total_steps, stop)
        replay.state_dict(segments)
    written = {int(name[-12:]): len(held["rows"]) for name, held in segments.held.items()}
    assert written == {0: 4, 4: 1, 5: 4}


def test_rows_written_ahead_are_named_by_the_state_and_not_written_again():
    ahead, at_once = MemorySegments(), MemorySegments()
    replays = TOLD.replay(), TOLD.replay()
    for replay in replays:
        TOLD.tell(replay, 0, 5)
    replays[0].save_rows(ahead)
    written = dict(ahead.held)
    states = replays[0].state_dict(ahead), replays[1].state_dict(at_once)
    assert states[0]["entries"] == states[1]["entries"]
    assert ahead.held == written
    assert all(torch.equal(ahead.held[n]["rows"], at_once.held[n]["rows"]) for n in at_once.held)


def test_entries_whose_rows_are_all_overwritten_are_dropped():
    segments, replay = MemorySegments(), TOLD.replay(capacity=8)  # four steps
    held = []
    for stop in (2, 5, 7, 12):
        TOLD.tell(replay, replay.total_steps, stop)
        held.append([entry["segment"][-2:] for entry in replay.state_dict(segments)["entries"]])
    # The last save wrote 8 to 11, the newest four steps: 7 was overwritten before any save.
    assert held == [["00"], ["00", "02"], ["02", "05"], ["08"]]
    assert len(segments.held["steps_000000000008"]["rows"]) == 4


def test_without_segments_the_state_says_so_and_the_ring_starts_empty():
    replay = TOLD.tell(TOLD.replay())
    state = copied(replay.state_dict(None))
    assert state["rows_saved"] is False
    assert state["entries"] == []
    other = TOLD.tell(TOLD.replay(seed=3), stop=5)
    other.load_state_dict(state, MemorySegments())
    assert len(other) == 0
    TOLD.tell(other)
    assert_same(other.sample(32), replay.sample(32))  # the stream of draws goes on all the same
    assert len(other.state_dict(MemorySegments())["entries"]) == 1
    assert other.state_dict(None)["entries"] == []  # else they would stay on the disk for ever


def test_a_ring_that_starts_empty_forgets_rows_of_before_and_saves_its_own():
    before = TOLD.tell(TOLD.replay(n_step=3))
    before.load_state_dict(copied(TOLD.replay(n_step=3).state_dict(None)), None)
    found = by_place(TOLD.tell(before, stop=2), TOLD)
    after = {place: row["next_obs"] for place, row in found.items()}
    assert after == {(0, 0): 10.5, (0, 1): 11.5, (1, 0): 10.5, (1, 1): 11.5}
    entries = before.state_dict(MemorySegments())["entries"]  # from the first on
    assert [(e["first_step"], e["num_steps"]) for e in entries] == [(0, 2)]


def test_a_ring_of_another_shape_is_refused_in_words():
    segments = MemorySegments()
    state = TOLD.tell(TOLD.replay()).state_dict(segments)
    with pytest.raises(CheckpointError, match=r"\[12, 2, \d+\], this run makes \[6, 2, \d+\]"):
        TOLD.replay(capacity=12).load_state_dict(state, segments)


def test_a_saved_state_is_not_changed_by_what_follows():
    replay = TOLD.tell(TOLD.replay(), stop=6)
    segments = MemorySegments()
    state = replay.state_dict(segments)
    before, rows = copied(state), copied(segments.held)
    TOLD.tell(replay, 6)
    replay.sample(9)
    replay.state_dict(segments)
    assert_same(state, before)
    assert_same({name: segments.held[name] for name in rows}, rows)


def test_stamps_and_policy_versions_travel_with_the_ring():
    told, segments = story([[1.0]] * 3), MemorySegments()
    replay = told.replay()
    for t in range(3):
        replay.add(*told.at(t), stamp_ns=1000 + t, policy_version=t)
    state = replay.state_dict(segments)
    assert state["stamps"].tolist() == [[1000, 0], [1001, 1], [1002, 2]]
    other = told.replay()
    other.load_state_dict(state, segments)
    assert torch.equal(other.state_dict(segments)["stamps"], state["stamps"])


@pytest.mark.parametrize("capacity", [10, 24])
def test_a_large_ring_is_saved_in_pieces_and_joined_again(monkeypatch, capacity):
    segments, replay = MemorySegments(), TOLD.replay(capacity=capacity, n_step=3)
    two_steps = 2 * replay.num_bytes // replay.num_steps
    monkeypatch.setattr("robot_rl.buffers.saved_rows._SEGMENT_BYTES", two_steps)
    state = {}
    for stop in (3, 9, 12):
        TOLD.tell(replay, replay.total_steps, stop)
        state = copied(replay.state_dict(segments))
    assert all(len(held["rows"]) <= 2 for held in segments.held.values())
    other = TOLD.replay(capacity=capacity, n_step=3, seed=4)
    other.load_state_dict(state, segments)
    assert_same(other.sample(64), replay.sample(64))
