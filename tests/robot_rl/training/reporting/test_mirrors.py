"""Mirrors have what the run has, and never stop it."""

import builtins
import json
import logging
import sys
import types

import pytest
from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from robot_rl.training.reporting.metrics import MetricLog, RunResults
from robot_rl.training.reporting.mirrors import (
    LoggingConfig,
    TensorBoardSink,
    WandbMode,
    open_sinks,
)
from tests.wandb_file import WandbFile


def mirrored(step):
    return {"step": step, "seconds": step / 10, "train/loss": 1.0 / step, "eval/nan": float("nan")}


def sinks(folder, config, resume_step=None):
    return open_sinks(
        config, folder, name="run", group="g", tags=["hover", "sac"], run_config={"a": {"b": 1}},
        resume_step=resume_step,
    )  # fmt: skip


@pytest.fixture
def results(tmp_path):
    """A run's files: a plot, a video, a bundle, two checkpoints."""
    plot, video, bundle = tmp_path / "curve.png", tmp_path / "flight.mp4", tmp_path / "bundle"
    Figure(figsize=(1, 1)).savefig(plot)
    video.write_bytes(b"of a player")
    bundle.mkdir()
    (bundle / "policy.onnx").write_bytes(b"network")
    folders = [tmp_path / f"step_{step}" for step in (10, 20)]
    for step, folder in zip((10, 20), folders, strict=True):
        folder.mkdir()
        (folder / "tensors.safetensors").write_bytes(b"weights of %d" % step)
    return RunResults(
        step=20, evaluations=[{"step": 10, "eval/return": 2.0}, {"step": 20, "eval/success": 0.5}],
        best={"score": 2.0, "step": 10.0}, pictures={"curve": plot}, videos={"flight": video},
        bundle=bundle, checkpoints={folders[0]: ("best",), folders[1]: ("latest",)},
    )  # fmt: skip


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

    def log(self, values, **options):
        self._maybe("log")
        self.logged.append((values, options))

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


def test_tensorboard_has_configuration_plots_and_the_best_score(tmp_path, results):
    (sink,) = sinks(tmp_path, LoggingConfig())
    sink.show(results)
    sink.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    (text,) = events.Tensors("config/text_summary")
    assert text.tensor_proto.string_val[0].decode() == (
        '    {\n      "a": {\n        "b": 1\n      }\n    }\n'
    )
    (image,) = events.Images("plots/curve")
    assert (image.step, image.width, image.height) == (20, 100, 100)
    assert [event.value for event in events.Scalars("best/score")] == [2.0]


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


@pytest.mark.parametrize(
    ("package", "config"),
    [
        ("wandb", LoggingConfig(tensorboard=False, wandb=WandbMode.online)),
        ("torch.utils.tensorboard", LoggingConfig()),
    ],
)
def test_a_mirror_that_is_not_installed_warns_and_training_goes_on(
    tmp_path, monkeypatch, caplog, results, package, config
):
    load = builtins.__import__

    def missing(name, *arguments, **options):
        if name == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return load(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    with caplog.at_level(logging.WARNING):
        (sink,) = sinks(tmp_path, config)
        sink.write(mirrored(1))
        sink.show(results)
        sink.close()
    assert len(caplog.records) == 1
    assert "is not installed; install it with: pip install 'robot_rl[train]'" in caplog.text


@pytest.mark.parametrize("mode", [WandbMode.online, WandbMode.offline])
def test_a_resumed_run_goes_on_under_its_id(tmp_path, monkeypatch, mode):
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setenv("WANDB_TAGS", "night, sac")
    config = LoggingConfig(tensorboard=False, wandb=mode, wandb_group="mine")
    for resume_step, step in ((None, 5), (2, 3)):
        (sink,) = sinks(tmp_path, config, resume_step)
        sink.write(mirrored(step))
        sink.close()
        sink.write(mirrored(step + 1))  # after close: nothing
    first, second = wandb.inits
    assert second["id"] == first["id"]
    assert first["group"] == second["group"] == "mine"
    assert first["tags"] == ["hover", "sac", "night"]
    assert (second["resume"], second["mode"]) == ("allow", mode.value)
    assert [values["step"] for values, _ in wandb.logged] == [5, 3]
    assert "eval/nan" not in wandb.logged[0][0]
    # wandb numbers rows itself, online from what its server has: offline it has no server.
    offline = mode is WandbMode.offline
    assert [one["step"] for _, one in wandb.logged] == ([0, 1] if offline else [None, None])


@pytest.mark.slow
def test_the_folder_for_wandb_sync_has_all_of_a_run_over_two_sessions(tmp_path, caplog, results):
    caplog.set_level(logging.WARNING)  # whatever level the process has come to
    config = LoggingConfig(tensorboard=False, wandb=WandbMode.offline)
    for step in (10, 20):
        (sink,) = sinks(tmp_path, config, None if step == 10 else 10)
        sink.write(mirrored(step))
        if step == 20:
            sink.show(results)
        sink.close()
    assert caplog.text == ""
    found = [WandbFile(path) for path in (tmp_path / "wandb").glob("offline-run-*/*.wandb")]
    one, two = sorted(found, key=lambda file: file.run.start_time.ToNanoseconds())
    identifier = json.loads((tmp_path / "wandb.json").read_text())["id"]
    for file in (one, two):
        assert file.is_whole
        assert (file.run.run_id, file.run.resume) == (identifier, True)
        assert (file.run.run_group, file.run.job_type, file.run.display_name) == (
            "g", "train", "run"
        )  # fmt: skip
        assert list(file.run.tags)[:2] == ["hover", "sac"]
        assert file.config["a"] == {"b": 1}
    assert [row["train/loss"] for row in (*one.rows, *two.rows[:1])] == [0.1, 0.05]
    assert [row["_step"] for row in (*one.rows, *two.rows)] == [0, 1, 2]
    assert two.summary["best/score"] == 2.0
    assert two.summary["best/step"] == 10.0
    for path in ("media/images/plots/curve", "media/videos/videos/flight", "media/table/evaluat"):
        assert any(media.startswith(path) for media in two.media), two.media
    (table,) = (tmp_path / "wandb").glob("offline-run-*/files/media/table/evaluations*")
    content = json.loads(table.read_text())
    assert content["columns"] == ["step", "eval/return", "eval/success"]
    assert content["data"] == [[10, 2.0, None], [20, None, 0.5]]
    kept = {}
    for artifact in two.artifacts:
        for entry in artifact.manifest.contents:  # copies within the run's folder, for the upload
            assert entry.local_path.startswith(str(tmp_path)), entry.local_path
        kept.setdefault(artifact.name, []).append(set(artifact.aliases))
    assert kept["run-bundle"] == [{"best", "latest"}]
    assert kept["run-checkpoint"] == [{"best", "latest"}, {"latest"}]  # the later one has it
