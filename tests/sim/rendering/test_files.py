"""Files are complete or not there, and what cannot be read is said in words."""

from pathlib import Path

import numpy as np
import pytest

from robot_rl.core.errors import StorageError
from sim.rendering.files import load_arrays, replacing, save_arrays


@pytest.mark.parametrize("compressed", [True, False])
def test_arrays_numbers_and_words_come_back(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "new" / "some.npz"
    save_arrays(path, {"a": np.arange(3), "b": 0.5, "c": ["x", "yz"]}, compressed=compressed)
    found = load_arrays(path, what="sample", needed=["a", "b", "c"])
    np.testing.assert_array_equal(found["a"], [0, 1, 2])
    assert float(found["b"]) == 0.5
    assert found["c"].tolist() == ["x", "yz"]
    assert [one.name for one in path.parent.iterdir()] == ["some.npz"]


def test_a_write_that_fails_halfway_leaves_the_older_file(tmp_path: Path) -> None:
    class Unwritable:
        def __array__(self) -> np.ndarray:
            raise OSError("the disk is full")

    path = tmp_path / "some.npz"
    save_arrays(path, {"a": np.arange(3)})
    with pytest.raises(StorageError, match=r"cannot write .*some\.npz: the disk is full"):
        save_arrays(path, {"a": np.zeros(3), "b": Unwritable()})
    np.testing.assert_array_equal(load_arrays(path, what="sample", needed=["a"])["a"], [0, 1, 2])
    assert [one.name for one in tmp_path.iterdir()] == ["some.npz"]


def test_a_block_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def write_half() -> None:
        with replacing(tmp_path / "film.mp4") as unfinished:
            unfinished.write_text("half a film")
            raise KeyError

    with pytest.raises(KeyError):
        write_half()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 cut off"])
def test_what_is_no_archive_of_arrays_is_said_in_words(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "some.npz"
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"some\.npz is not a readable sample"):
        load_arrays(path, what="sample", needed=[])


def test_other_archives_and_missing_files_are_said_in_words(tmp_path: Path) -> None:
    path = tmp_path / "some.npz"
    with pytest.raises(StorageError, match="not a readable sample"):
        load_arrays(path, what="sample", needed=[])
    save_arrays(path, {"a": 1})
    with pytest.raises(StorageError, match="it has no b, c"):
        load_arrays(path, what="sample", needed=["a", "b", "c"])
    np.save(tmp_path / "one.npy", np.arange(3))
    with pytest.raises(StorageError, match="not a readable sample"):
        load_arrays(tmp_path / "one.npy", what="sample", needed=[])
