"""Files that are written whole, and never much at once."""

import io
import json
from pathlib import Path

import pytest

from robot_rl.training.storage import durable


@pytest.mark.parametrize("size", [0, 1, 1 << 20, 3_500_000])
def test_content_of_any_size_arrives_whole(tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    durable.replace_file(tmp_path / "file", content)
    assert (tmp_path / "file").read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_no_call_writes_more_than_a_mebibyte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A larger one keeps a processor from a robot's loop beside it (docs/limits.md)."""
    sizes: list[int] = []

    class Counting(io.FileIO):
        def write(self, content: object) -> int:
            written = super().write(content)  # pyright: ignore[reportArgumentType]
            sizes.append(written)
            return written

    def opened(path: Path, mode: str) -> io.BufferedWriter:
        return io.BufferedWriter(Counting(str(path), mode.replace("b", "")))

    monkeypatch.setattr(Path, "open", opened)
    durable.write_synced(tmp_path / "file", b"x" * 3_500_000)
    assert sum(sizes) == 3_500_000
    assert max(sizes) <= 1 << 20


def test_plain_data_arrive_as_json_in_place_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    durable.replace_json(path, {"a": 1})
    durable.replace_json(path, {"b": [True, None]})
    assert json.loads(path.read_bytes()) == {"b": [True, None]}
    assert list(tmp_path.iterdir()) == [path]
