"""`robot-rl train`: what a run leaves, how it stops, and that it goes on as if it never had."""

import json
import os
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
import yaml

from configs.catalog import GROUPS, choices
from configs.compose import from_plain
from robot_rl.core.process import clean_environ
from robot_rl.training.collector import Collector
from robot_rl.training.reporting.metrics import read_metrics
from robot_rl.training.runs.run_folder import RunFolder, RunState
from robot_rl.training.storage.checkpoint import CheckpointStore
from tests.robot_rl.cli.tiny_run import ROOT, TINY, only_run

pytestmark = pytest.mark.slow


def tensors(state, path=""):
    """Every tensor of a state by its path."""
    if isinstance(state, torch.Tensor):
        return {path: state}
    items = state.items() if isinstance(state, dict) else enumerate(state)
    nested = (isinstance(state, (dict, list, tuple)) and items) or ()
    return {k: v for name, part in nested for k, v in tensors_of(part, f"{path}/{name}").items()}


def tensors_of(part, path):
    return tensors(part, path) if isinstance(part, (dict, list, tuple, torch.Tensor)) else {}


def last_state(run):
    return CheckpointStore(run / "checkpoints", read_only=True).load("latest")


def assert_equal_ends(run, other):
    """Bit for bit: networks, optimisers, normalisers, random streams, worlds, replay."""
    one, two = last_state(run), last_state(other)
    assert one.step == two.step
    left, right = tensors(one.state), tensors(two.state)
    # The entries of the replay differ in how they cut the rows; the rows are compared below.
    assert left.keys() == right.keys()
    assert len(left) > 40
    assert [name for name in left if not torch.equal(left[name], right[name])] == []
    assert torch.equal(replay_rows(run, one), replay_rows(other, two))


def replay_rows(run, checkpoint):
    from robot_rl.training.storage.segments import SegmentStore

    store = SegmentStore(run / "replay")
    entries = checkpoint.state["replay"]["entries"]
    rows = torch.cat([store.read(entry)["rows"] for entry in entries])
    return rows[-checkpoint.state["replay"]["shape"][0] :]


@pytest.fixture
def at_collect(monkeypatch):
    """Calls a function before a given step of a run: `at_collect(step, function)`."""

    def install(step, function):
        collect, done = Collector.collect, []

        def wrapped(self):
            if self.env_steps >= step and not done:
                done.append(step)
                function()
            collect(self)

        monkeypatch.setattr(Collector, "collect", wrapped)

    return install


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def test_help_names_every_choice_with_a_line_about_it(command):
    answer = command("train", "--help")
    assert answer.code == 0
    for group in GROUPS:
        for name, text in choices(group).items():
            assert any(
                line.split()[:1] == [name] and text in line for line in answer.out.split("\n")
            )


def test_config_is_printed_as_yaml_that_can_be_read_back(command):
    answer = command("train", "--cfg", "job", "task=tracking", "seed=3")
    config = from_plain(yaml.safe_load(answer.out))
    assert (config.seed, type(config.task).__name__) == (3, "TrackingConfig")


def test_fields_are_printed_with_type_value_and_meaning(command):
    lines = command("train", "--info", "fields", "num_envs=7").out.splitlines()
    at = lines.index("num_envs=7  (whole number)")
    assert lines[at + 1].strip() == "Worlds simulated at once."


def test_unknown_flag_is_refused(command):
    answer = command("train", "--multirun", "seed=1", "--verbose")
    assert answer.code == 2
    assert "'--verbose' is not a flag; write verbose=true" in answer.err


def test_run_leaves_everything_in_its_own_folder(finished_run):
    run = RunFolder.open(finished_run)
    assert run.status().state is RunState.FINISHED
    assert from_plain(run.config()).training.total_steps == 1600
    assert run.config()["device"] == "cpu"
    assert [r["step"] for r in read_metrics(run.metrics_path)] == [800, 1600]
    assert (run.plots / "learning_curve.png").stat().st_size > 10_000
    assert (run.bundle / "policy.onnx").is_file()
    assert run.provenance()["run"] == {
        "task": "hover", "robot": "crazyflie", "learner": "sac", "seed": 0,
    }  # fmt: skip
    assert not list(Path.cwd().glob("outputs")) + list(Path.cwd().glob("multirun"))


def test_summary_says_where_to_look_and_what_to_type_next(command, here):
    answer = command("train", *TINY)
    assert answer.code == 0
    run = only_run()
    for needed in (
        f"robot-rl evaluate run={run}", f"robot-rl export run={run}", f"resume={run}",
        f"{run}/plots/learning_curve.png", f"{run}/bundle", "95 % interval",
    ):  # fmt: skip
        assert needed in answer.out
    assert answer.out.index("replay: ") < answer.out.index("hover · crazyflie · sac")
    assert os.listdir(here) == ["runs"], "nothing is left beside the runs"


def test_failed_run_of_a_sweep_is_reported_and_the_others_go_on(train_only, here):
    answer = train_only("-m", *TINY, "seed=0,1", "training.replay_capacity=1,800")
    assert answer.code == 2
    assert "2 of 4 runs finished" in answer.out
    failed = [line for line in answer.err.splitlines() if line.startswith("failed: ")]
    assert len(failed) == 2
    assert "capacity 1 holds 0 steps" in failed[0]
    assert len(list(Path("runs").iterdir())) == 2, "a run that never began leaves no folder"


def test_sweep_with_a_mistake_in_its_last_run_trains_nothing(refused, here):
    assert "learner.gamma" in refused("train", "-m", *TINY, "learner.gamma=0.9,2")
    assert os.listdir(here) == []


def test_broken_step_after_training_does_not_lose_the_run(command, here, monkeypatch):
    command("train", "--help")  # puts the scripts on the path

    def fail(*arguments):
        raise ValueError("the exporter is broken")

    monkeypatch.setattr(import_module("robot_rl.cli.finish"), "export_run", fail)
    answer = command("train", *TINY)
    assert answer.code == 0
    assert "none: ValueError: the exporter is broken" in answer.out
    assert RunFolder.open(only_run()).status().state is RunState.FINISHED
    assert "Traceback" in (only_run() / "log.txt").read_text()


def test_stopped_and_resumed_run_equals_the_uninterrupted_one(train_only, here, at_collect):
    assert train_only(*TINY, "runs=whole").code == 0
    at_collect(1000, interrupt)
    answer = train_only(*TINY)
    assert answer.code == 130
    assert "everything is saved; resume with" in answer.out
    run = only_run()
    status = RunFolder.open(run).status()
    assert (status.state, status.step) == (RunState.INTERRUPTED, 1024)
    assert "SIGINT" in status.reason
    assert train_only(f"resume={run}").code == 0
    assert_equal_ends(run, only_run(Path("whole")))
    steps = [record["step"] for record in read_metrics(run / "metrics.jsonl")]
    assert steps == [800, 1600]


def test_second_signal_aborts(command, here, at_collect):
    at_collect(1000, lambda: (interrupt(), interrupt()))
    assert command("train", *TINY).code == 130
    run = only_run()
    assert RunFolder.open(run).status().state is RunState.INTERRUPTED
    assert last_state(run).step == 800


def dead_pipe():
    """Descriptor of a pipe that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    return write


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_that_ended_the_reader_of_stderr_too_saves_the_run(
    train_only, here, at_collect, number
):
    """`train ... 2>&1 | tee log`, then Ctrl-C: the run was lost, "failed: Broken pipe"."""
    kept, dead = os.dup(2), dead_pipe()
    at_collect(1000, lambda: (os.dup2(dead, 2), os.kill(os.getpid(), number)))
    try:
        answer = train_only(*TINY)
    finally:
        os.dup2(kept, 2)
    assert answer.code == 128 + number
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
    def break_pipe():
        os.write(dead_pipe(), b"to a process that died")

    at_collect(1000, break_pipe)
    with pytest.raises(RuntimeError, match=r"the training failed: .*Broken pipe"):
        command("train", *TINY)
    assert RunFolder.open(only_run()).status().state is RunState.FAILED


def test_longer_run_goes_on_where_the_shorter_one_ended(command, train_only, here):
    longer = ["training.total_steps=2400", "logging.quiet=true", "training.evaluation_interval=400"]
    assert train_only(*TINY, "runs=whole", *longer[:2]).code == 0
    assert train_only(*TINY).code == 0
    run = only_run()
    assert "nothing to do" in command("train", "resume=latest").out
    assert command("train", "resume=latest", *longer).out == ""
    assert_equal_ends(run, only_run(Path("whole")))
    assert from_plain(RunFolder.open(run).config()).training.total_steps == 2400
    assert RunFolder.open(run).status().state is RunState.FINISHED


def test_a_run_that_died_after_its_last_checkpoint_is_finished_by_going_on(command, here):
    """It said that there was nothing to do, and stayed without a bundle for ever."""
    assert command("train", *TINY).code == 0
    path = only_run()
    with RunFolder.open(path, write=True) as run:
        shutil.rmtree(run.bundle)
        run.mark(RunState.RUNNING, step=1600)
    assert RunFolder.open(path).status().state is RunState.INTERRUPTED
    answer = command("train", f"resume={path}")
    assert answer.code == 0, answer.err
    assert RunFolder.open(path).status().state is RunState.FINISHED
    assert (path / "bundle" / "policy.onnx").is_file()
    assert last_state(path).step == 1600


def test_run_without_a_checkpoint_begins_again_says_so_and_keeps_its_metrics(
    train_only, here, at_collect
):
    """It began at step 0 in silence, and emptied metrics.jsonl."""
    at_collect(600, lambda: (interrupt(), interrupt()))
    assert train_only(*TINY, "logging.interval_seconds=1e-3").code == 130
    run = only_run()
    before = (run / "metrics.jsonl").read_bytes()
    assert before.count(b"\n") > 10
    assert CheckpointStore(run / "checkpoints", read_only=True).steps() == []
    answer = train_only(f"resume={run}", "logging.interval_seconds=1000")
    assert answer.code == 0
    assert "no checkpoint to resume from" in answer.out
    assert "kept in metrics_before_1.jsonl" in answer.out
    assert (run / "metrics_before_1.jsonl").read_bytes() == before
    assert [record["step"] for record in read_metrics(run / "metrics.jsonl")] == [800, 1600]


def test_run_whose_checkpoints_are_all_damaged_is_refused_and_left_as_it_was(
    finished_run, refused, here
):
    run = here / "damaged"
    shutil.copytree(finished_run, run)
    for file in run.glob("checkpoints/step_*/*"):
        file.write_bytes(b"damaged")
    before = (run / "metrics.jsonl").read_bytes()
    told = refused("train", f"resume={run}", "training.total_steps=3200")
    assert "checkpoints in" in told
    assert "are damaged" in told
    assert (run / "metrics.jsonl").read_bytes() == before


def test_step_size_may_change_on_resume(train_only, here):
    train_only(*TINY)
    run = only_run()
    before = last_state(run).state["policy"]
    train_only(f"resume={run}", "learner.actor_lr=0", "training.total_steps=1920")
    after = last_state(run).state["policy"]
    weights = [name for name in before if name.endswith("weight")]
    assert weights
    assert all(torch.equal(before[name], after[name]) for name in weights)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("task=tracking", "would replace the task"),
        ("task.radius=3.5", "task.radius cannot change from"),
        ("robot.plant=measured", "belong to the robot as it was"),
        ("learner.actor.hidden=[8]", "the saved networks"),
        ("num_envs=8", "state of exactly that many worlds"),
        ("seed=5", "random streams go on"),
        ("training.replay_capacity=1600", "the saved replay has that size"),
        ("training.random_steps=0", "at the beginning of the run"),
        ("runs=elsewhere", "a run stays in its folder"),
        ("sed=5", "did you mean 'seed'"),
    ],
)
def test_resume_refuses_what_the_saved_state_depends_on(refused, finished_run, override, told):
    before = (finished_run / "config.yaml").read_bytes()
    assert told in refused("train", f"resume={finished_run}", override)
    assert (finished_run / "config.yaml").read_bytes() == before


def test_resume_accepts_what_changes_nothing(command, finished_run):
    same = ("task=hover", "learner=sac", "seed=0", "num_envs=16")
    assert "nothing to do" in command("train", f"resume={finished_run}", *same).out


def test_run_that_is_being_written_is_not_resumed(refused, finished_run):
    with RunFolder.open(finished_run, write=True):
        assert "is being written by process" in refused("train", f"resume={finished_run}")


def test_resume_of_no_run_names_the_nearest(refused, here):
    assert "is not a run: it does not exist" in refused("train", "resume=runs/nothing")
    assert "there is no run in runs" in refused("train", "resume=latest")
    assert "option 'resum' is unknown" in refused("train", "resum=latest")


@pytest.mark.timeout(700)
@pytest.mark.parametrize(
    ("kills", "moments"), [(6, 2), pytest.param(20, 5, marks=pytest.mark.full)]
)
def test_run_killed_many_times_equals_the_uninterrupted_one(kills, moments, tmp_path):
    """SIGKILL at random moments, from the making of the folder to the last checkpoint."""
    script = Path(__file__).with_name("killed_runs.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(kills)],
        env=clean_environ({"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["kills"] == kills
    assert len(set(report["steps"])) >= moments, "the kills hit different moments"
    for killed in map(Path, report["killed"]):
        assert_equal_ends(killed, Path(report["whole"]))
        steps = [record["step"] for record in read_metrics(killed / "metrics.jsonl")]
        assert steps == sorted(set(steps))


def test_a_run_says_which_other_it_begins_with_and_keeps_that(train_only, here):
    """A folder of runs is named: which of them it was would not be known later."""
    train_only(*TINY, "runs=before")
    before = next((here / "before").iterdir())
    answer = train_only(*TINY, "training.start.run=before", "runs=after")
    assert answer.code == 0, answer.err
    told = f"begins with the learner of before/{before.name}, step 1600"
    assert told in answer.out
    assert told in (next((here / "after").iterdir()) / "log.txt").read_text()


def test_a_folder_without_a_run_to_begin_with_is_refused_by_name(train_only, here):
    (here / "runs/empty").mkdir(parents=True)
    answer = train_only(*TINY, "training.start.run=runs/empty", "runs=runs")
    assert answer.code == 2
    assert "training.start.run: 'runs/empty' is not a run: it has no config.yaml" in answer.err
