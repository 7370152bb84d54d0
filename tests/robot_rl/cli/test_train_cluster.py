"""`robot-rl train cluster.collectors=2`: one learner, two collectors that Ray placed."""

import importlib
import os
import signal
import sys
import time

import psutil
import pytest

from robot_rl.training.runs.run_folder import RunFolder, RunState, find_runs
from robot_rl.training.storage.checkpoint import CheckpointStore
from tests.robot_rl.cli.tiny_run import TINY

pytestmark = pytest.mark.slow

CLUSTER = (*TINY, "cluster.collectors=2", "cluster.rows=32", "cluster.start_seconds=250")


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["cluster.rows=8"], "cluster.rows must be at least 32"),
        (["learner=distill"], "acts by more than its policy"),
        (["learner=bc", "training.demonstrations.data=x"], "demonstrations collects nothing"),
    ],
)
def test_what_cannot_be_collected_elsewhere_is_refused(refused, here, overrides, told):
    small = ("num_envs=16", "cluster.collectors=2", "cluster.rows=32")
    assert told in refused("train", *small, *overrides)
    assert not find_runs("runs")


def test_without_ray_the_extra_is_named(refused, here, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in ("ray_fleet", "ray_cluster"):
        monkeypatch.delitem(sys.modules, f"robot_rl.training.cluster.{name}", raising=False)
    told = refused("train", *CLUSTER)
    assert "cluster.collectors needs the package 'ray'" in told
    assert "robot_rl[cluster]" in told


def test_a_killed_collector_is_replaced_while_the_learner_goes_on(train_only, here, monkeypatch):
    ray = importlib.import_module("ray")
    async_collector = importlib.import_module("robot_rl.training.cluster.async_collector")
    collect = async_collector.AsyncCollector.collect
    killed: list[int] = []
    steps: list[int] = []

    def watched(self):
        collect(self)
        host_and_pid = self._fleet.processes[1]
        if not killed and self.env_steps >= 800:
            killed.append(host_and_pid[1])
            steps.append(self.env_steps)
            os.kill(killed[0], signal.SIGKILL)
        elif killed and host_and_pid[1] not in (0, killed[0]):  # 0: it is coming up
            steps.append(self.env_steps)
            os.kill(os.getpid(), signal.SIGINT)
        elif killed:
            time.sleep(0.05)  # leaves the core to the one that comes up

    monkeypatch.setattr(async_collector.AsyncCollector, "collect", watched)
    endless = ("training.total_steps=1e6", "training.evaluation_interval=1e6")
    answer = train_only(*CLUSTER, *endless, exits=130)
    assert "16 envs on 2 collectors, learner on cpu" in answer.out
    (run,) = find_runs("runs")
    assert RunFolder.open(run).status().state is RunState.INTERRUPTED
    assert f"collector 1 (process {killed[0]} on " in (run / "log.txt").read_text()
    assert steps[1] > steps[0] + 160, "the other one went on meanwhile"

    state = CheckpointStore(run / "checkpoints", read_only=True).load("latest").state
    versions = state["replay"]["stamps"][:, 1]
    assert len(versions.unique()) > 10
    assert versions.max() <= state["collector"]["policy_version"]
    updates = (state["collector"]["world_steps"] - 160) // 16 + 1
    assert state["collector"]["policy_version"] == updates, "one per step of all worlds"
    assert state["collector"]["invalid"] < 8, "steps that nobody took were not dropped"
    assert not ray.is_initialized()
    assert not psutil.pid_exists(killed[0])
