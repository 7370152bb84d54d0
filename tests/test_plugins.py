"""A package outside the repository brings its own parts, and nothing of ours is edited for it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
import yaml

from hardware.control.ipc import StatusSubscriber
from hardware.control.process import RobotChannels
from hardware.control.request_socket import NoRobotError, send_request
from hardware.learning.operation import TOWARDS_POLICY
from robot_rl.cli.main import main
from robot_rl.cli.new import write_project
from robot_rl.core.process import clean_environ
from robot_rl.training.reporting.metrics import read_metrics
from tests.robot_rl.link.linked import until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
FURTHER = Path(__file__).parent / "out_of_tree"
SHORT = (
    "num_envs=8", "training.total_steps=800", "training.random_steps=160",
    "training.evaluation_interval=400", "training.evaluation_episodes=4", "learner.batch_size=16",
    "training.replay_capacity=800", "training.updates_per_step=1", "logging.tensorboard=false",
    "logging.interval_seconds=1000", "video=false",
)  # fmt: skip
ENTRIES = """my_arm_parts = "my_arm.parts"
my_arm_hardware = "my_arm.hardware_parts"
"""


def python(*arguments, path=(), cwd=None):
    """Run Python with folders of packages before ours."""
    environ = {"PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT))), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=cwd, env=clean_environ(environ),
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip


SEVERAL = """
import json, sys
from robot_rl.cli import session
from robot_rl.cli.main import main

session.report_outcome = lambda *_: {}
for words in json.loads(sys.argv[1]):
    main(words)
"""


def succeed(*commands, site, cwd):
    """Run commands in one process, trainings without plots and bundle; returns their output."""
    done = python("-c", SEVERAL, json.dumps(commands), path=[site], cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Folder that `robot-rl new project my_arm` writes."""
    return write_project("my_arm", tmp_path_factory.mktemp("projects"))


@pytest.fixture(scope="module")
def site(project, tmp_path_factory):
    """Folder that pip installed the project into, with a learner, an expert, a driver, a law."""
    source = tmp_path_factory.mktemp("source") / "my_arm"
    shutil.copytree(project, source)
    for path in FURTHER.glob("*.py"):
        shutil.copy(path, source / "my_arm")
    shutil.copy(ROOT / "examples" / "custom_learner.py", source / "my_arm" / "ddpg.py")
    learner = source / "my_arm" / "configs" / "learner" / "my_arm_ddpg.yaml"
    learner.parent.mkdir()
    learner.write_text("# DDPG.\ndefaults:\n  - my_arm_ddpg_schema\n  - _self_\n")
    text = (source / "pyproject.toml").read_text()
    first = 'my_arm = "my_arm.plugin"\n'
    assert first in text
    (source / "pyproject.toml").write_text(text.replace(first, first + ENTRIES))
    target = tmp_path_factory.mktemp("site")
    done = python(
        "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
        "--target", target, source,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def run(site, tmp_path_factory):
    """A run of the package's task, robot and learner, trained by the command."""
    here = tmp_path_factory.mktemp("here")
    done = python("-m", "robot_rl.cli", "train", "task=my_arm_reach", "learner=my_arm_ddpg",
                  *SHORT, path=[site], cwd=here)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "verified against PyTorch" in done.stdout
    (path,) = (here / "runs").iterdir()
    return path


def test_written_project_passes_its_own_tests(project, tmp_path):
    copy = tmp_path / "my_arm"
    shutil.copytree(project, copy)
    target = tmp_path / "site"
    done = python("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation",
                  "--no-index", "--target", target, copy)  # fmt: skip
    assert done.returncode == 0, done.stderr
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", path=[target], cwd=copy)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_makefile_installs_and_trains(project, tmp_path):
    """Editable, as a user works: entry points come from the installation, files from the folder."""
    copy, site = tmp_path / "my_arm", tmp_path / "environment"
    shutil.copytree(project, copy)
    done = python("-m", "venv", "--without-pip", site)
    assert done.returncode == 0, done.stderr
    (packages,) = site.glob("lib/python*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "ours.pth").write_text("\n".join([*ours, str(ROOT)]))
    done = subprocess.run(
        ["make", "train", f"PYTHON={site / 'bin' / 'python'}",
         "PIP_FLAGS=--no-deps --no-build-isolation --no-index",
         f"ARGS={' '.join(SHORT)}"],
        cwd=copy, capture_output=True, text=True, timeout=600,
        env=clean_environ({"OMP_NUM_THREADS": "1", "PYTHONPATH": ""}),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    (path,) = (copy / "runs").iterdir()
    assert path.name.endswith("my_arm_reach_my_arm_arm_sac_s0")
    assert any(packages.glob("__editable__*my_arm*"))


def test_run_and_bundle_say_which_package_they_need(run):
    used = {"distribution": "my_arm", "version": "0.1.0"}
    kept = yaml.safe_load((run / "config.yaml").read_text())["plugins"]
    assert kept == {"my_arm": used, "my_arm_parts": used, "my_arm_terms": used}
    bundle = json.loads((run / "bundle" / "provenance.json").read_text())
    assert bundle["config"]["plugins"] == kept
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["robot"]["model"] == "package://my_arm/configs/robot/my_arm_arm.xml"


def test_run_is_evaluated_and_goes_on(site, run):
    said = succeed(
        ["evaluate", f"run={run}", "episodes=4"],
        ["train", f"resume={run}", "training.total_steps=880"],
        site=site, cwd=run.parents[1],
    )  # fmt: skip
    assert "finished 880 steps" in said


@pytest.mark.parametrize("words", [("evaluate", "run={run}"), ("train", "resume={run}"),
                                   ("export", "run={run}"), ("critics", "run={run}")])  # fmt: skip
def test_run_without_its_package_is_refused_with_the_remedy(run, words, capsys):
    command, where = words
    with pytest.raises(SystemExit) as ended:
        main([command, where.format(run=run)])
    told = capsys.readouterr().err
    assert (ended.value.code, told.count("\n")) == (2, 1), told
    assert "was made with the plug-in 'my_arm' of my_arm 0.1.0, which is not installed" in told
    assert "pip install 'my_arm==0.1.0'" in told


WITHOUT_TORCH = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "hydra", "mujoco"}:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Block())
from policies.bundle import load_bundle
print(load_bundle(sys.argv[1]).spec.robot.name)
"""


def test_bundle_runs_without_torch_and_names_the_package_that_is_missing(site, run):
    done = python("-c", WITHOUT_TORCH, run / "bundle", path=[site])
    assert (done.returncode, done.stdout) == (0, "my_arm_arm\n"), done.stderr
    done = python("-c", WITHOUT_TORCH, run / "bundle")
    told = done.stderr.splitlines()[-1]
    assert "observation term 'my_arm_distance' is unknown" in told
    assert "install what the run was made with: my_arm 0.1.0" in told


def test_expert_of_the_package_records_successes(site, tmp_path):
    done = python("-m", "robot_rl.cli", "collect", "task=my_arm_reach", "episodes=4", "out=data",
                  "noise=0", "only_successes=true", path=[site], cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "data").is_dir()


def test_a_reward_term_of_the_package_counts_in_a_task_of_ours(site, tmp_path):
    weight = "task.reward.initial.my_arm_calm=0.1"  # without its term it would be refused
    succeed(
        ["train", "task=hover", weight, "num_envs=4", "training.total_steps=32",
         "training.random_steps=8", "learner.batch_size=4", "training.evaluation_episodes=2",
         "training.replay_capacity=64"],
        site=site, cwd=tmp_path,
    )  # fmt: skip
    (run,) = (tmp_path / "runs").iterdir()
    assert "my_arm_parts" in yaml.safe_load((run / "config.yaml").read_text())["plugins"]


def test_choices_and_fields_show_the_package(site):
    done = python("-m", "robot_rl.cli", "train", "--help", path=[site])
    assert "my_arm_reach" in done.stdout
    assert "Brings robot=my_arm_arm." in done.stdout
    assert "my_arm_ddpg" in done.stdout
    done = python("-m", "robot_rl.cli", "train", "task=my_arm_reach", "--info", "fields",
                  path=[site])  # fmt: skip
    assert "Largest angle of a goal from straight ahead [rad]." in done.stdout


LEARNING = (
    "task=my_arm_reach", "driver=my_arm_port", "driver_options={port: can0}", "person=none",
    "name=my_arm_learns", "direct.led_by=joint", "direct.patience=20",
    "direct.goal={end_effector_position_b: [0.4, 0.1, 0.0]}",
    "direct.place={input: goal/end_effector_position_b, radius: 0.1}", "task.episode_length=2",
    "learner.batch_size=16", "learner.actor.hidden=[8]", "learner.critic.hidden=[8]",
    "learner.critic.members=2", "training.updates_per_step=1", "training.replay_capacity=2000",
    "online.start_steps=20", "logging.interval_seconds=0.3", "logging.tensorboard=false",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_policy_learns_on_the_package_s_driver(site, tmp_path):
    """A person arms the robot and hands it over; place and resets need nobody."""
    channels = RobotChannels("my_arm_learns.learn")
    environ = {"PYTHONPATH": os.pathsep.join(map(str, (site, ROOT))), "OMP_NUM_THREADS": "1"}
    with (tmp_path / "output.txt").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "robot_rl.cli", "learn", *LEARNING], cwd=tmp_path,
            env=clean_environ(environ), stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            with closing(StatusSubscriber(channels.status)) as status:

                def learns() -> bool:
                    safety = status.safety
                    request = None if safety is None else TOWARDS_POLICY.get(safety)
                    if request is not None:
                        with suppress(NoRobotError):  # it has not read the one of before
                            send_request(channels.operator, request)
                    found = [*(tmp_path / "runs").glob("*/metrics.jsonl")]
                    lines = [one for path in found for one in read_metrics(path)]
                    return any(one.get("train/updates", 0) > 20 for one in lines)

                until(learns, 300)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(120)
    said = (tmp_path / "output.txt").read_text()
    assert process.returncode == 0, said
    assert "Traceback" not in said


def test_what_a_driver_does_not_measure_must_be_named(site, tmp_path):
    words = [word for word in LEARNING if not word.startswith(("direct.goal", "direct.place"))]
    done = python("-m", "robot_rl.cli", "learn", *words, "person=console", path=[site],
                  cwd=tmp_path)  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "reads goal/end_effector_position_b, which driver=my_arm_port does not" in done.stderr


@pytest.mark.ros
@pytest.mark.parametrize(
    "words",
    [
        ["driver=twin"],
        ["driver=my_arm_port", "driver_options={port:can0}", "controller=my_arm_soft",
         "goal={end_effector_position_b:[0.4,0.1,0]}"],
    ],
    ids=["twin", "own driver and law"],
)  # fmt: skip
def test_policy_is_deployed(site, run, domain, words):
    done = python("-m", "robot_rl.cli", "deploy", f"bundle={run / 'bundle'}", "seconds=2",
                  "patience=40", f"domain={domain}", *words, path=[site])  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    assert "the policy is in charge" in done.stdout + done.stderr


@pytest.mark.ros
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["driver=my_arm_prot"], "driver 'my_arm_prot' is unknown (did you mean 'my_arm_port'?)"),
        (["controller=my_arm_sof"], "(did you mean 'my_arm_soft'?)"),
        (["driver=my_arm_port"], "driver=my_arm_port needs its port"),
    ],
)
def test_mistake_about_its_driver_is_one_sentence(site, run, domain, words, told):
    done = python("-m", "robot_rl.cli", "deploy", f"bundle={run / 'bundle'}", "seconds=1",
                  "patience=40", f"domain={domain}", *words, path=[site])  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
