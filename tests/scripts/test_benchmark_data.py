"""`python -m scripts.bench data`: what is read is not held, and what is damaged is not believed."""

import importlib
from typing import Any

import pytest

from robot_rl.core.errors import ConfigError

MIB = 1 << 20


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda name: importlib.import_module(f"scripts.bench.datasets.{name}")


@pytest.mark.slow
@pytest.mark.full
def test_no_operation_holds_the_data_set_that_it_goes_through(bench, tmp_path):
    formats = ("robomimic", "npz")
    lines: list[str] = []
    nothing, *done = bench("streaming").measure_streaming(
        0.12, tmp_path, lines.append, file_megabytes=4, formats=formats
    )
    assert [one["name"] for one in done] == [
        "write half of it", "merge", "info", "iterate",
        *(f"convert {way} {kind}" for kind in formats for way in ("to", "from")),
        "info of what came back",
    ]  # fmt: skip
    for one in done:  # 120 MB pass through, in files of 4 MB
        assert one["peak"] - nothing["peak"] < 100 * MIB, one
    assert len(lines) == 1 + 1 + len(done)
    assert not list(tmp_path.iterdir())


def test_a_disk_without_room_is_told_before_anything_is_written(bench, tmp_path):
    with pytest.raises(ConfigError, match=r"1e\+07 GB and what is made of it need 2.* take --gig"):
        bench("streaming").measure_streaming(1e7, tmp_path, print)
    with pytest.raises(ConfigError, match="--gigabytes must be at least"):
        bench("streaming").measure_streaming(float("nan"), tmp_path, print)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.full)])
def test_damaged_files_are_refused_repaired_or_not_needed(bench, tmp_path, count):
    tally = bench("corruptions").damage_many(count, tmp_path)
    assert tally.faults == []
    what = {outcome: sum(n for (_, one), n in tally.outcomes.items() if one == outcome)
            for outcome in ("refused", "not needed", "unnoticeable", "repaired")}  # fmt: skip
    assert what["refused"] + what["not needed"] + what["unnoticeable"] == count
    assert what["refused"] > 0.7 * count
    assert what["repaired"] == 0.04 * count
    assert what["unnoticeable"] < 0.03 * count, "bits in files of others that hold no checksums"
    assert (
        tally.outcomes["ours", "refused"]
        == tally.outcomes["ours with videos", "refused"]
        == count / 10
    )


def test_what_would_be_believed_is_found_by_the_benchmark(bench, tmp_path, monkeypatch):
    """The judge is judged: a reader that compares nothing must be blamed."""
    checks = importlib.import_module("robot_rl.datasets.reader")
    monkeypatch.setattr(checks, "check_file", lambda *_: None)
    tally = bench("corruptions").damage_many(40, tmp_path)
    assert any("as if nothing had happened" in one for one in tally.faults)
