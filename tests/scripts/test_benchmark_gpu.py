"""`scripts/benchmark.py gpu`: its stages one after another, on the CPU at tiny sizes."""

import importlib
import json
import signal
from pathlib import Path

import pytest
import torch

from robot_rl.core.errors import ConfigError

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def stages(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("benchmarks.gpu.stages")


def test_what_it_needs_is_told_without_a_gpu(command, here):
    answer = command("benchmark", "gpu", "--requirements")
    assert answer.code == 0, answer.err
    assert "NVIDIA GPU" in answer.out
    assert ".[train,sim,gpu]" in answer.out


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU")
def test_a_machine_without_a_gpu_is_told_so(command, here):
    answer = command("benchmark", "gpu")
    assert answer.code == 2
    assert "device 'cuda' was asked for" in answer.err


@pytest.mark.slow
def test_stages_are_done_one_by_one_and_remembered(command, here):
    asked = ("benchmark", "gpu", "--device", "cpu", "--quick", "--runs", "found")
    for done in (["speed"], ["speed", "train hover"], ["speed", "train hover", "check hover"]):
        answer = command(*asked)
        assert answer.code == 0, answer.err
        assert "same command again" in answer.out
        record = json.loads(Path("found/gpu.json").read_text())
        assert list(record["stages"]) == done
    assert [row["name"] for row in record["stages"]["speed"]["rows"]] == ["hover", "go2", "g1"]
    assert record["stages"]["train hover"]["world_steps"] == 64
    assert record["stages"]["check hover"]["episodes"] == 4
    answer = command(*asked, "--minutes", "1")
    assert answer.code == 2
    assert "--minutes must be above 1" in answer.err


def test_a_training_that_a_stage_has_no_time_for_goes_on_in_the_next(stages, tmp_path, monkeypatch):
    def bench(steps):
        return stages.GpuBench(
            device="cpu", folder=tmp_path, seconds=60.2, num_envs=8,
            changes=(f"training.total_steps={steps}",),
        )  # fmt: skip

    first = bench(1000)
    before = {"setting": first._setting(), "machine": {}, "stages": {"speed": {}}}
    (tmp_path / "gpu.json").write_text(json.dumps(before))
    said, begun = [], []

    def endless(jobs, **_):
        begun.extend(jobs)
        signal.pause()

    monkeypatch.setattr(stages, "train_all", endless)
    assert first.next(said.append)
    assert "hover goes on in the next stage" in said
    assert list(first.record["stages"]) == ["speed"]
    assert bench(1000).next(said.append)
    assert [job.label for job in begun] == ["hover", "hover"]
    assert begun[0].identity == begun[1].identity, "so that train_all goes on with it"
    with pytest.raises(ConfigError, match="go on with the same"):
        bench(2000).next(said.append)
