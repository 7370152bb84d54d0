"""`robot-rl runs` as a person uses it: what it prints, what it refuses, how it exits."""

import subprocess
import sys
from pathlib import Path

import pytest

from robot_rl.cli.command_line import exit_with_sentence
from robot_rl.cli.main import main
from robot_rl.core.errors import ConfigError
from robot_rl.training.reporting.metrics import MetricLog
from robot_rl.training.runs.run_folder import RunFolder, RunName, RunState, find_runs
from robot_rl.training.storage.checkpoint import CheckpointStore
from tests.robot_rl.cli.tiny_run import ROOT


@pytest.fixture
def script():
    return lambda words: main(["runs", *words])


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


def refused(script, capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        script(list(arguments))
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_list_has_one_aligned_line_per_run(script, root, capsys):
    script(["list", "sort=success"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "run", "status", "steps", "success", "return", "best", "age", "size",
    ]  # fmt: skip
    assert [line.split()[3] for line in lines[1:]] == ["100.0%", "98.0%", "52.0%", "50.0%"]
    assert lines[1].split()[1:3] == ["finished", "20.0k"]
    assert len({len(line) for line in lines}) == 1
    script(["list", "runs=none"])
    assert "no runs in" in capsys.readouterr().out


def test_show_tells_where_to_look_and_finds_the_latest_run(script, root, capsys):
    run = next(root.glob("*sac_s1"))
    script(["show", str(run)])
    out = capsys.readouterr().out
    assert "status   finished" in out
    assert f"{run}/checkpoints/step_000000020000 (score 0.6000)" in out
    assert "rollout/success" in out
    script(["show", "latest"])
    assert capsys.readouterr().out.splitlines()[0] == f"run      {find_runs(root)[-1]}"


@pytest.mark.slow
def test_compare_prints_a_table_and_draws_also_of_patterns(script, root, capsys):
    script(["compare", "by=learner.gamma", "out=new/c.png"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == ["learner.gamma", "seeds", "IQM"]
    assert lines[2].split()[:3] == ["0.9", "2", "99.0%"]
    assert lines[3].split()[:3] == ["0.99", "2", "51.0%"]
    assert Path("new/c.png").stat().st_size > 10_000
    script(["compare", "runs/*ppo*", "out=c.png"])
    assert capsys.readouterr().out.splitlines()[2].startswith("hover crazyflie ppo")


def test_clean_deletes_only_when_told_to(script, root, capsys):
    script(["clean", "keep=1"])
    assert "3 of 4 would go" in capsys.readouterr().out
    assert len(list(root.iterdir())) == 4
    script(["clean", "keep=1", "yes=true"])
    assert "3 deleted, 1 kept" in capsys.readouterr().out
    assert len(list(root.iterdir())) == 1


def test_what_cannot_be_done_is_one_sentence(script, root, capsys):
    near = refused(script, capsys, "show", "runs/hover_crazyflie_sac_s7")
    assert near.startswith("error: 'runs/hover_crazyflie_sac_s7' is not a run")
    assert near.count("\n") == 1
    assert "no run has recorded 'x/y'" in refused(script, capsys, "compare", "metric=x/y")
    assert "to group by" in refused(script, capsys, "compare", "by=colour")
    assert "keep must be 0 or more, got -1" in refused(script, capsys, "clean", "keep=-1")
    assert "command of runs 'delete' is unknown" in refused(script, capsys, "delete")
    old = refused(script, capsys, "list", "--sort", "success")
    assert old == "error: '--sort' is not a flag; write sort=success, as all options\n"


def test_ctrl_c_and_defects_leave_as_they_should(script, capsys):
    for error, code in ((ConfigError("no"), 2), (KeyboardInterrupt(), 130)):
        with pytest.raises(SystemExit) as caught, exit_with_sentence():
            raise error
        assert caught.value.code == code
    assert capsys.readouterr().err == "error: no\ninterrupted\n"
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
