"""Mirrors show the same numbers, and never stop a training."""

import json
import logging
import sys
import types

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from robot_rl.core.errors import ConfigError, MissingExtraError
from robot_rl.training.reporting.metrics import MetricLog
from robot_rl.training.reporting.sinks import LoggingConfig, TensorBoardSink, WandbMode, open_sinks


def record(step):
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
        self._maybe("define")

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
            sink.write(record(step))
        sink.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2]
    assert "seconds" not in events.Tags()["scalars"]


def test_only_what_is_asked_for_is_opened(tmp_path):
    assert sinks(tmp_path, LoggingConfig(tensorboard=False)) == []
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_names_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtraError, match=r"'tensorboard'.*robot_rl\[train\]"):
        sinks(tmp_path, LoggingConfig())
    with pytest.raises(MissingExtraError, match=r"'wandb'.*robot_rl\[train\]"):
        sinks(tmp_path, LoggingConfig(tensorboard=False, wandb=WandbMode.offline))


@pytest.mark.parametrize("place", ["init", "define", "log", "finish"])
def test_a_wandb_failure_warns_once_and_training_goes_on(tmp_path, monkeypatch, caplog, place):
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb(fail=place))
    config = LoggingConfig(tensorboard=False, wandb=WandbMode.online)
    with caplog.at_level(logging.WARNING):
        log = MetricLog(tmp_path / "m.jsonl", sinks(tmp_path, config))
        for step in (1, 2, 3):
            log.write(record(step))
        log.close()
    assert len(caplog.records) == 1
    assert f"no network in {place}; metrics.jsonl has everything" in caplog.text
    assert (tmp_path / "m.jsonl").read_text().count("\n") == 3


def test_an_online_run_goes_on_under_its_id_and_our_steps(tmp_path, monkeypatch):
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    config = LoggingConfig(tensorboard=False, wandb=WandbMode.online, wandb_group="mine")
    for resume_step, step in ((None, 5), (2, 3)):
        (sink,) = sinks(tmp_path, config, resume_step)
        sink.write(record(step))
        sink.close()
        sink.write(record(step + 1))  # after close: nothing
    first, second = wandb.inits
    assert first["id"] == second["id"]
    assert (first["resume"], first["mode"], first["group"]) == ("allow", "online", "mine")
    assert [values["step"] for values in wandb.logged] == [5, 3]
    assert "eval/nan" not in wandb.logged[0]


def test_an_offline_resume_is_a_new_segment_of_the_same_group(tmp_path, monkeypatch):
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    config = LoggingConfig(tensorboard=False, wandb=WandbMode.offline)
    for _ in range(2):
        sinks(tmp_path, config)[0].close()
    first, second = wandb.inits
    assert second["id"] == f"{first['id']}-2"
    assert first["group"] == second["group"] == "g"
    assert second["resume"] is None
    assert json.loads((tmp_path / "wandb.json").read_text())["sessions"] == 2


@pytest.mark.slow
def test_the_real_wandb_writes_offline(tmp_path, caplog):
    caplog.set_level(logging.WARNING)  # whatever level the process has come to
    config = LoggingConfig(tensorboard=False, wandb=WandbMode.offline)
    for _ in range(2):
        (sink,) = sinks(tmp_path, config)
        sink.write(record(1))
        sink.close()
    assert caplog.text == ""
    assert len(list((tmp_path / "wandb").glob("offline-run-*"))) == 2


def test_an_interval_must_be_positive():
    with pytest.raises(ConfigError, match="interval_seconds is 0"):
        LoggingConfig(interval_seconds=0)
