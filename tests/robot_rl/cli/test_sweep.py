"""`robot-rl train -m`: every job has a run of its own, and the same command again goes on."""

import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from configs.compose import compose
from robot_rl.cli import sweep as launching
from robot_rl.cli.resume import held
from robot_rl.cli.sweep_worker import Worker
from robot_rl.core.errors import ConfigError
from robot_rl.training.runs.run_folder import RunFolder, RunState, find_runs
from tests.robot_rl.cli.tiny_run import ROOT, TINY, interrupt

pytestmark = pytest.mark.slow

QUICK = (*TINY, "video=false")


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["-m", "hydra/launcher=joblip"], "hydra/launcher 'joblip' is unknown (did you mean"),
        (["-m", "hydra/launcher=joblib", "hydra.launcher.n_job=2"], "Could not override"),
        (["-m", "hydra.launcher.n_jobs=2"], "needs a launcher, and none was chosen"),
        (["-m", "hydra/sweeper=optuna"], "a part of Hydra that is not used here"),
        (["hydra/launcher=joblib"], "add -m"),
        (["-m", "seed=1,1"], "asks for the same run twice: seed=1"),
        (["-m", "resume=latest"], "-m starts new runs"),
        (["-m", *TINY, "learner.gamma=0.9,2"], "learner.gamma"),
    ],
)
def test_a_wrong_sweep_is_a_sentence_and_trains_nothing(refused, here, overrides, told):
    assert told in refused("train", *overrides)
    assert not find_runs("runs")
    assert not Path("runs/sweeps").exists()


def test_what_a_job_is_does_not_depend_on_the_others():
    words = ["task=hover", "seed=0,1", "logging.wandb=offline"]
    alone = {job.asked for job in launching.plan([*words, "learner=sac"])}
    among = {job.asked: job for job in launching.plan([*words, "learner=sac,td3"])}
    assert alone < set(among), "a sweep that is extended does not train again"
    groups = {job.config.logging.wandb_group for job in among.values()}
    assert len(groups) == 2


def test_a_launcher_that_is_not_installed_names_the_extra(refused, here, monkeypatch):
    monkeypatch.setitem(launching._PACKAGES, "elsewhere", "hydra-elsewhere-launcher")
    told = refused("train", "-m", "seed=0,1", "hydra/launcher=elsewhere")
    assert "hydra/launcher=elsewhere needs the package 'hydra-elsewhere-launcher'" in told
    assert "robot_rl[sweep]" in told


def test_the_same_command_again_goes_on_with_what_is_unfinished(train_only, here, at_collect):
    at_collect(1000, interrupt)
    command = ("-m", *QUICK, "seed=0,1")
    answer = train_only(*command, exits=130)
    assert "0 of 2 runs finished" in answer.out
    (first,) = find_runs("runs")
    answer = train_only(*command)
    assert f"goes on with: {first}" in answer.out
    assert "2 of 2 runs finished" in answer.out
    both = find_runs("runs")
    assert len(both) == 2
    assert {RunFolder.open(path).status().state for path in both} == {RunState.FINISHED}
    origins = [RunFolder.open(path).provenance() for path in both]
    assert len({origin["config_sha256"] for origin in origins}) == 2
    answer = train_only(*command)
    assert answer.out.count("finished already: ") == 2
    assert find_runs("runs") == both


def test_a_run_is_trained_once_if_asked(train_only, here):
    """Two commands at once looked for its folder before either had made one."""
    with held(compose(QUICK).config) as ours:
        assert ours
        assert "another process has begun" in train_only(*QUICK, "once=true").out
    assert os.listdir("runs") == [], "nothing is left of the hold"
    train_only(*QUICK, "once=true")
    assert "finished already" in train_only(*QUICK, "once=true").out
    (run,) = find_runs("runs")
    with RunFolder.open(run, write=True) as writing:
        writing.mark(RunState.RUNNING)
        assert f"process {os.getpid()} on " in train_only(*QUICK, "once=true").out
    assert len(os.listdir("runs")) == 1


def test_joblib_trains_several_at_once_and_one_fails_alone(command, here):
    answer = command(
        "train", "-m", *QUICK, "training.replay_capacity=1,800",
        "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", exits=1,
    )  # fmt: skip
    import_module("joblib.externals.loky").get_reusable_executor().shutdown(wait=True)
    (run,) = find_runs("runs")
    assert RunFolder.open(run).status().state is RunState.FINISHED
    assert "1 of 2 runs finished" in answer.out
    rows = [line.split() for line in answer.out.splitlines() if line.startswith(("1  ", "2  "))]
    assert [row[:3] for row in rows] == [
        ["1", "training.replay_capacity=1", "failed"],
        ["2", "training.replay_capacity=800", "finished"],
    ]
    assert rows[1][-1] == str(run)
    assert "failed: training.replay_capacity=1: " in answer.err
    assert "capacity 1 holds 0 steps" in answer.err
    (log,) = Path("runs").glob("sweeps/*/job_2.txt")
    assert "finished 1.60k steps" in log.read_text()
    assert run.name in command("runs", "list").out


def test_ctrl_c_lets_jobs_save_before_their_workers_are_killed(here):
    """joblib kills its workers, and what runs below them, as soon as it is interrupted."""
    job = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(print('saved'))); "
    job += "print('ready', flush=True); time.sleep(60)"
    lines = (
        "import signal, sys",
        "from pathlib import Path",
        "from robot_rl.cli.sweep import launch",
        "from robot_rl.cli.sweep_worker import Worker",
        "signal.signal(signal.SIGINT, signal.default_int_handler)",
        f"command = [{sys.executable!r}, '-S', '-c', {job!r}]",
        "worker = Worker(commands=[command], labels=['one'], logs=['log.txt'], folder='.')",
        "wishes = ['hydra/launcher=joblib', 'hydra.launcher.n_jobs=2']",
        "launch(worker, wishes, Path('jobs'))",
    )
    main = subprocess.Popen(
        [sys.executable, "-c", "\n".join(lines)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    while not (here / "log.txt").is_file() or "ready" not in (here / "log.txt").read_text():
        assert main.poll() is None
        time.sleep(0.1)
    os.killpg(main.pid, signal.SIGINT)  # as a terminal does
    assert main.wait(timeout=60) != 0
    assert (here / "log.txt").read_text() == "ready\nsaved\n"


def test_submitit_places_jobs_and_one_fails_alone(here):
    worker = Worker(
        commands=[
            [sys.executable, "-S", "-c", f"print('job', {n}); raise SystemExit({n})"]
            for n in (0, 3)
        ],
        labels=["[1/2]", "[2/2]"],
        logs=[str(here / "0.txt"), str(here / "1.txt")],
        folder=str(here),
    )
    wishes = ["hydra/launcher=submitit_local", "hydra.launcher.timeout_min=5"]
    assert launching.launch(worker, wishes, here / "jobs") == ""
    assert [(here / name).read_text() for name in ("0.txt", "1.txt")] == ["job 0\n", "job 3\n"]
    said = "".join(path.read_text() for path in Path("jobs").rglob("*_log.out"))
    assert "[1/2]: ended" in said
    assert "[2/2]: failed with exit code 3" in said


def wait_for(log: Path, word: str, process: "subprocess.Popen[bytes]") -> str:
    """What a log says as soon as it has a word."""
    while not log.is_file() or word not in (text := log.read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    return text


def worker_process(job: str, listener: str) -> "subprocess.Popen[bytes]":
    """A worker in a process of its own, whose queue's plugin has a listener."""
    lines = (
        "import signal, sys",
        "from pathlib import Path",
        "from types import SimpleNamespace as Config",
        f"def listen(number, frame): {listener}",
        "signal.signal(signal.SIGUSR2, listen)",
        "from robot_rl.cli.sweep_worker import Worker",
        f"command = [{sys.executable!r}, '-S', '-c', {job!r}]",
        "worker = Worker(commands=[command], labels=['one'], logs=['log.txt'], folder='.')",
        "code = worker(Config(job=0))",
        "assert signal.getsignal(signal.SIGUSR2) is listen, 'put back'",
        "sys.exit(code)",
    )
    return subprocess.Popen(
        [sys.executable, "-S", "-c", "\n".join(lines)], env={"PYTHONPATH": str(ROOT)}
    )


SAVING = """
import os, signal, sys, time
from pathlib import Path
def save(*_):
    print('saving', flush=True)
    while not Path('enough').exists():
        time.sleep(0.02)
    print('saved', flush=True)
    sys.exit(5)
signal.signal(signal.SIGTERM, save)
print(os.getpid(), 'ready', flush=True)
while True:
    time.sleep(1)
"""
"""A job that takes as long to save as the test wants."""


def test_a_queue_that_warns_all_processes_of_a_job_takes_it_back_only_when_it_has_saved(here):
    """Slurm sends the warning to the training too, whose default is to die of it."""
    taken = "Path('back.txt').write_text(Path('log.txt').read_text()); sys.exit(number)"
    worker = worker_process(SAVING, taken)
    training = int(wait_for(here / "log.txt", "ready", worker).split()[0])
    worker.send_signal(signal.SIGINT)  # left to whoever launched it
    os.kill(training, signal.SIGUSR2)
    worker.send_signal(signal.SIGUSR2)
    wait_for(here / "log.txt", "saving", worker)
    worker.send_signal(signal.SIGUSR2)  # impatient: said before
    (here / "enough").touch()
    assert worker.wait(timeout=60) == signal.SIGUSR2
    assert (here / "back.txt").read_text() == f"{training} ready\nsaving\nsaved\n"


def test_a_job_that_its_queue_does_not_take_back_ends_with_its_own_code(here):
    worker = worker_process(SAVING, "Path('heard.txt').write_text(str(int(number)))")
    wait_for(here / "log.txt", "ready", worker)
    worker.send_signal(signal.SIGUSR2)
    (here / "enough").touch()
    assert worker.wait(timeout=60) == 5
    assert (here / "heard.txt").read_text() == str(int(signal.SIGUSR2))


def test_a_job_that_its_queue_took_back_goes_on_with_the_run_that_it_has_begun(here):
    """With once=false it trained from the beginning after every time limit."""
    lines = (
        "import sys",
        "from types import SimpleNamespace as Config",
        "from robot_rl.cli.sweep_worker import Worker",
        "job = [sys.executable, '-S', '-c', 'import sys; print(sys.argv[1:])', 'once=false']",
        "Worker(commands=[job], labels=['one'], logs=['log.txt'], folder='.')(Config(job=0))",
    )
    for _ in range(2):
        command = [sys.executable, "-S", "-c", "\n".join(lines)]
        subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, check=True, timeout=60)
    assert (here / "log.txt").read_text() == "['once=false']\n['once=true']\n"


def test_a_time_limit_that_leaves_no_time_before_the_warning_is_refused(here):
    worker = Worker(commands=[["false"]], labels=["one"], logs=["log.txt"], folder=str(here))
    slurm = "hydra/launcher=submitit_slurm"
    with pytest.raises(ConfigError, match="expected at least 4 minutes"):
        launching.launch(worker, [slurm, "hydra.launcher.timeout_min=2"], here / "jobs")


def test_slurm_queues_jobs_again_when_their_time_is_up(here, monkeypatch):
    """What Hydra's launcher is made of; it is not asked to launch."""
    found = []

    def instantiate(self, *, config, **_):
        found.append(config.hydra.launcher.max_num_timeout)
        return SimpleNamespace(launch=lambda *_: None)

    monkeypatch.setattr(launching.Plugins, "instantiate_launcher", instantiate)
    worker = Worker(commands=[["false"]], labels=["one"], logs=["log.txt"], folder=str(here))
    for wishes in ([], ["hydra.launcher.max_num_timeout=2"]):
        slurm = ["hydra/launcher=submitit_slurm", *wishes]
        assert launching.launch(worker, slurm, here / "jobs") == ""
    assert found == [1000, 2]
