"""`torchrun ... train`: one run on two processes, its end, its stops and its resumes."""

import contextlib
import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import psutil
import pytest

from robot_rl.core.process import clean_environ
from robot_rl.training.ranks import Ranks
from robot_rl.training.reporting.metrics import read_metrics
from robot_rl.training.runs.replay_episodes import replay_episodes
from robot_rl.training.runs.run_folder import RunFolder, RunState
from robot_rl.training.storage.checkpoint import CheckpointStore
from tests.robot_rl.cli.tiny_run import ROOT, TINY, only_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ENDLESS = ("training.total_steps=1e9", "logging.interval_seconds=0.001", "video=false")


def launch(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start two ranks; their folder is where the runs go."""
    command = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    environ = clean_environ({"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)})
    return subprocess.Popen(
        [sys.executable, *command, "-m", "robot_rl.cli", "train", *arguments],
        cwd=folder, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def train(folder: Path, *arguments: str) -> tuple[int, str]:
    process = launch(folder, *arguments)
    try:
        said, _ = process.communicate(timeout=400)
    except subprocess.TimeoutExpired:
        process.terminate()  # and so its ranks, which would slow down what comes after
        raise
    return process.returncode, said


def read_until(stream: IO[str], text: str) -> str:
    said = ""
    for line in stream:
        said += line
        if text in line:
            return said
    raise AssertionError(f"it ended without saying '{text}':\n{said}")


def newest(run: Path) -> int:
    return CheckpointStore(run / "checkpoints", read_only=True).load().step


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of two ranks that came to its end, and its output."""
    folder = tmp_path_factory.mktemp("ranks")
    code, said = train(folder, *TINY)
    assert code == 0, said
    return only_run(folder / "runs"), said


def test_two_ranks_train_evaluate_and_export_one_run(trained, refused):
    run, said = trained
    assert "16 envs on 2 ranks on cpu" in said
    assert "replay: 400 transitions, 0 MB on cpu, for each of 2 ranks" in said
    assert said.count("finished 1.60k steps") == 1, "rank 0 alone talks"
    assert (run / "bundle" / "policy.onnx").is_file()
    assert (run / "plots" / "learning_curve.png").is_file()
    assert RunFolder.open(run).provenance()["ranks"] == 2
    assert f"torchrun --nproc-per-node 2 -m robot_rl.cli train resume=runs/{run.name}" in said
    spec, episodes = replay_episodes(run)
    assert spec.groups.keys() == {"actor", "critic"}
    dropped = read_metrics(run / "metrics.jsonl")[-1]["rollout/invalid_steps"]
    assert 0 <= 800 - sum(one.num_steps for one in episodes) <= dropped < 10, "of both ranks"
    alone = refused("train", f"resume={run}", "training.total_steps=3200")
    assert "error: the checkpoint was written by 2 rank(s)" in alone
    assert "resume with as many: torchrun --nproc-per-node 2" in alone


def test_they_go_on_and_ctrl_c_saves_and_ends_both(trained):
    run, _ = trained
    process = launch(run.parents[1], f"resume={run}", *ENDLESS)
    assert process.stdout is not None
    said = read_until(process.stdout, "evaluation:")
    process.send_signal(signal.SIGINT)
    said += process.communicate(timeout=60)[0]
    assert "goes on from step 1.60k of " in said
    assert "everything is saved; resume with: torchrun --nproc-per-node 2" in said, said
    status = RunFolder.open(run).status()
    assert (status.state, newest(run)) == (RunState.INTERRUPTED, status.step)
    assert status.step % 16 == 0
    steps = [record["step"] for record in read_metrics(run / "metrics.jsonl")]
    assert steps[:2] == [800, 1600]
    assert steps == sorted({*steps})


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.full), 1])
def test_a_killed_rank_ends_the_other_and_leaves_its_last_checkpoint(trained, tmp_path, rank):
    process = launch(tmp_path, *TINY, *ENDLESS, f"training.prior.run={trained[0]}")
    assert process.stdout is not None
    said = read_until(process.stdout, "evaluation:")
    assert "prior: 800 transitions" in said
    read_until(process.stdout, "evaluation:")  # the first is saved
    ranks = {int(one.environ()["RANK"]): one.pid for one in psutil.Process(process.pid).children()}
    os.kill(ranks[rank], signal.SIGKILL)
    said = process.communicate(timeout=90)[0]
    assert process.returncode != 0
    assert f"rank {rank} of 2 (process {ranks[rank]} on " in said, said
    assert not [pid for pid in ranks.values() if psutil.pid_exists(pid)]
    run = only_run(tmp_path / "runs")
    assert newest(run) % 800 == 0
    state = RunState.INTERRUPTED if rank == 0 else RunState.FAILED
    assert RunFolder.open(run).status().state is state


def test_a_sweep_of_several_processes_is_refused(refused, here, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "-m trains one run after another" in refused("train", "-m", "seed=0,1")
    assert "leave torchrun out" in refused("train", "once=true")


def test_ranks_that_wait_are_dismissed_where_there_is_nothing_to_do(
    command, finished_run, monkeypatch
):
    said: list[str] = []

    class Two(Ranks):
        count = 2

        def words(self, text: str) -> list[str]:
            said.append(text)
            return [text, ""]

    resume = importlib.import_module("robot_rl.cli.resume")
    monkeypatch.setattr(resume, "join_ranks", lambda _: contextlib.nullcontext(Two()))
    assert "nothing to do" in command("train", f"resume={finished_run}").out
    assert said == ['["", ""]']
