"""Files are complete or not there, and what cannot be read is said in words."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from robot_rl.core.errors import StorageError
from sim.rendering.files import StoredArrays, load_arrays


@dataclass
class Sample(StoredArrays):
    stored_as: ClassVar[str] = "sample"
    a: Any
    b: float
    c: list[str] = field(default_factory=lambda: ["x", "yz"])


def test_arrays_numbers_and_words_come_back_and_a_write_that_fails_leaves_the_older_file(
    tmp_path: Path,
) -> None:
    class Unwritable:
        def __array__(self) -> np.ndarray:
            raise OSError("the disk is full")

    path = tmp_path / "new" / "some.npz"
    Sample(np.arange(3), 0.5).save(path)
    with pytest.raises(StorageError, match=r"cannot write .*some\.npz: the disk is full"):
        Sample(Unwritable(), 0.7).save(path)
    found = Sample.load(path)
    np.testing.assert_array_equal(found.a, [0, 1, 2])
    assert (found.b, found.c) == (0.5, ["x", "yz"])
    assert [one.name for one in path.parent.iterdir()] == ["some.npz"]
    with pytest.raises(StorageError, match="it has no d, e"):
        load_arrays(path, what="sample", needed=["a", "d", "e"])


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 cut off", None])
def test_what_is_no_archive_of_arrays_is_said_in_words(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "some.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StorageError, match=r"some\.npz is not a readable sample"):
        load_arrays(path, what="sample", needed=[])
