"""JSON lines are the truth: nothing twice, nothing half, whatever interrupts."""

import json
import logging
import math
import sys
import types

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from robot_rl.training.reporting.metrics import (
    LoggingConfig,
    MetricLog,
    TensorBoardSink,
    WandbMode,
    open_sinks,
    read_metrics,
)


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
        log.write({"step": 30, "seconds": 0.3, "eval/success": 0.5})
    losses = [(r["step"], r["train/loss"]) for r in read_metrics(path)]
    assert losses == [(10, 1.0), (20, 1.0), (30, 2.0)]
    assert read_metrics(path)[-1]["eval/success"] == 0.5  # of one step is one line
    MetricLog(path, resume_step=5).close()  # from before the first record
    assert read_metrics(path) == []


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


def mirrored(step):
    return {"step": step, "seconds": step / 10, "train/loss": 1.0 / step, "eval/nan": float("nan")}


def sinks(folder, config, resume_step=None):
    return open_sinks(
        config, folder, name="run", group="g", run_config={"a": 1}, resume_step=resume_step
    )


class FakeWandb(types.ModuleType):
    """As much of wandb as we use; fails where it is told to."""

    def __init__(self, fail=""):
        super().__init__("wandb")
        self.fail, self.inits, self.logged = fail, [], []
        self.Settings = dict

    def init(self, **arguments):
        self._maybe("init")
        self.inits.append(arguments)
        return self

    def define_metric(self, *_, **__):
        """Charts are not looked at."""

    def log(self, values):
        self._maybe("log")
        self.logged.append(values)

    def finish(self):
        self._maybe("finish")

    def _maybe(self, place):
        if place == self.fail:
            raise ConnectionError(f"no network in {place}\nand more")


def test_tensorboard_hides_what_was_after_the_resumed_step(tmp_path):
    for resume_step, steps in ((None, (1, 2, 3)), (1, (2,))):
        sink = TensorBoardSink(tmp_path, resume_step=resume_step)
        for step in steps:
            sink.write(mirrored(step))
        sink.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2]
    assert "seconds" not in events.Tags()["scalars"]


@pytest.mark.parametrize("place", ["init", "log", "finish"])
def test_a_wandb_failure_warns_once_and_training_goes_on(tmp_path, monkeypatch, caplog, place):
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb(fail=place))
    config = LoggingConfig(tensorboard=False, wandb=WandbMode.online)
    with caplog.at_level(logging.WARNING):
        log = MetricLog(tmp_path / "m.jsonl", sinks(tmp_path, config))
        for step in (1, 2, 3):
            log.write(mirrored(step))
        log.close()
    assert len(caplog.records) == 1
    assert f"no network in {place}; metrics.jsonl has everything" in caplog.text
    assert (tmp_path / "m.jsonl").read_text().count("\n") == 3


@pytest.mark.parametrize("mode", [WandbMode.online, WandbMode.offline])
def test_a_run_goes_on_under_its_id_and_an_offline_one_in_a_new_segment(
    tmp_path, monkeypatch, mode
):
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    config = LoggingConfig(tensorboard=False, wandb=mode, wandb_group="mine")
    for resume_step, step in ((None, 5), (2, 3)):
        (sink,) = sinks(tmp_path, config, resume_step)
        sink.write(mirrored(step))
        sink.close()
        sink.write(mirrored(step + 1))  # after close: nothing
    first, second = wandb.inits
    online = mode is WandbMode.online
    assert second["id"] == (first["id"] if online else f"{first['id']}-2")
    assert first["group"] == second["group"] == "mine"
    assert (second["resume"], second["mode"]) == ("allow" if online else None, mode.value)
    assert [values["step"] for values in wandb.logged] == [5, 3]
    assert "eval/nan" not in wandb.logged[0]


@pytest.mark.slow
def test_the_real_wandb_writes_offline(tmp_path, caplog):
    caplog.set_level(logging.WARNING)  # whatever level the process has come to
    config = LoggingConfig(tensorboard=False, wandb=WandbMode.offline)
    (sink,) = sinks(tmp_path, config)
    sink.write(mirrored(1))
    sink.close()
    assert caplog.text == ""
    assert len(list((tmp_path / "wandb").glob("offline-run-*"))) == 1
