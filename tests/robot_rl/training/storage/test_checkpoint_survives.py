"""Checkpoints survive what machines do: kills at any moment, full disks, missing rights."""

import multiprocessing
import os
import random
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch

from robot_rl.core.errors import StorageError
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.storage.segments import SegmentStore
from tests.robot_rl.little_space import limit_files, told_by_child

fork = multiprocessing.get_context("fork")


def state(step, size=20_000):
    return {"w": torch.full((size,), step, dtype=torch.int64), "step": step}


def save_for_ever(folder, first, reports):
    segments = SegmentStore(folder / "replay")
    store = CheckpointStore(folder / "checkpoints", segments=segments)
    step = first
    while True:
        entry = segments.write(f"steps_{step}", {"x": torch.full((2000,), step)})
        store.save(step, {**state(step), "replay": [entry]}, score=float(step % 5))
        if step % 4 == 0:
            store.save(step, {**state(step), "replay": [entry]}, score=float(step % 5))
        reports.send(step)
        step += 1


@pytest.mark.slow
def test_a_run_killed_at_any_moment_finds_its_last_complete_checkpoint(tmp_path):
    delays = random.Random(0)
    done = 0
    segments = SegmentStore(tmp_path / "replay")
    for _ in range(10):
        reports, child_end = fork.Pipe(duplex=False)
        child = fork.Process(target=save_for_ever, args=(tmp_path, done + 1, child_end))
        child.start()
        child_end.close()
        assert reports.poll(20)  # it is saving
        child.join(timeout=delays.uniform(0, 0.1))
        child.kill()
        child.join()
        while reports.poll():
            try:
                done = reports.recv()
            except EOFError:
                break

        store = CheckpointStore(tmp_path / "checkpoints", segments=segments)
        found = store.load()
        assert found.step in (done, done + 1)  # saved, perhaps not reported any more
        assert torch.equal(found.state["w"], state(found.step)["w"])
        assert int(segments.read(found.state["replay"][0])["x"][0]) == found.step
        for step in store.steps():
            assert store.load(store.folder / f"step_{step:012d}").step == step
        assert store.load("best").score == max(
            store.load(store.folder / f"step_{step:012d}").score or 0 for step in store.steps()
        )
        assert not list(store.folder.glob(".*"))
        done = found.step


def told(folder, prepare):
    """The sentence about a checkpoint that cannot be saved."""
    return told_by_child(lambda: (prepare(), CheckpointStore(folder).save(2, state(2))))


def assert_earlier_one_is_intact(folder):
    store = CheckpointStore(folder)
    assert store.steps() == [1]
    assert torch.equal(store.load().state["w"], state(1)["w"])
    assert [path.name for path in folder.iterdir()] == ["step_000000000001"]


def test_a_file_size_limit_is_one_sentence_and_earlier_checkpoints_stay(tmp_path):
    CheckpointStore(tmp_path).save(1, state(1))
    message = told(tmp_path, lambda: limit_files(50_000))
    assert "step_000000000002: the file would be larger than the limit" in message
    assert_earlier_one_is_intact(tmp_path)


def test_a_folder_without_the_right_to_write_is_one_sentence():
    def give_up_root():
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)

    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to others
        folder = Path(name)
        CheckpointStore(folder).save(1, state(1))
        folder.chmod(0o555)
        try:
            assert "no right to write there" in told(folder, give_up_root)
        finally:
            folder.chmod(0o755)
        assert_earlier_one_is_intact(folder)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of one megabyte; needs the right to mount."""
    path = tmp_path / "disk"
    path.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", path], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip("mounting a small disk is not allowed here")
    yield path
    subprocess.run(["umount", path], check=True)


def test_a_full_disk_is_one_sentence_and_earlier_checkpoints_stay(small_disk):
    folder, segments = small_disk / "checkpoints", SegmentStore(small_disk / "replay")
    store, entry = CheckpointStore(folder), segments.write("a", {"x": torch.ones(1000)})
    store.save(1, state(1))
    with pytest.raises(StorageError, match="no space is left on the disk") as caught:
        store.save(2, state(2, size=400_000))
    assert "\n" not in str(caught.value)
    with pytest.raises(StorageError, match="no space is left"):
        segments.write("b", {"x": torch.ones(400_000)})
    assert_earlier_one_is_intact(folder)
    assert segments.read(entry)["x"].sum() == 1000
    store.save(2, state(2))  # what the failed ones took was given back
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StorageError, match="file system is read-only"):
        store.save(3, state(3))
