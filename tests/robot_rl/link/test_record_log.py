"""The log after cuts at every byte, damage in the middle, full disks and kills."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robot_rl.core.errors import StorageError
from robot_rl.core.process import clean_environ
from robot_rl.link.record_log import RecordLog

ROOT = Path(__file__).parents[3]


def contents(log):
    return [payload for _, payload in log.read(0)]


def test_records_come_back_in_order_over_many_files(tmp_path):
    log = RecordLog(tmp_path, file_bytes=100)
    sent = [bytes([k]) * (k + 1) for k in range(60)]
    assert [log.append([one]) for one in sent] == list(range(60))
    log.close()
    log = RecordLog(tmp_path, file_bytes=100)
    assert len(list(tmp_path.glob("*.log"))) > 5
    assert contents(log) == sent
    assert [number for number, _ in log.read(17, 20)] == [17, 18, 19]
    log.drop_before(30)
    assert 0 < log.first <= 30
    assert contents(log) == sent[log.first :]
    log.close()


@pytest.mark.slow
def test_a_log_cut_at_any_byte_has_all_whole_records_and_goes_on(tmp_path):
    sent = [b"a" * 5, b"b" * 9, b"c" * 3]
    log = RecordLog(tmp_path / "whole")
    ends = []
    for one in sent:
        log.append([one])
        ends.append(log.num_bytes)
    log.close()
    (path,) = (tmp_path / "whole").glob("*.log")
    content = path.read_bytes()
    for cut in range(len(content) + 1):
        folder = tmp_path / f"cut_{cut}"
        folder.mkdir()
        (folder / path.name).write_bytes(content[:cut])
        log = RecordLog(folder)
        whole = sum(end <= cut for end in ends)
        assert contents(log) == sent[:whole]
        assert log.append([b"new"]) == whole
        log.close()
        log = RecordLog(folder)
        assert contents(log) == [*sent[:whole], b"new"]
        log.close()


def test_what_is_cut_off_is_told_and_kept(tmp_path, caplog):
    log = RecordLog(tmp_path)
    log.append([b"first", b"second"])
    log.close()
    (path,) = tmp_path.glob("*.log")
    path.write_bytes(path.read_bytes()[:-2])
    log = RecordLog(tmp_path)
    log.close()
    assert "ended in the middle of record 1" in caplog.text
    assert path.with_suffix(".log.cut").read_bytes().endswith(b"seco")


def test_what_is_cut_off_a_second_time_is_kept_beside_the_first(tmp_path):
    RecordLog(tmp_path).close()
    (path,) = tmp_path.glob("*.log")
    for torn in (b"one", b"two"):
        with path.open("ab") as file:
            file.write(torn)
        RecordLog(tmp_path).close()
    assert path.with_suffix(".log.cut").read_bytes() == b"onetwo"


def test_a_file_that_begins_otherwise_is_refused_and_not_emptied(tmp_path):
    """One wrong bit in the first eight bytes emptied 16 MB without a word."""
    log = RecordLog(tmp_path)
    log.append([b"first"])
    log.close()
    (path,) = tmp_path.glob("*.log")
    content = bytearray(path.read_bytes())
    content[6] ^= 1
    path.write_bytes(content)
    with pytest.raises(StorageError, match="does not begin as a log does"):
        RecordLog(tmp_path)
    assert path.read_bytes() == content


def test_zeros_that_a_power_cut_leaves_are_no_records(tmp_path):
    log = RecordLog(tmp_path)
    log.append([b"first"])
    log.close()
    (path,) = tmp_path.glob("*.log")
    with path.open("ab") as file:
        file.write(bytes(4096))
    log = RecordLog(tmp_path)
    assert contents(log) == [b"first"]
    log.close()


def test_damage_before_newer_records_is_an_error_and_nothing_is_cut(tmp_path):
    log = RecordLog(tmp_path, file_bytes=20)
    for _ in range(4):
        log.append([b"x" * 20])
    log.close()
    first, *_ = sorted(tmp_path.glob("*.log"))
    content = bytearray(first.read_bytes())
    content[-1] ^= 1
    first.write_bytes(content)
    with pytest.raises(StorageError, match="damaged behind record -1"):
        RecordLog(tmp_path)
    assert first.read_bytes() == content


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path, monkeypatch):
    log = RecordLog(tmp_path)
    log.append([b"first"])
    write, calls = os.write, []

    def refuse(descriptor, content):
        calls.append(1)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return write(descriptor, bytes(content)[:7])

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(StorageError, match="no space is left"):
        log.append([b"second"])
    monkeypatch.setattr(os, "write", write)
    assert log.append([b"third"]) == 1
    log.close()
    log = RecordLog(tmp_path)
    assert contents(log) == [b"first", b"third"]
    log.close()


def test_a_file_that_cannot_be_begun_leaves_the_one_before_in_use(tmp_path, monkeypatch):
    log = RecordLog(tmp_path, file_bytes=20)
    log.append([b"first, and long enough"])
    really = os.open

    def refuse(path, *rest):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "open", refuse)
    for _ in range(2):
        with pytest.raises(StorageError, match="no space is left"):
            log.append([b"second"])
    monkeypatch.setattr(os, "open", really)
    assert log.append([b"third"]) == 1
    log.close()
    log = RecordLog(tmp_path)
    assert contents(log) == [b"first, and long enough", b"third"]
    log.close()


def test_the_newest_records_can_be_taken_back(tmp_path):
    log = RecordLog(tmp_path)
    for one in (b"first", b"second", b"third"):
        log.append([one])
    log.take_back(1)
    log.take_back(7)  # nothing
    assert log.next == 1
    log.append([b"fourth"])
    assert contents(log) == [b"first", b"fourth"]
    log.close()
    log = RecordLog(tmp_path)
    assert contents(log) == [b"first", b"fourth"]
    log.close()


_WRITER = """
import sys
from robot_rl.link.record_log import RecordLog
log = RecordLog(sys.argv[1], file_bytes=5000)
while True:
    number = log.next
    log.append([str(number).encode() * (1 + number % 7)])
    print(number, flush=True)
"""


@pytest.mark.slow
def test_a_writer_that_is_killed_at_any_time_loses_no_record_that_it_told_of(tmp_path):
    rng, said = random.Random(0), -1
    for _ in range(12):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True,
            env=clean_environ({"PYTHONPATH": str(ROOT)}),
        )  # fmt: skip
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(rng.uniform(0, 0.05))
        os.kill(writer.pid, signal.SIGKILL)
        lines = [line for line in writer.stdout.read().split("\n")[:-1] if line]
        writer.wait()
        said = max([said, *map(int, lines)])
        log = RecordLog(tmp_path, file_bytes=5000)
        found = contents(log)
        log.close()
        assert len(found) > said
        assert found == [str(k).encode() * (1 + k % 7) for k in range(len(found))]
    assert said > 100
