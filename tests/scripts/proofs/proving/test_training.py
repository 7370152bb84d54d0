"""Which seeds of a proof are trained: a finished one is left alone, a stopped one goes on."""

import importlib
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from configs.compose import to_plain
from robot_rl.training.reporting.metrics import MetricLog
from robot_rl.training.runs.run_folder import RunFolder, RunName, RunState

pytestmark = pytest.mark.slow


@pytest.fixture
def training(monkeypatch):
    """`scripts/proofs/proving/training.py` with trainings that take no time."""
    training = importlib.import_module("scripts.proofs.proving.training")
    monkeypatch.setattr(training.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(training.subprocess, "Popen", FakeTraining)
    FakeTraining.started = []
    FakeTraining.jobs = []
    FakeTraining.signals = []
    FakeTraining.fails = False
    return training


def jobs_of(training, root, count=1, *changes):
    jobs = [
        training.TrainingJob(
            label=f"seed {seed}", overrides=("task=hover", *changes), seed=seed, runs=root
        )
        for seed in range(count)
    ]
    FakeTraining.jobs = jobs
    return jobs


def test_every_seed_is_trained_once_by_the_command_of_a_person(training, tmp_path):
    jobs = jobs_of(training, tmp_path, 3)
    found = training.train_all(jobs, workers=2, say=str)
    assert sorted(FakeTraining.started) == [
        ["threads=1", "task=hover", f"seed={seed}", "video=false", f"runs={tmp_path}"]
        for seed in range(3)
    ]
    assert {found[job].config()["seed"] for job in jobs} == {0, 1, 2}


def test_finished_seed_is_not_trained_again(training, tmp_path):
    (job,) = jobs_of(training, tmp_path)
    run = leave_run(job, RunState.FINISHED)
    said: list[str] = []
    assert training.train_all([job], workers=1, say=said.append)[job].path == run
    assert FakeTraining.started == []
    assert said == ["1 of 1 trainings were finished before"]


def test_seed_of_another_configuration_is_not_taken_for_it(training, tmp_path):
    change = "learner.gamma=0.98"
    leave_run(jobs_of(training, tmp_path)[0], RunState.FINISHED)
    (changed,) = jobs_of(training, tmp_path, 1, change)
    training.train_all([changed], workers=1, say=str)
    assert len(FakeTraining.started) == 1
    assert change in FakeTraining.started[0]


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.RUNNING])
def test_stopped_seed_goes_on(training, tmp_path, state):
    (job,) = jobs_of(training, tmp_path)
    run = leave_run(job, state)  # running, but no process holds its lock: it was killed
    training.train_all([job], workers=1, say=str)
    assert FakeTraining.started == [[f"resume={run}"]]


def test_seed_that_another_process_trains_is_waited_for(training, tmp_path, monkeypatch):
    (job,) = jobs_of(training, tmp_path)
    path = leave_run(job, RunState.INTERRUPTED)
    other = RunFolder.open(path, write=True)
    other.mark(RunState.RUNNING)

    def finish(seconds):
        other.mark(RunState.FINISHED)
        other.close()

    monkeypatch.setattr(training.time, "sleep", finish)
    training.train_all([job], workers=1, say=str)
    assert FakeTraining.started == []


def test_failed_training_is_told_after_the_others_have_ended(training, tmp_path):
    jobs = jobs_of(training, tmp_path, 2)
    leave_run(jobs[1], RunState.FINISHED)
    FakeTraining.fails = True
    with pytest.raises(training.ProofError, match=r"1 of 2 .* seed 0 .*exit code 1, see .*log"):
        training.train_all(jobs, workers=1, say=str)


def test_ctrl_c_stops_the_trainings_once_and_waits(training, tmp_path, monkeypatch):
    def press(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(training.time, "sleep", press)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        training.train_all(jobs_of(training, tmp_path, 2), workers=2, say=str)
    assert FakeTraining.signals == [
        signal.SIGINT, signal.SIGINT, "waited", "waited",
    ]  # fmt: skip
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_student_begins_after_its_teacher_and_not_where_that_failed(training, tmp_path):
    teacher, student = jobs_of(training, tmp_path, 2)
    student = FakeTraining.jobs[1] = replace(student, after=teacher)
    FakeTraining.fails = True
    with pytest.raises(training.ProofError, match=r"2 of 2 .* seed 1 \(seed 0 failed\)"):
        training.train_all([teacher, student], workers=2, say=str)
    assert FakeTraining.started == [teacher.arguments()]
    FakeTraining.started, FakeTraining.fails = [], False
    training.train_all([student, teacher], workers=2, say=str)
    assert FakeTraining.started == [teacher.arguments(), student.arguments()]


def taught(training, root: Path, *changes: str) -> list:
    """A teacher with a folder of its own, and who begins with what lies there."""
    teacher, student = jobs_of(training, root, 2)
    lesson = ("task=hover", *changes)
    teacher = replace(teacher, runs=root / "teachers", overrides=lesson)
    FakeTraining.jobs = [teacher, replace(student, after=teacher)]
    return FakeTraining.jobs


def test_a_student_of_another_teacher_is_not_taken_for_one_of_this(training, tmp_path):
    """Its own configuration names the teacher's folder, which is the same."""
    for jobs in (taught(training, tmp_path), taught(training, tmp_path, "learner.gamma=0.9")):
        FakeTraining.jobs, FakeTraining.started = jobs, []
        for started in (2, 0):
            found = training.train_all(jobs, workers=2, say=str)
            assert len(FakeTraining.started) == started
            assert len(found) == 2
            FakeTraining.started = []


def test_a_run_that_would_teach_instead_is_told(training, tmp_path):
    teacher, student = jobs = taught(training, tmp_path)
    training.train_all([teacher], workers=1, say=str)
    other = leave_run(replace(teacher, seed=7), RunState.FINISHED)
    with pytest.raises(
        training.ProofError, match=rf"has {other.name} as its newest run, .*; move that one away"
    ):
        training.train_all(jobs, workers=1, say=str)
    assert FakeTraining.started == [teacher.arguments()], student


class FakeTraining:
    """Stands for the process of `robot-rl train`: leaves a run as that would, at once."""

    started: list[list[str]]
    jobs: list
    fails = False
    signals: list

    def __init__(self, command: list[str], **options) -> None:
        assert command[1:4] == ["-m", "robot_rl.cli", "train"]
        assert options["env"]["OMP_NUM_THREADS"] == "1"
        arguments = command[4:]
        self.started.append(arguments)
        self.returncode = int(self.fails)
        if self.fails:
            return
        if arguments[0].startswith("resume="):
            with RunFolder.open(arguments[0].removeprefix("resume="), write=True) as run:
                run.mark(RunState.FINISHED)
        else:
            job = next(job for job in self.jobs if job.arguments() == arguments)
            leave_run(job, RunState.FINISHED)

    def poll(self) -> int:
        return self.returncode

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def wait(self) -> int:
        self.signals.append("waited")
        return self.returncode


def leave_run(job, state: RunState) -> Path:
    name = RunName(task="hover", robot="crazyflie", learner="sac", seed=job.seed)
    with RunFolder.create(job.runs, name, to_plain(job.config), {}) as run:
        with MetricLog(run.metrics_path) as log:
            log.write({"step": 1, "seconds": 1.0})
        run.mark(state, step=10, total_steps=10, seconds=1.0)
    return run.path
