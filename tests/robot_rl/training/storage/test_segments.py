"""Segments are written once, checked when read, and swept when nobody names them."""

import pytest
import torch

from robot_rl.core.errors import CheckpointError
from robot_rl.training.storage.segments import SegmentStore, find_entries


@pytest.fixture
def store(tmp_path):
    return SegmentStore(tmp_path / "replay")


def test_a_name_used_again_leaves_the_first_segment_alone(store):
    first = store.write("steps_0", {"rows": torch.zeros(3)})
    second = store.write("steps_0", {"rows": torch.ones(3)})
    assert store.read(first)["rows"].sum() == 0
    assert store.read(second)["rows"].sum() == 3


def test_a_damaged_missing_or_shortened_segment_is_named(store):
    entry = store.write("steps_0", {"rows": torch.zeros(100)})
    path = store.folder / entry["segment"]
    content = path.read_bytes()
    path.write_bytes(content[:-7] + bytes([content[-7] ^ 4]) + content[-6:])
    with pytest.raises(CheckpointError, match=r"steps_0-.* is damaged"):
        store.read(entry)
    path.write_bytes(content[:-1])
    with pytest.raises(CheckpointError, match="bytes instead of"):
        store.check([entry])
    path.unlink()
    for use in (lambda: store.check([entry]), lambda: store.read(entry)):
        with pytest.raises(CheckpointError, match="is missing"):
            use()


def test_only_what_nobody_names_is_swept(store):
    kept, swept = (store.write(f"steps_{i}", {"rows": torch.full((9,), i)}) for i in range(2))
    leftover = store.folder / ".tmp_steps_2.safetensors"
    leftover.write_bytes(b"half")
    assert store.collect([kept]) == swept["bytes"] + 4
    assert [path.name for path in store.folder.iterdir()] == [kept["segment"]]


def test_an_entry_cannot_point_outside_the_folder(store):
    with pytest.raises(CheckpointError, match="not a path"):
        store.read({"segment": "../secret", "sha256": "", "bytes": 0})


def test_entries_are_found_anywhere_in_a_state(store):
    entries = [store.write(f"s{i}", {"x": torch.zeros(i)}) for i in range(3)]
    state = {"replay": {"segments": entries[:2]}, "other": (entries[2], {"segment": "no"})}
    assert list(find_entries(state)) == entries
