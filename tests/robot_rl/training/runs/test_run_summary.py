"""Lists of runs, groups, and what cleaning may take."""

import math
import os
from datetime import timedelta
from time import time

import pytest

from robot_rl.core.errors import ConfigError, StorageError
from robot_rl.link.record_log import RecordLog
from robot_rl.training.reporting.metrics import MetricLog
from robot_rl.training.runs.run_folder import RunFolder, RunName, RunState
from robot_rl.training.runs.run_summary import delete_run, group_of, removable, summarise
from robot_rl.training.storage.checkpoint import CheckpointStore


@pytest.fixture
def make(tmp_path):
    def make(state=RunState.FINISHED, *, age_days=0, checkpoint=True, seed=0, close=True):
        name = RunName(task="hover", robot="crazyflie", learner="sac", seed=seed)
        run = RunFolder.create(tmp_path, name, {"seed": seed, "learner": {"gamma": 0.9}}, {})
        if checkpoint:
            CheckpointStore(run.checkpoints).save(5, {}, score=0.25)
        run.mark(state, step=5, reason="why")
        if close:
            run.close()
        for path in run.path.rglob("*"):
            moment = time() - age_days * 86_400
            os.utime(path, (moment, moment))
        return run

    return make


def test_a_summary_prefers_evaluations_and_counts_bytes(make):
    run = make()
    with MetricLog(run.metrics_path) as log:
        log.write({"step": 10, "seconds": 1, "eval/success": 0.5, "rollout/success": 0.1})
        log.write({"step": 20, "seconds": 2, "rollout/success": 0.2})
    summary = summarise(run.path)
    assert (summary.step, summary.success, summary.best) == (20, 0.5, 0.25)
    assert math.isnan(summary.episode_return)
    assert summary.checkpoints == 1
    assert summary.num_bytes > run.metrics_path.stat().st_size
    assert summary.age < timedelta(minutes=1)


def test_runs_are_grouped_by_name_part_or_configuration(make):
    run = make(seed=3)
    keys = ("name", "task", "seed", "learner.gamma", "run")
    expected = ["hover crazyflie sac", "hover", "3", "0.9", run.path.name]
    assert [group_of(run, key) for key in keys] == expected
    with pytest.raises(ConfigError, match=r"no 'learner\.x' to group by; known: name, run, task"):
        group_of(run, "learner.x")


def test_cleaning_takes_what_cannot_be_resumed_and_never_a_running_one(make):
    running = make(RunState.RUNNING, checkpoint=False, close=False)
    empty = make(RunState.FAILED, checkpoint=False)
    killed = make(RunState.RUNNING, checkpoint=False)
    failed, finished = make(RunState.FAILED), make()
    baseline = make(checkpoint=False)  # rsl_rl's and Stable-Baselines3's save in another way
    assert removable([summarise(baseline.path)]) == {}
    runs = [summarise(run.path) for run in (running, empty, killed, failed, finished)]
    assert set(removable(runs)) == {empty.path, killed.path}
    assert failed.path in removable(runs, failed=True)
    assert set(removable(runs, keep=0)) == {r.path for r in runs} - {running.path}
    with pytest.raises(StorageError, match="being written"):
        delete_run(running.path)
    delete_run(empty.path)
    assert not empty.path.exists()


def test_cleaning_leaves_a_run_that_a_robot_uses(make):
    """A live `robot-rl learn role=robot` has no lock: its run was deleted beneath it."""
    run = make(RunState.INTERRUPTED, checkpoint=False)
    with run.used(), RunFolder.open(run.path).used():
        summary = summarise(run.path)
        assert summary.status.state is RunState.RUNNING
        assert removable([summary], keep=0) == {}
        with pytest.raises(StorageError, match="is used by robot-rl learn"):
            delete_run(run.path)
    assert set(removable([summarise(run.path)])) == {run.path}
    delete_run(run.path)


@pytest.mark.parametrize("place", ["experience", "robots/robot/spool/1_ab"])
def test_cleaning_leaves_a_run_that_holds_steps_of_a_robot(make, place):
    """Without a checkpoint it can be gone on with: its steps are all that it needs."""
    run = make(RunState.INTERRUPTED, checkpoint=False)
    log = RecordLog(run.path / place)
    assert set(removable([summarise(run.path)])) == {run.path}
    log.append([b"a step"])
    log.close()
    assert removable([summarise(run.path)], keep=0, older_than=timedelta(0), failed=True) == {}


def test_cleaning_by_age_and_by_number(make):
    runs = [make(age_days=days) for days in (1, 5, 9)]
    rows = [summarise(run.path) for run in runs]
    assert removable(rows) == {}
    assert set(removable(rows, older_than=timedelta(days=3))) == {runs[1].path, runs[2].path}
    assert set(removable(rows, keep=2)) == {runs[2].path}
