"""JSON lines are the truth: nothing twice, nothing half, whatever interrupts."""

import json
import math

import pytest

from robot_rl.training.reporting.metrics import MetricLog, RunResults, read_metrics


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def record(step, **metrics):
    return {"step": step, "seconds": step / 10, **{f"train/{k}": v for k, v in metrics.items()}}


class Memory:
    def __init__(self):
        self.records, self.shown, self.closed = [], [], False

    def write(self, record):
        self.records.append(dict(record))

    def show(self, results):
        self.shown.append(results)

    def close(self):
        self.closed = True


def test_records_come_back_and_reach_the_sinks(path):
    sink = Memory()
    records = [record(1, loss=0.1), record(2, loss=1e-300), record(3, loss=-0.0)]
    with MetricLog(path, [sink]) as log:
        for one in records:
            log.write(one)
            assert read_metrics(path)[-1] == one  # on disk at once
        log.show(RunResults(step=3))
    assert read_metrics(path) == sink.records == records
    assert sink.closed
    assert sink.shown == [RunResults(step=3)]


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
        log.write({"step": 30, "seconds": 0.3, "eval/success": 0.5})
    losses = [(r["step"], r["train/loss"]) for r in read_metrics(path)]
    assert losses == [(10, 1.0), (20, 1.0), (30, 2.0)]
    assert read_metrics(path)[-1]["eval/success"] == 0.5  # of one step is one line
    with MetricLog(path, resume_step=30) as log:  # nothing has come since
        log.write(record(30, loss=3.0))
        log.write(record(40, loss=4.0))
    losses = [(r["step"], r["train/loss"]) for r in read_metrics(path)]
    assert losses == [(10, 1.0), (20, 1.0), (30, 3.0), (40, 4.0)]
    assert read_metrics(path)[-2]["eval/success"] == 0.5
    MetricLog(path, resume_step=5).close()  # from before the first record
    assert read_metrics(path) == []


def test_what_comes_late_is_added_to_the_record_of_its_step(path):
    sink = Memory()
    with MetricLog(path, [sink]) as log:
        for step in (10, 20, 30):
            log.write(record(step, loss=1.0))
        log.amend({"step": 20, "eval/success": 0.5})
        log.write({"step": 30, "seconds": 0.3, "train/more": 2.0})  # still merged with the last
        log.amend({"step": 30, "eval/success": 0.6})
        log.write(record(40, loss=4.0))
        with pytest.raises(ValueError, match="no record of step 25"):
            log.amend({"step": 25, "eval/success": 0.7})
    found = read_metrics(path)
    assert [one["step"] for one in found] == [10, 20, 30, 40]
    assert [one.get("eval/success") for one in found] == [None, 0.5, 0.6, None]
    assert (found[2]["train/more"], found[2]["train/loss"]) == (2.0, 1.0)
    assert sink.records[3] == {"step": 20, "seconds": found[1]["seconds"], "eval/success": 0.5}


@pytest.mark.parametrize("junk", [b"{", b'{"seconds": 1}\n', b"7\n", b"\xff\xfe\n"])
def test_reading_passes_over_what_is_no_record(path, junk):
    path.write_bytes(b'{"step": 1, "seconds": 0.5}\n' + junk)
    assert read_metrics(path) == [{"step": 1, "seconds": 0.5}]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"step": 6, "seconds": 0.0, "evaluation/x": 1.0}, "expected step, seconds"),
        ({"step": 6}, "expected step, seconds"),
        (record(4), "step 4 came after step 5"),
    ],
)
def test_a_wrong_name_and_a_time_that_runs_backwards_are_refused(path, wrong, told):
    with MetricLog(path) as log:
        log.write(record(5))
        with pytest.raises(ValueError, match=told):
            log.write(wrong)
