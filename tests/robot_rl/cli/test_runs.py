"""`robot-rl runs` as a person uses it: what it prints, what it refuses, how it exits."""

import subprocess
import sys
from pathlib import Path

import pytest

from robot_rl.cli.command_line import exit_with_sentence
from robot_rl.core.errors import ConfigError
from robot_rl.training.reporting.metrics import MetricLog
from robot_rl.training.runs.run_folder import RunFolder, RunName, RunState, find_runs
from robot_rl.training.storage.checkpoint import CheckpointStore
from tests.robot_rl.cli.tiny_run import ROOT


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for learner in ("sac", "ppo"):
        for seed in range(2):
            name = RunName(task="hover", robot="crazyflie", learner=learner, seed=seed)
            config = {"learner": {"gamma": 0.9 if learner == "sac" else 0.99}}
            with RunFolder.create("runs", name, config, {"command": "train.py"}) as run:
                with MetricLog(run.metrics_path) as log:
                    for i in range(1, 21):
                        level = 0.98 if learner == "sac" else 0.5
                        one = {"step": i * 1000, "seconds": i, "rollout/success": level + seed / 50}
                        log.write(one)
                CheckpointStore(run.checkpoints).save(20_000, {}, score=0.5 + seed / 10)
                run.mark(RunState.FINISHED, step=20_000, seconds=20)
    return Path("runs")


def test_list_has_one_aligned_line_per_run(command, root):
    lines = command("runs", "list", "sort=success").out.splitlines()
    assert lines[0].split() == [
        "run", "status", "steps", "success", "return", "best", "age", "size",
    ]  # fmt: skip
    assert [line.split()[3] for line in lines[1:]] == ["100.0%", "98.0%", "52.0%", "50.0%"]
    assert lines[1].split()[1:3] == ["finished", "20.0k"]
    assert len({len(line) for line in lines}) == 1
    assert "no runs in" in command("runs", "list", "runs=none").out


def test_show_tells_where_to_look_and_finds_the_latest_run(command, root):
    run = next(root.glob("*sac_s1"))
    out = command("runs", "show", str(run)).out
    assert "status   finished" in out
    assert f"{run}/checkpoints/step_000000020000 (score 0.6000)" in out
    assert "rollout/success" in out
    assert command("runs", "show", "latest").out.startswith(f"run      {find_runs(root)[-1]}\n")


@pytest.mark.slow
def test_compare_prints_a_table_and_draws_also_of_patterns(command, root):
    lines = command("runs", "compare", "by=learner.gamma", "out=new/c.png").out.splitlines()
    assert lines[1].split()[:3] == ["learner.gamma", "seeds", "IQM"]
    assert lines[2].split()[:3] == ["0.9", "2", "99.0%"]
    assert lines[3].split()[:3] == ["0.99", "2", "51.0%"]
    assert Path("new/c.png").stat().st_size > 10_000
    lines = command("runs", "compare", "runs/*ppo*", "out=c.png").out.splitlines()
    assert lines[2].startswith("hover crazyflie ppo")
    (root / "evaluations_of_ppo").mkdir()  # a pattern means runs
    assert command("runs", "compare", "runs/*ppo*", "out=c.png").out.splitlines() == lines


def test_clean_deletes_only_when_told_to(command, root):
    assert "3 of 4 would go" in command("runs", "clean", "keep=1").out
    assert len(list(root.iterdir())) == 4
    assert "3 deleted, 1 kept" in command("runs", "clean", "keep=1", "yes=true").out
    assert len(list(root.iterdir())) == 1


def test_what_cannot_be_done_is_one_sentence(refused, root):
    near = refused("runs", "show", "runs/hover_crazyflie_sac_s7")
    assert near.startswith("error: 'runs/hover_crazyflie_sac_s7' is not a run")
    assert near.count("\n") == 1
    assert "no run has recorded 'x/y'" in refused("runs", "compare", "metric=x/y")
    assert "to group by" in refused("runs", "compare", "by=colour")
    assert "keep must be 0 or more, got -1" in refused("runs", "clean", "keep=-1")
    assert "command of runs 'delete' is unknown" in refused("runs", "delete")
    old = refused("runs", "list", "--sort", "success")
    assert old == "error: '--sort' is not a flag; write sort=success, as all options\n"


def test_ctrl_c_and_defects_leave_as_they_should(capsys):
    for error, code in ((ConfigError("no"), 2), (KeyboardInterrupt(), 130)):
        with pytest.raises(SystemExit) as caught, exit_with_sentence():
            raise error
        assert caught.value.code == code
    assert capsys.readouterr().err == "error: no\ninterrupted\n"
    for error in (MemoryError(), RuntimeError("can't allocate memory"), ValueError("bad_alloc")):
        with pytest.raises(SystemExit), exit_with_sentence():
            raise error
        assert "too little memory for what was asked" in capsys.readouterr().err
    with pytest.raises(RuntimeError), exit_with_sentence():
        raise RuntimeError("a defect")
    with pytest.raises(ZeroDivisionError), exit_with_sentence():
        _ = 1 / 0


@pytest.mark.slow
def test_the_list_goes_into_a_closed_pipe(root):
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    command = f"{sys.executable} -m robot_rl.cli runs list | :"
    shell = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, env=environment, check=True
    )
    assert shell.stderr == ""
