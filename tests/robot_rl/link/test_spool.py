"""The spool loses nothing, refuses when it is full, and hands earlier sessions on."""

import collections
import os

import pytest

from robot_rl.core.errors import StorageError
from robot_rl.link.records import Frame, decode
from robot_rl.link.spool import Spool, SpoolFullError
from tests.robot_rl.link.linked import QUOTA, correction, frame


def test_records_are_numbered_without_gaps_and_named_by_their_session(tmp_path):
    spool = Spool(tmp_path, quota_bytes=QUOTA)
    assert [spool.append(frame(0, k)) for k in range(3)] == [0, 1, 2]
    assert spool.append(correction(spool.session)) == 3
    found = [decode(one) for one in spool.batch(spool.session, 0, most_bytes=QUOTA)]
    assert [(one.session, one.seq) for one in found if isinstance(one, Frame)] == [
        (spool.session, k) for k in range(3)
    ]
    spool.close()


def test_a_new_actor_finds_what_the_last_one_left_and_drops_it_when_it_is_stored(tmp_path):
    spool = Spool(tmp_path, quota_bytes=QUOTA)
    first = spool.session
    for k in range(5):
        spool.append(frame(0, k))
    spool.close()
    spool = Spool(tmp_path, quota_bytes=QUOTA)
    assert spool.waiting() == [(first, 0, 5), (spool.session, 0, 0)]
    spool.acknowledge(first, 3)
    assert spool.waiting()[0] == (first, 3, 5)
    assert len(spool.batch(first, 3, most_bytes=QUOTA)) == 2
    spool.acknowledge(first, 5)
    assert spool.waiting() == [(spool.session, 0, 0)]
    spool.close()
    spool = Spool(tmp_path, quota_bytes=QUOTA)
    assert first not in [name for name, _, _ in spool.waiting()]
    spool.close()


def test_a_full_spool_refuses_frames_in_words_and_takes_corrections(tmp_path):
    spool = Spool(tmp_path, quota_bytes=100_000)
    frames = (frame(0, k) for k in range(1000))
    with pytest.raises(SpoolFullError, match=r"0 MB of 0 MB, \d+ records.*bring the learner back"):
        collections.deque(map(spool.append, frames), maxlen=0)
    held = spool.unacknowledged
    assert 10 < held < 100
    spool.append(correction(spool.session))
    assert spool.unacknowledged == held + 1
    assert spool.num_bytes < 110_000
    spool.acknowledge(spool.session, spool.next_seq)
    spool.sync()
    assert spool.full == ""
    assert spool.append(frame(1, 0)) == held + 1
    spool.close()


def test_a_step_never_waits_for_the_disk(tmp_path, monkeypatch):
    """The next file of a log was begun in a control period, behind two calls of fsync."""
    spool = Spool(tmp_path, quota_bytes=100_000)
    synced, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", synced.append)
    for k in range(20):
        spool.append(frame(0, k))
    assert synced == []
    monkeypatch.setattr(os, "fsync", fsync)

    def files():
        return sorted(tmp_path.glob(f"*_{spool.session}/*.log"))

    assert len(files()) == 1
    append_meanwhile = [True]

    def sync_slowly(descriptor):
        fsync(descriptor)
        if append_meanwhile:
            append_meanwhile.pop()
            spool.append(frame(0, 20))

    monkeypatch.setattr(os, "fsync", sync_slowly)
    spool.sync()
    assert len(files()) == 1  # a power cut could tear a file in the middle of the log
    spool.sync()
    assert len(files()) == 2
    spool.append(frame(1, 0))
    assert len(spool.batch(spool.session, 0, most_bytes=QUOTA)) == 22
    spool.close()


def test_a_batch_is_bounded_and_has_one_record_at_least(tmp_path):
    spool = Spool(tmp_path, quota_bytes=QUOTA)
    for k in range(20):
        spool.append(frame(0, k))
    size = len(spool.batch(spool.session, 0, most_bytes=1)[0])
    assert len(spool.batch(spool.session, 0, most_bytes=3 * size)) == 3
    assert len(spool.batch(spool.session, 18, most_bytes=QUOTA)) == 2
    spool.close()


@pytest.mark.slow
def test_two_actors_cannot_share_a_spool(tmp_path):
    spool = Spool(tmp_path, quota_bytes=QUOTA)
    with pytest.raises(StorageError, match="another actor uses the spool"):
        Spool(tmp_path, quota_bytes=QUOTA)
    spool.close()


def test_a_learner_that_lost_its_log_is_told_apart_from_one_that_wants_more(tmp_path):
    spool = Spool(tmp_path, quota_bytes=200_000)
    for k in range(30):
        spool.append(frame(0, k))
        spool.sync()
        spool.acknowledge(spool.session, k + 1)
    with pytest.raises(StorageError, match="was lost or replaced by an older copy"):
        spool.batch(spool.session, 0, most_bytes=QUOTA)
    spool.close()
