"""`torchrun ... train`: one run on two processes, its end, its stops and its resumes."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import psutil
import pytest

from robot_rl.core.process import clean_environ
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


def test_two_ranks_train_evaluate_and_go_on(tmp_path):
    code, said = train(tmp_path, *TINY)
    assert code == 0, said
    assert "16 envs on 2 ranks on cpu" in said
    assert "replay: 400 transitions, 0 MB on cpu, for each of 2 ranks" in said
    assert said.count("finished 1.60k steps") == 1, "rank 0 alone talks"
    run = only_run(tmp_path / "runs")
    assert (run / "bundle" / "policy.onnx").is_file()
    assert (run / "plots" / "learning_curve.png").is_file()
    assert RunFolder.open(run).provenance()["ranks"] == 2
    assert f"torchrun --nproc-per-node 2 -m robot_rl.cli train resume=runs/{run.name}" in said

    spec, episodes = replay_episodes(run)
    assert spec.groups.keys() == {"actor", "critic"}
    dropped = read_metrics(run / "metrics.jsonl")[-1]["rollout/invalid_steps"]
    assert 0 <= 800 - sum(one.num_steps for one in episodes) <= dropped < 10, "of both ranks"

    code, said = train(tmp_path, f"resume={run}", "training.total_steps=2400", "video=false")
    assert code == 0, said
    assert "goes on from step 1.60k of 2.40k" in said
    assert [record["step"] for record in read_metrics(run / "metrics.jsonl")] == [800, 1600, 2400]
    assert RunFolder.open(run).status().state is RunState.FINISHED
    assert newest(run) == 2400

    heir, prior = tmp_path / "heir", (f"training.prior.run={run}", "training.total_steps=800")
    heir.mkdir()
    code, said = train(heir, *TINY, *prior, "video=false")
    assert code == 0, said
    assert "prior: 800 transitions" in said

    alone = subprocess.run(
        [sys.executable, "-m", "robot_rl.cli", "train", f"resume={run}",
         "training.total_steps=3200"],
        env=clean_environ({"PYTHONPATH": str(ROOT)}), capture_output=True, text=True,
        cwd=tmp_path,
    )  # fmt: skip
    assert alone.returncode == 2
    assert "error: the checkpoint was written by 2 rank(s)" in alone.stderr
    assert "resume with as many: torchrun --nproc-per-node 2" in alone.stderr


def test_ranks_have_nothing_to_do_on_a_run_that_has_come_to_its_end(tmp_path, finished_run):
    code, said = train(tmp_path, f"resume={finished_run}")
    assert (code, said.count("nothing to do")) == (0, 1), said


def test_ctrl_c_saves_and_ends_both_ranks(tmp_path):
    process = launch(tmp_path, *TINY, *ENDLESS)
    assert process.stdout is not None
    said = read_until(process.stdout, "evaluation:")
    process.send_signal(signal.SIGINT)
    said += process.communicate(timeout=60)[0]
    assert "everything is saved; resume with: torchrun --nproc-per-node 2" in said, said
    status = RunFolder.open(only_run(tmp_path / "runs")).status()
    assert (status.state, newest(only_run(tmp_path / "runs"))) == (
        RunState.INTERRUPTED,
        status.step,
    )
    assert status.step % 16 == 0


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.full), 1])
def test_a_killed_rank_ends_the_other_and_leaves_its_last_checkpoint(tmp_path, rank):
    process = launch(tmp_path, *TINY, *ENDLESS)
    assert process.stdout is not None
    read_until(process.stdout, "evaluation:")
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
    if rank == 1:
        step = newest(run)
        code, said = train(
            tmp_path, f"resume={run}", f"training.total_steps={step + 160}", "video=false"
        )
        assert code == 0, said
        assert newest(run) == step + 160


def test_what_cannot_be_divided_is_refused_before_a_run_is_made(tmp_path):
    code, said = train(tmp_path, *TINY, "learner.batch_size=15")
    assert code != 0
    assert "error: learner.batch_size=15 was asked of 2 ranks" in said
    assert not (tmp_path / "runs").exists()
    assert "error: -m trains one run after another" in train(tmp_path, "-m", "seed=0,1")[1]
