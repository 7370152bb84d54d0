"""A run folder says who writes it, how it stands, and refuses what would spoil it."""

import json
import logging
import multiprocessing
import os
import time
from typing import Any

import pytest
import yaml

from robot_rl.core.errors import ConfigError, StorageError
from robot_rl.training.runs.run_folder import RunFolder, RunName, RunState, find_runs

NAME = RunName(task="hover", robot="crazyflie", learner="sac", seed=3)
CONFIG = {"seed": 3, "learner": {"lr": 1e-5, "betas": [0.9, 0.999]}, "note": "ü", "none": None}

fork = multiprocessing.get_context("fork")


@pytest.fixture
def run(tmp_path):
    with RunFolder.create(tmp_path / "runs", NAME, CONFIG, {"started": "now"}) as run:
        yield run


def test_a_new_run_has_its_layout(run):
    assert run.path.name.endswith("_hover_crazyflie_sac_s3")
    assert yaml.safe_load(run.config_path.read_text()) == CONFIG
    assert run.config() == CONFIG
    assert run.provenance() == {
        "run": {"task": "hover", "robot": "crazyflie", "learner": "sac", "seed": 3},
        "started": "now",
    }
    for folder in (run.checkpoints, run.replay, run.plots, run.videos):
        assert folder.is_dir()
    assert json.loads((run.path / "status.json").read_text())["state"] == "running"
    others = {RunFolder.create(run.path.parent, NAME, {}, {}).path for _ in range(2)}
    assert set(find_runs(run.path.parent)) == {run.path, *others}


def test_what_was_stopped_while_its_origin_was_written_is_no_run_yet(tmp_path):
    """It could not be gone on with: its config was there, and nobody knew where it came from."""

    class Stopped(dict[str, Any]):
        def items(self) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RunFolder.create(tmp_path, NAME, CONFIG, Stopped(started="now"))
    (folder,) = tmp_path.iterdir()
    with pytest.raises(ConfigError, match="is not a run"):
        RunFolder.open(folder)


def test_a_second_writer_is_refused_and_readers_are_not(run):
    reader = RunFolder.open(run.path)
    assert reader.status().state is RunState.RUNNING
    with pytest.raises(StorageError, match=f"being written by process {os.getpid()}"):
        RunFolder.open(run.path, write=True)
    run.close()
    RunFolder.open(run.path, write=True).close()


def hold(path, ready):
    with RunFolder.open(path, write=True):
        ready.send(True)
        time.sleep(60)


def test_a_killed_run_shows_as_interrupted_and_can_be_taken_over(run):
    run.close()
    ready, child_end = fork.Pipe(duplex=False)
    child = fork.Process(target=hold, args=(run.path, child_end))
    child.start()
    assert ready.poll(20)
    assert RunFolder.open(run.path).status().state is RunState.RUNNING
    child.kill()
    child.join()
    assert RunFolder.open(run.path).status().state is RunState.INTERRUPTED
    RunFolder.open(run.path, write=True).close()


def test_what_is_not_a_run_lists_the_nearest(run):
    wrong = run.path.parent / "2020-01-01_00-00-00_hover_crazyflie_sca_s3"
    with pytest.raises(ConfigError, match=f"does not exist; nearest: {run.path}"):
        RunFolder.open(wrong)
    with pytest.raises(ConfigError, match=r"has no config.yaml; newest") as caught:
        RunFolder.open(run.path.parent)
    assert str(caught.value).count(str(run.path)) == 1
    with pytest.raises(ConfigError, match="there are none in"):
        RunFolder.open(run.path / "runs" / "x")


@pytest.mark.parametrize("status", ['{"state": "weird"}', "[]", "x"])
def test_a_damaged_status_counts_as_interrupted(run, status):
    run.close()
    (run.path / "status.json").write_text(status)
    assert RunFolder.open(run.path).status().state is RunState.INTERRUPTED


@pytest.mark.parametrize("content", [None, "[]", '{"run": 3}'])
def test_a_missing_origin_is_named(run, content):
    run.close()
    (run.path / "provenance.json").unlink()
    if content is not None:
        (run.path / "provenance.json").write_text(content)
    with pytest.raises(ConfigError, match=r"provenance.json is missing or damaged"):
        RunFolder.open(run.path).chosen()


def test_a_damaged_configuration_is_named(run):
    for text, told in (("a: [", "cannot be read"), ("", "holds no configuration")):
        run.config_path.write_text(text)
        with pytest.raises(ConfigError, match=rf"config\.yaml .*{told}"):
            run.config()
