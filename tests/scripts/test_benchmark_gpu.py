"""`python -m scripts.bench gpu`: its stages one after another, on the CPU at tiny sizes."""

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from robot_rl.core.errors import ConfigError
from scripts.bench.gpu import stages
from scripts.bench.gpu.launches import count_launches
from scripts.bench.gpu.mjlab_peer import MjlabTraining, visible_device


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU")
def test_a_machine_without_a_gpu_is_told_so_and_what_it_needs(command, refused, here):
    assert "device 'cuda' was asked for" in refused("scripts.bench.__main__", "gpu")
    answer = command("scripts.bench.__main__", "gpu", "requirements=true")
    assert ".[train,sim,gpu]" in answer.out


@pytest.mark.slow
@pytest.mark.full
def test_stages_are_done_one_by_one_and_remembered(command, here):
    asked = ("scripts.bench.__main__", "gpu", "device=cpu", "quick=true", "runs=found")
    order = ["speed", "updates", "presets", "train hover", "check hover"]
    record: dict[str, Any] = {}
    for done in (order[:count] for count in range(1, len(order) + 1)):
        answer = command(*asked)
        assert "same command again" in answer.out
        record = json.loads(Path("found/gpu.json").read_text())
        assert list(record["stages"]) == done
    assert [row["name"] for row in record["stages"]["speed"]["rows"]] == ["hover", "go2", "g1"]
    assert [(row["name"], row["note"]) for row in record["stages"]["updates"]["rows"]] == [
        ("batch 16, captured", "graphs replayed: 0"),  # on a CPU there is none
        ("batch 16, kernel by kernel", "graphs replayed: 0"),
    ]
    titles = [section["title"] for section in record["stages"]["presets"]["sections"]]
    assert titles == ["fast_sac, batch 16, cpu", "flash_sac, batch 16, cpu"]
    assert record["stages"]["train hover"]["world_steps"] == 64
    assert record["stages"]["check hover"]["episodes"] == 4


def test_a_training_that_a_stage_has_no_time_for_goes_on_in_the_next(tmp_path, monkeypatch):
    def bench(steps):
        return stages.GpuBench(
            device="cpu", folder=tmp_path, seconds=60.2, num_envs=8,
            changes=(f"training.total_steps={steps}",),
        )  # fmt: skip

    first = bench(1000)
    before = {"setting": first._setting(), "machine": {}}
    before["stages"] = {"speed": {}, "updates": {}, "presets": {}}
    (tmp_path / "gpu.json").write_text(json.dumps(before))
    said, begun = [], []

    def endless(jobs, **_):
        begun.extend(jobs)
        signal.pause()

    monkeypatch.setattr(stages, "train_all", endless)
    assert first.next(said.append)
    assert "hover goes on in the next stage" in said
    assert list(first.record["stages"]) == ["speed", "updates", "presets"]
    assert bench(1000).next(said.append)
    assert [job.label for job in begun] == ["hover", "hover"]
    assert begun[0].identity == begun[1].identity, "so that train_all goes on with it"
    with pytest.raises(ConfigError, match="resume with the same"):
        bench(2000).next(said.append)


OURS = ("speed", "updates", "presets", *(f"{do} {world}" for world in ("hover", "go2", "g1")
                              for do in ("train", "check")))  # fmt: skip


MJLAB = """
import sys
from torch.utils.tensorboard import SummaryWriter
arguments = sys.argv
assert arguments[1:4] == ["-m", "mjlab.scripts.train", "Mjlab-Velocity-Flat-Unitree-Go1"], arguments
writer = SummaryWriter(arguments[arguments.index("--log-root") + 1] + "/go1/today")
for i in range(3):
    writer.add_scalar("Train/mean_reward", 1.5 * i, i)
    writer.add_scalar("Loss/value", 1.0, i)
writer.flush()
"""


@pytest.mark.slow
def test_what_mjlab_logs_of_its_training_is_kept(tmp_path, monkeypatch):
    python = tmp_path / "python"
    (tmp_path / "mjlab.py").write_text(MJLAB)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/mjlab.py "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(stages, "find_spec", lambda name: None)
    bench = stages.GpuBench(
        device="cpu", folder=tmp_path, num_envs=8, seconds=600.0, mjlab_python=python
    )
    before = {"setting": bench._setting(), "machine": {}, "stages": {name: {} for name in OURS}}
    (tmp_path / "gpu.json").write_text(json.dumps(before))
    assert bench.next(lambda line: None)
    found = bench.record["stages"]["mjlab go2"]
    assert list(found["scalars"]) == ["Train/mean_reward"]
    assert [(step, value) for _, step, value in found["scalars"]["Train/mean_reward"]] == [
        (0, 0.0), (1, 1.5), (2, 3.0)
    ]  # fmt: skip


@pytest.mark.slow
def test_a_peer_whose_time_is_up_is_ended_with_all_that_it_began(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nsleep 1000 &\necho $!\nwait\n")
    python.chmod(0o755)
    peer = MjlabTraining(
        python=python, task="None", num_envs=8, device="cpu", seconds=1.0, folder=tmp_path / "mjlab"
    )
    with pytest.raises(Exception, match=r"logged nothing, see .*log.txt"):
        peer.run()
    (below,) = (tmp_path / "mjlab/log.txt").read_text().split()
    deadline = time.monotonic() + 60.0  # a process that is killed ends when it is scheduled next
    while psutil.pid_exists(int(below)) and psutil.Process(int(below)).status() != "zombie":
        assert time.monotonic() < deadline


def test_a_peer_gets_the_gpu_that_we_were_given(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    assert (visible_device("cpu"), visible_device("cuda:1")) == ("", "GPU-b")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert (visible_device("cuda"), visible_device("cuda:1")) == ("0", "1")


def test_operations_of_an_update_are_counted_without_a_gpu():
    (sac, counted), (td3, fewer) = count_launches(("sac", "td3"))
    assert (sac, td3) == ("sac", "td3")
    assert 40 < counted["critics"] < counted["actor too"] < 400
    assert fewer["actor too"] < counted["actor too"], "no entropy, no temperature"
