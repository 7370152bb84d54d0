"""JSON lines are the truth: nothing twice, nothing half, whatever interrupts."""

import json
import math

import pytest

from robot_rl.core.errors import StorageError
from robot_rl.training.reporting.metrics import MetricLog, read_metrics


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def record(step, **metrics):
    return {"step": step, "seconds": step / 10, **{f"train/{k}": v for k, v in metrics.items()}}


class Memory:
    def __init__(self):
        self.records, self.closed = [], False

    def write(self, record):
        self.records.append(dict(record))

    def close(self):
        self.closed = True


def test_records_come_back_and_reach_the_sinks(path):
    sink = Memory()
    records = [record(1, loss=0.1), record(2, loss=1e-300), record(3, loss=-0.0)]
    with MetricLog(path, [sink]) as log:
        for one in records:
            log.write(one)
            assert read_metrics(path)[-1] == one  # on disk at once
    assert read_metrics(path) == sink.records == records
    assert sink.closed


def test_lines_are_strict_json_and_what_is_not_finite_reads_as_nan(path):
    with MetricLog(path) as log:
        log.write(record(1, a=math.nan, b=-math.inf, c=1.0))

    def refuse(name):
        raise AssertionError(name)

    json.loads(path.read_text(), parse_constant=refuse)
    found = read_metrics(path)[0]
    assert math.isnan(found["train/a"])
    assert math.isnan(found["train/b"])
    assert found["train/c"] == 1.0


def test_a_resumed_run_writes_no_step_twice(path):
    with MetricLog(path) as log:
        for step in (10, 20, 30, 40):
            log.write(record(step, loss=1.0))
    with path.open("a") as file:
        file.write('{"step": 50, "sec')  # killed while writing
    with MetricLog(path, resume_step=20) as log:
        assert [r["step"] for r in read_metrics(path)] == [10, 20]
        log.write(record(30, loss=2.0))
    assert [(r["step"], r["train/loss"]) for r in read_metrics(path)] == [
        (10, 1.0),
        (20, 1.0),
        (30, 2.0),
    ]


def test_a_resume_from_before_the_first_record_starts_over(path):
    with MetricLog(path) as log:
        log.write(record(10))
    MetricLog(path, resume_step=5).close()
    assert read_metrics(path) == []


def test_a_resume_without_a_file_is_a_start(path):
    with MetricLog(path, resume_step=5) as log:
        log.write(record(6))
    assert len(read_metrics(path)) == 1


def test_records_of_one_step_are_merged_into_one_line(path):
    with MetricLog(path) as log:
        log.write(record(1, loss=1.0))
        log.write(record(2, loss=2.0))
        log.write({"step": 2, "seconds": 0.3, "eval/success": 0.5})
        log.write(record(3, loss=3.0))
    assert path.read_text().count("\n") == 3
    assert read_metrics(path)[1] == {
        "step": 2,
        "seconds": 0.3,
        "train/loss": 2.0,
        "eval/success": 0.5,
    }


@pytest.mark.parametrize("junk", [b"", b"\n", b"{", b'{"seconds": 1}\n', b"7\n", b"\xff\xfe\n"])
def test_reading_passes_over_what_is_no_record(path, junk):
    path.write_bytes(b'{"step": 1, "seconds": 0.5}\n' + junk)
    assert read_metrics(path) == [{"step": 1, "seconds": 0.5}]


def test_no_file_is_no_records(path):
    assert read_metrics(path) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"step": 1, "seconds": 0.0, "loss": 1.0},
        {"step": 1, "seconds": 0.0, "evaluation/x": 1.0},
        {"step": 1},
        {"seconds": 1.0},
    ],
)
def test_a_wrong_name_is_refused_at_the_first_record(path, wrong):
    with MetricLog(path) as log, pytest.raises(ValueError, match="expected step, seconds"):
        log.write(wrong)


def test_time_does_not_run_backwards(path):
    with MetricLog(path) as log:
        log.write(record(5))
        with pytest.raises(ValueError, match="step 4 came after step 5"):
            log.write(record(4))


def test_an_unwritable_place_is_one_sentence(tmp_path):
    with pytest.raises(StorageError, match="cannot write the metrics"):
        MetricLog(tmp_path / "missing" / "metrics.jsonl")


def test_a_full_disk_is_one_sentence():
    log = MetricLog("/dev/full")
    with pytest.raises(StorageError, match="no space is left"):
        log.write(record(1))
