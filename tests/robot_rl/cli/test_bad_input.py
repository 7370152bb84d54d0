"""What a person can get wrong: one clear sentence, exit code 2, earlier results intact."""

import os
import resource
import shutil
import subprocess
from pathlib import Path

import pytest

import sim.tasks.flights.hover
from robot_rl import make_env
from robot_rl.core.errors import ConfigError
from robot_rl.training.runs.run_folder import RunFolder, RunState
from robot_rl.training.storage.checkpoint import CheckpointStore
from sim.env import Observer
from tests.robot_rl.cli.tiny_run import TINY, only_run, python

pytestmark = pytest.mark.slow

WITHOUT = """
import runpy, sys
sys.modules |= dict.fromkeys(sys.argv[1].split(","))
del sys.argv[1]
runpy.run_module("robot_rl.cli", run_name="__main__", alter_sys=True)
"""
"""Runs a command in an interpreter that cannot import some packages."""


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["task=hoover"], "did you mean 'hover'"),
        (["num_envs=1e9"], "envs: 2,000,000 MB on cpu are needed"),
        (["device=gpu"], "device 'gpu' is unknown; known: auto, cpu, cuda"),
        (["training.replay_capacity=1000000000000"], "MB are free"),
        (["task.actor=[{term: positon_error_w}]"], "did you mean 'position_error_w'"),
        (["robot.spec.rotors=[m1,m1]"], "distinct names"),
        (["learner=residual"], "none was named; expected learner.base.paths=[<folder of a"),
        (["learner=h2o"], "name them, with a share such as 0.5"),
        (["learner.freeze_normalizers=true"], "leaves normalisers at stored experience"),
        (
            ["learner.critic.kind=flash", "learner.freeze_normalizers=true",
             "training.start.run=x"],
            "does not hold the batch norm of learner.critic.kind=flash",
        ),
        (["training.prior.run=nowhere"], "there is no 'nowhere'; expected the folder of a data"),
    ],
)  # fmt: skip
def test_mistake_is_one_sentence_and_leaves_nothing(refused, here, overrides, told):
    assert told in refused("train", *TINY, *overrides)
    assert os.listdir(here) == []


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("evaluate", ["bundle=zoo:crazyflie-hover", "episodes=1e9"]),
        ("evaluate", ["agent=zero", "task=hover", "episodes=1000000000"]),
        ("collect", ["task=hover", "num_envs=1e9", "episodes=1", "out=data"]),
        ("view", ["task=hover", "num_envs=1e9", "open=false"]),
    ],
)
def test_more_envs_than_memory_holds_are_refused_everywhere(refused, here, verb, words):
    assert "envs: 2,000,000 MB on cpu are needed" in refused(verb, *words)
    assert os.listdir(here) == []


def test_more_envs_than_memory_holds_are_refused_in_python():
    with pytest.raises(ConfigError, match=r"are needed, but only .* are free; lower num_envs"):
        make_env("task=hover", num_envs=10**9)


DOUBLED = """<robot name="d">
<link name="a"/><link name="b"/><link name="c"/>
<joint name="j" type="fixed"><parent link="a"/><child link="b"/></joint>
<joint name="j" type="fixed"><parent link="b"/><child link="c"/></joint>
</robot>"""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "threads=100000"], "threads must be at most 1,024, got 100,000"),
        (["runs", "clean", "older_than=inf"], "older_than must be 36500 days or less, got inf"),
        (["runs", "compare", "x", "out=."], "out must be a picture to write, such as curves.png"),
        (["deploy", "bundle=zoo:go2-velocity", "patience=inf"], "patience must be a number >= 1"),
        (["deploy", "bundle=zoo:go2-velocity", "goal.velocity_b=[inf,0,0]"],
         "goal 'velocity_b' takes 3 finite numbers, got [inf, 0, 0]"),
        (["train", "robot.physics_dt=inf"], "robot.physics_dt must be > 0 and finite, got inf"),
        (["train", "robot.cameras.front.far=inf"], "camera.far inf must exceed near"),
        (["data", "convert", "x", "y", "action_range=0,inf"], "action_range=0,inf was asked for"),
        (["runs", "clean", "older_than=-3"], "older_than must be 0 days or more, got -3"),
        (["console", "channels=x", "stick=gamepad:/dev/x"], "nobody can take it over here"),
        (["console", "port=-5"], "port must lie in 0 to 65535, got -5"),
        (["zoo", "fetch", "panda-reach", "to=file/x"], "cannot write file/x: "),
        (["urdf", "robot=panda", "out=nowhere/x.urdf"], "cannot write nowhere/x.urdf: "),
        (["secure", "out=file"], "cannot write file/policy.xml: "),
        (["deploy", "bundle=nowhere"], "bundle 'nowhere' is not a folder"),
        (["new", "project", "tests"], "'tests' is a folder of every project"),
        (["robot", "import", "twice.urdf"], "has several joints called j; name them apart"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_or_counted_is_one_sentence(refused, here, words, told):
    Path("file").touch()
    Path("twice.urdf").write_text(DOUBLED)
    assert told in refused(*words)


def test_runs_folder_that_cannot_be_written(refused, here):
    Path("file").touch()
    Path("runs").mkdir(mode=0o500)
    # Root may write everywhere but into the kernel's own file system.
    for runs in ("file/runs", "/proc/runs" if os.geteuid() == 0 else "runs"):
        told = refused("train", *TINY, f"runs={runs}")
        assert "cannot make a run in" in told
        assert "choose another folder" in told or runs != "file/runs"


def test_reward_that_is_not_a_number_names_world_and_term(command, train_only, here, monkeypatch):
    original, calls = sim.tasks.flights.hover.reward_terms, []

    def broken(error, *rest):
        terms = original(error, *rest)
        calls.append(len(error))
        if len(error) == 16 and calls.count(16) > 60:
            terms["effort"][7] = float("nan")
        return terms

    with monkeypatch.context() as patch:
        patch.setattr(sim.tasks.flights.hover, "reward_terms", broken)
        answer = command("train", *TINY, exits=2)
    assert answer.err.startswith("error: reward term 'effort' was NaN or infinite in 1 env")
    assert "(7)" in answer.err
    assert answer.err.count("\n") == 1
    assert "what was saved is intact; resume with" in answer.out
    run = only_run()
    assert "effort" in RunFolder.open(run).status().reason
    assert CheckpointStore(run / "checkpoints", read_only=True).load("latest").step == 800
    assert RunFolder.open(run).status().state is RunState.FAILED
    train_only(f"resume={run}")
    assert RunFolder.open(run).status().state is RunState.FINISHED


def test_observation_that_is_not_a_number_names_world_and_term(refused, here, monkeypatch):
    original, calls = Observer.update, []

    def broken(self, last_action):
        obs = original(self, last_action)
        if len(last_action) == 16:
            calls.append(0)
            if len(calls) > 60:
                obs["actor"][5, 0] = float("inf")
        return obs

    monkeypatch.setattr(Observer, "update", broken)
    told = refused("train", *TINY)
    assert told.startswith("error: actor term '")
    assert "(5)" in told


def test_full_disk_is_one_sentence(tmp_path):
    """A limit on the size of files stands in for a full disk: the same calls fail."""
    limit = 120_000
    done = python(
        "-m", "robot_rl.cli", "train", *TINY, "training.evaluation_interval=320",
        f"runs={tmp_path}",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: cannot write the segment")
    assert done.stderr.count("\n") == 1
    assert RunFolder.open(only_run(tmp_path)).status().state is RunState.FAILED


def test_really_full_disk_is_one_sentence_and_the_run_goes_on_after_it(train_only, here):
    Path("disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", "disk"]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this user may not mount a small file system")
    try:
        done = python(
            "-m", "robot_rl.cli", "train", *TINY, "logging.tensorboard=true",
            "training.total_steps=100000", "training.replay_capacity=100000", "runs=disk",
        )  # fmt: skip
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert "no space is left on the disk" in done.stderr.splitlines()[-1]
        shutil.copytree(only_run("disk"), "rescued")
    finally:
        subprocess.run(["umount", "disk"], check=True)
    step = CheckpointStore("rescued/checkpoints", read_only=True).load("latest").step
    train_only("resume=rescued", f"training.total_steps={step + 800}")


@pytest.mark.parametrize(("package", "extra"), [("torch", "train"), ("warp", "sim")])
def test_missing_package_is_named_with_the_extra_that_brings_it(tmp_path, package, extra):
    done = python("-c", WITHOUT, package, "train", *TINY, f"runs={tmp_path}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert f"pip install 'robot_rl[{extra}]'" in done.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("package", "extra", "words"),
    [
        ("viser", "ui", ["view", "zoo:go2-velocity"]),
        ("mujoco", "sim", ["view", "task=reach"]),
        ("pyarrow", "data", ["collect", "task=hover", "episodes=1", "out=data"]),
        ("pyarrow", "data", ["data", "info", "data"]),
        ("rclpy", "ros2", ["deploy", "bundle=zoo:crazyflie-hover", "seconds=1"]),
        ("onnxruntime", "train", ["deploy", "bundle=zoo:crazyflie-hover", "seconds=1"]),
        ("grpc", "link", ["learn", "task=peg"]),
    ],
)
def test_commands_name_the_extra_that_they_lack(tmp_path, package, extra, words):
    done = python("-c", WITHOUT, package, *words, cwd=tmp_path)
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    assert f"pip install 'robot_rl[{extra}]'" in done.stderr
    assert os.listdir(tmp_path) == []


def test_packages_missing_after_training_cost_its_pictures_and_not_the_run(tmp_path):
    missing = "matplotlib,onnxscript,pyarrow,h5py,grpc,aiohttp,viser,rclpy"  # and all other extras
    done = python("-c", WITHOUT, missing, "train", *TINY, f"runs={tmp_path}")
    assert done.returncode == 0, done.stderr
    told = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if " " in line.strip())
    for what in ("curve", "picture", "bundle"):
        assert told[what].startswith("none: ")
        assert "pip install 'robot_rl[" in told[what]
    assert RunFolder.open(only_run(tmp_path)).status().state is RunState.FINISHED
