"""`python -m scripts.bench learn`: a learning robot whose processes are killed, for a moment."""

import json
from pathlib import Path

import pytest

from scripts.bench.learning_endurance import growth, spooled


def test_records_of_a_spool_are_counted_without_opening_it(tmp_path):
    log = tmp_path / "0001_abc"
    log.mkdir()
    whole, cut = b"\x03\0\0\0CRC!abc", b"\x09\0\0\0CRC!half"
    (log / f"{0:020d}.log").write_bytes(b"RRLLOG1\n" + whole)
    (log / f"{5:020d}.log").write_bytes(b"RRLLOG1\n" + 2 * whole + cut)
    (tmp_path / "store").write_text("name")
    assert spooled(tmp_path) == {"abc": 7}


def test_growth_compares_the_end_with_the_second_quarter():
    samples = [
        {"processes": {"actor": {"mb": 100.0 + 10 * (i >= 6), "files": 7}}} for i in range(8)
    ]
    assert growth(samples) == {"actor": {"mb": 1.1, "files": 1.0}}


@pytest.mark.slow
@pytest.mark.full
def test_a_run_that_is_killed_once_loses_nothing(command, here):
    asked = ("scripts.bench.__main__", "learn", "quick=true", "runs=found", "json=out.json")
    answer = command(*asked)
    record = json.loads(Path("out.json").read_text())["learn"]
    assert len(record["kills"]) == 1
    assert record["lost"] == {}
    assert record["sessions_out_of_order"] == []
    assert record["learned_position"] == record["position"] > 0
    assert (record["exit_code"], record["left"]) == (0, [])
    assert record["labels"]["pressed"] > 0
    assert record["labels"]["wrong"] == []
    assert record["safety"][1] == record["safety_without_kills"][1] != ""
    assert "as it must be" in answer.out
