"""`robot-rl train`: what a run leaves, how it stops, and that it goes on as if it never had."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from configs.catalog import GROUPS, choices, walk_fields
from configs.compose import from_plain, to_plain
from configs.schema import REGISTRIES, Component, register
from robot_rl.cli import finish, resume
from robot_rl.cli.components import next_commands
from robot_rl.core.errors import ConfigError
from robot_rl.core.process import clean_environ
from robot_rl.training.reporting.metrics import read_metrics
from robot_rl.training.runs.run_folder import RunFolder, RunName, RunState
from robot_rl.training.storage.checkpoint import CheckpointStore, Score
from sim.tasks.flights.hover import HoverConfig, HoverTask
from tests.compositions import composed
from tests.robot_rl.cli.tiny_run import (
    ROOT,
    TINY,
    assert_equal_ends,
    interrupt,
    last_state,
    only_run,
    python,
)

pytestmark = pytest.mark.slow


def test_help_and_fields_name_every_choice_and_its_meaning(command):
    lines = command("train", "--help").out.splitlines()
    for group in GROUPS:
        for name, text in choices(group).items():
            assert any(line.split()[:1] == [name] and text in line for line in lines)
    lines = command("train", "--info", "fields", "num_envs=7").out.splitlines()
    at = lines.index("num_envs=7  (whole number)")
    assert lines[at + 1].strip() == "Worlds simulated at once."
    config = from_plain(
        yaml.safe_load(command("train", "--cfg", "job", "task=tracking", "seed=3").out)
    )
    assert (config.seed, type(config.task).__name__) == (3, "TrackingConfig")


def test_run_leaves_everything_in_its_own_folder_and_says_what_to_type_next(finished):
    path, said = finished
    run = RunFolder.open(path)
    assert run.status().state is RunState.FINISHED
    assert from_plain(run.config()).training.total_steps == 1600
    assert run.config()["device"] == "cpu"
    assert [r["step"] for r in read_metrics(run.metrics_path)] == [800, 1600]
    assert (run.plots / "learning_curve.png").stat().st_size > 10_000
    assert (run.bundle / "policy.onnx").is_file()
    assert run.provenance()["run"] == {
        "task": "hover", "robot": "crazyflie", "learner": "sac", "seed": 0,
    }  # fmt: skip
    assert os.listdir(path.parent) == [path.name], "nothing is left beside the runs"
    for needed in (
        f"robot-rl evaluate run={path}", f"robot-rl export run={path}", f"resume={path}",
        f"{path}/plots/learning_curve.png", f"{path}/bundle", "95 % interval",
    ):  # fmt: skip
        assert needed in said
    assert said.index("replay: ") < said.index("hover · crazyflie · sac")


def test_failed_run_of_a_sweep_is_reported_and_the_others_go_on(train_only, here):
    answer = train_only("-m", *TINY, "training.replay_capacity=1,800", exits=2)
    assert "1 of 2 runs finished" in answer.out
    (failed,) = [line for line in answer.err.splitlines() if line.startswith("failed: ")]
    assert "capacity 1 holds 0 steps" in failed
    assert len(list(Path("runs").iterdir())) == 1, "a run that never began leaves no folder"


def test_a_run_that_died_after_its_last_checkpoint_is_finished_by_going_on(
    command, run, monkeypatch
):
    """It said that there was nothing to do; and a broken step after training lost the run."""

    def fail(*arguments):
        raise ValueError("the exporter is broken")

    monkeypatch.setattr(import_module("robot_rl.cli.finish"), "export_run", fail)
    with RunFolder.open(run, write=True) as folder:
        shutil.rmtree(folder.plots)
        folder.mark(RunState.RUNNING, step=1600)
    assert RunFolder.open(run).status().state is RunState.INTERRUPTED
    answer = command("train", f"resume={run}")
    assert RunFolder.open(run).status().state is RunState.FINISHED
    assert last_state(run).step == 1600
    assert (run / "plots" / "learning_curve.png").is_file()
    assert "none: ValueError: the exporter is broken" in answer.out
    assert "Traceback" in (run / "log.txt").read_text()


def test_stopped_and_resumed_run_equals_the_uninterrupted_one(
    train_only, finished_run, here, at_collect
):
    at_collect(1000, interrupt)
    answer = train_only(*TINY, exits=130)
    assert "everything is saved; resume with" in answer.out
    run = only_run()
    status = RunFolder.open(run).status()
    assert (status.state, status.step) == (RunState.INTERRUPTED, 1024)
    assert "SIGINT" in status.reason
    went = train_only(f"resume={run}")
    assert "when this run began" not in went.out
    assert "updates: " in (run / "log.txt").read_text()
    assert_equal_ends(run, finished_run)
    assert [record["step"] for record in read_metrics(run / "metrics.jsonl")] == [800, 1600]


def test_a_run_that_goes_on_with_other_updates_says_so(train_only, run):
    origin = json.loads((run / "provenance.json").read_text())
    assert origin["methods"][0].startswith("updates: ")
    origin["methods"][0] = "updates: compiled (another)"
    (run / "provenance.json").write_text(json.dumps(origin))
    answer = train_only(f"resume={run}", "training.total_steps=2400")
    assert "when this run began it had updates: compiled (another)" in answer.out


def test_longer_run_goes_on_where_the_shorter_one_ended_and_its_step_size_may_change(
    command, train_only, run
):
    longer = ["training.total_steps=2400", "logging.quiet=true", "training.evaluation_interval=400"]
    train_only(*TINY, "runs=whole", *longer[:2])
    same = ("task=hover", "learner=sac", "seed=0", "num_envs=16")
    assert "nothing to do" in command("train", "resume=latest", *same).out
    assert train_only("resume=latest", *longer).out == ""
    assert_equal_ends(run, only_run(Path("whole")))
    assert from_plain(RunFolder.open(run).config()).training.total_steps == 2400
    assert RunFolder.open(run).status().state is RunState.FINISHED
    before = last_state(run).state["policy"]
    train_only(f"resume={run}", "learner.actor_lr=0", "training.total_steps=2560")
    after = last_state(run).state["policy"]
    weights = [name for name in before if name.endswith("weight")]
    assert weights
    assert all(torch.equal(before[name], after[name]) for name in weights)


def dead_pipe():
    """Descriptor of a pipe that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    return write


def test_signal_that_ended_the_reader_of_stderr_too_saves_the_run(train_only, here, at_collect):
    """`train ... 2>&1 | tee log`, then Ctrl-C: the run was lost, "failed: Broken pipe"."""
    kept, dead = os.dup(2), dead_pipe()
    at_collect(1000, lambda: (os.dup2(dead, 2), os.kill(os.getpid(), signal.SIGTERM)))
    try:
        train_only(*TINY, exits=128 + signal.SIGTERM)
    finally:
        os.dup2(kept, 2)
    status = RunFolder.open(only_run()).status()
    assert (status.state, status.step) == (RunState.INTERRUPTED, 1024)
    assert last_state(only_run()).step == 1024


def test_ctrl_c_in_a_pipeline_saves_the_run_and_exits_as_interrupted(here):
    """A dead stdout turned the exit code into 0."""
    process = subprocess.Popen(
        [
            sys.executable, "-m", "robot_rl.cli", "train", *TINY, "training.total_steps=1e6",
            "training.evaluation_interval=1e6", "logging.interval_seconds=0.1",
        ],
        env=clean_environ({"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert any("steps/s" in line for line in process.stdout)
    process.stdout.close()
    step = RunFolder.open(only_run()).status().step
    while RunFolder.open(only_run()).status().step <= step:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=120) == 130
    status = RunFolder.open(only_run()).status()
    assert (status.state, status.reason) == (RunState.INTERRUPTED, "stopped by SIGINT")
    assert last_state(only_run()).step == status.step > 0


def test_broken_pipe_of_a_part_fails_the_run_with_an_exit_code(command, here, at_collect):
    at_collect(400, lambda: os.write(dead_pipe(), b"to a process that died"))
    with pytest.raises(RuntimeError, match=r"the training failed: .*Broken pipe"):
        command("train", *TINY)
    assert RunFolder.open(only_run()).status().state is RunState.FAILED


def test_run_aborted_before_its_first_checkpoint_begins_again_says_so_and_keeps_its_metrics(
    train_only, here, at_collect
):
    """It began at step 0 in silence, and emptied metrics.jsonl."""
    at_collect(600, lambda: (interrupt(), interrupt()))
    train_only(*TINY, "logging.interval_seconds=1e-3", exits=130)
    run = only_run()
    status = RunFolder.open(run).status()
    assert (status.state, status.reason) == (RunState.INTERRUPTED, "aborted by a signal")
    before = (run / "metrics.jsonl").read_bytes()
    assert before.count(b"\n") > 10
    assert CheckpointStore(run / "checkpoints", read_only=True).steps() == []
    answer = train_only(f"resume={run}", "logging.interval_seconds=1000")
    assert "no checkpoint to resume from" in answer.out
    assert "kept in metrics_before_1.jsonl" in answer.out
    assert (run / "metrics_before_1.jsonl").read_bytes() == before
    assert [record["step"] for record in read_metrics(run / "metrics.jsonl")] == [800, 1600]


def test_run_that_cannot_be_resumed_is_refused_and_left_as_it_was(refused, run):
    kept = [(run / name).read_bytes() for name in ("config.yaml", "metrics.jsonl")]
    for override, told in (
        ("task=tracking", "would replace the task"),
        ("task.radius=3.5", "task.radius cannot change from"),
        ("cluster.device=cuda", "random streams of the saved worlds"),
        ("cluster.rows=512", "does nothing without cluster.collectors"),
        ("learner.actor.hidden=[8]", "the saved networks"),
        ("runs=elsewhere", "a run stays in its folder"),
        ("sed=5", "did you mean 'seed'"),
    ):
        assert told in refused("train", f"resume={run}", override)
    with RunFolder.open(run, write=True):
        assert "is being written by process" in refused("train", f"resume={run}")
    for file in run.glob("checkpoints/step_*/*"):
        file.write_bytes(b"damaged")
    told = refused("train", f"resume={run}", "training.total_steps=3200")
    assert "checkpoints in" in told
    assert "are damaged" in told
    assert [(run / name).read_bytes() for name in ("config.yaml", "metrics.jsonl")] == kept


@pytest.mark.parametrize("learner", ["sac", "iql", "qc", "hil_serl", "silri", "expo"])
def test_every_field_may_change_on_resume_or_has_a_reason(learner):
    fields = [field.path for field in walk_fields(composed([f"learner={learner}"]).config)]
    for path in fields:
        assert resume.is_free(path) or resume.why_fixed(path)
    assert "beginning of the run" in resume.why_fixed("training.snapshots.steps")


@pytest.mark.parametrize("name", ["training.prior.run", "training.snapshots.data"])
def test_data_may_move_on_resume_but_neither_come_nor_go(tmp_path, name):
    def run(kind: str, *overrides: str) -> RunFolder:
        config = to_plain(composed(["device=cpu", *overrides]).config)
        named = RunName(task="hover", robot="crazyflie", learner="sac", seed=0)
        return RunFolder.create(tmp_path / kind, named, config, {})

    with run("mixed", f"{name}=here") as mixed, run("plain") as plain:
        assert resume.resumed_config(mixed, [f"{name}=there"])
        with pytest.raises(ConfigError, match=r"from 'here' to '' on resume.*goes on with them"):
            resume.resumed_config(mixed, [f"{name}="])
        with pytest.raises(ConfigError, match=r"from '' to 'there' on resume.*without any"):
            resume.resumed_config(plain, [f"{name}=there"])


def test_the_interval_of_the_best_score_is_of_the_episodes_that_it_was_measured_in(tmp_path):
    """After a resume with more evaluation episodes it was as narrow as that of as many."""
    config = composed(["device=cpu", "training.evaluation_episodes=16"]).config
    name = RunName(task="hover", robot="crazyflie", learner="sac", seed=0)
    env: Any = SimpleNamespace(spec=SimpleNamespace(judges_success=True))
    score = Score(value=15 / 16, floor=0.8, second=1.0, episodes=16)
    with RunFolder.create(tmp_path, name, to_plain(config), {}) as run:
        store = CheckpointStore(run.checkpoints)
        store.save(1000, {}, score=score)
        resumed = resume.resumed_config(run, ["training.evaluation_episodes=1024"])
        told = finish._best(run, resumed, env)["success"]
        assert told.startswith("93.8% (95 % interval 71.7% to 98.9%) of 16 validation starts")
        store.save(2000, {}, score=dataclasses.replace(score, value=1.0, episodes=0))
        assert "of 1024 validation starts" in finish._best(run, resumed, env)["success"]


def test_the_hint_to_go_on_is_longer_than_what_was_reached(tmp_path):
    """A run of 40 steps with 1,024 envs ended at 1,024, and was told to go on to 80."""
    config = composed(["device=cpu", "training.total_steps=40"]).config
    name = RunName(task="hover", robot="crazyflie", learner="sac", seed=0)
    with RunFolder.create(tmp_path, name, to_plain(config), {}) as run:
        assert finish.longer(run, config) == 80
        CheckpointStore(run.checkpoints).save(1024, {})
        assert finish.longer(run, config) == 2048
        offline = composed([
            "learner=wsrl", "training.offline.updates=1024", "training.total_steps=0",
            "training.prior.run=x",
        ]).config  # fmt: skip
        assert finish.longer(run, offline) == 50_000
        lines = next_commands(run, config, 2048)
        assert lines["resume"] == f"robot-rl train resume={run.path} training.total_steps=2048"
        assert next_commands(run, config, None)["resume"] == f"robot-rl train resume={run.path}"


@dataclasses.dataclass(kw_only=True)
class OddConfig(HoverConfig):
    """Hover of a script."""


def test_a_run_of_a_task_that_a_script_registered_says_lines_of_python(tmp_path):
    """Commands were printed that are all refused: they do not know such a task."""
    register(Component("task", "odd", OddConfig, HoverTask))
    try:
        config = composed(["task=odd", "device=cpu"]).config
        name = RunName(task="odd", robot="crazyflie", learner="sac", seed=0)
        with RunFolder.create(tmp_path, name, to_plain(config), {}) as run:
            lines = next_commands(run, config, 9)
        opened, where = f"robot_rl.load_run('{run.path}')", "the script that registers task 'odd'"
        assert lines == {
            "evaluate": f"{opened}.evaluate(), in {where}",
            "export": f"{opened}.export(), in {where}",
            "resume": f"{opened}.resume(total_steps=9), in {where}",
        }
        saved = to_plain(config)
    finally:
        del REGISTRIES["task"]["odd"], REGISTRIES["task"].owners["odd"]
    with pytest.raises(ConfigError) as refused:
        from_plain(saved)
    told = str(refused.value)
    assert told.startswith("task 'odd' is unknown")
    assert "cartpole_swingup" in told, "choices, not components"
    assert "a script may have registered it: open the run there, or make a package" in told


def test_resume_of_no_run_names_the_nearest(refused, here):
    assert "is not a run: it does not exist" in refused("train", "resume=runs/nothing")
    assert "there is no run in runs" in refused("train", "resume=latest")
    assert "option 'resum' is unknown" in refused("train", "resum=latest")


@pytest.mark.timeout(700)
@pytest.mark.parametrize(
    ("kills", "moments"), [(4, 2), pytest.param(20, 5, marks=pytest.mark.full)]
)
def test_run_killed_many_times_equals_the_uninterrupted_one(kills, moments, tmp_path):
    """SIGKILL at random moments, from the making of the folder to the last checkpoint."""
    script = Path(__file__).with_name("killed_runs.py")
    done = python(str(script), str(tmp_path), str(kills))
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["kills"] == kills
    assert len(set(report["steps"])) >= moments, "the kills hit different moments"
    for killed in map(Path, report["killed"]):
        assert_equal_ends(killed, Path(report["whole"]))
        steps = [record["step"] for record in read_metrics(killed / "metrics.jsonl")]
        assert steps == sorted(set(steps))


def test_a_run_says_which_other_it_begins_with_and_keeps_that(train_only, finished_run, here):
    """A folder of runs is named: which of them it was would not be known later."""
    answer = train_only(*TINY, f"training.start.run={finished_run.parent}")
    told = f"begins with the learner of {finished_run}, step 1600"
    assert told in answer.out
    assert told in (only_run() / "log.txt").read_text()
    (here / "empty").mkdir()
    answer = train_only(*TINY, "training.start.run=empty", exits=2)
    assert "training.start.run: 'empty' is not a run: it has no config.yaml" in answer.err
