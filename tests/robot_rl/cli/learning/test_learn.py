"""`robot-rl learn`: starts, survives the death of each of its processes, ends in order, goes on."""

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from configs.compose import to_plain
from hardware.control.ipc import SharedMemoryWriter
from hardware.control.process import RobotChannels
from robot_rl.cli import learn
from robot_rl.cli.components import run_path
from robot_rl.cli.learning.environment import check_run
from robot_rl.cli.learning.options import SAVED, LearnOptions, Person
from robot_rl.cli.learning.supervisor import EXIT_AGAIN, PARENT, supervise
from robot_rl.cli.main import main
from robot_rl.core.errors import ConfigError, StorageError
from robot_rl.core.process import clean_environ
from robot_rl.link.records import Frame
from robot_rl.link.store import ExperienceStore
from robot_rl.link.transitions import Transition, TransitionAssembler
from robot_rl.training.config import TrainerConfig
from robot_rl.training.reporting.metrics import read_metrics
from robot_rl.training.runs.run_folder import RunFolder, RunName, RunState
from robot_rl.training.runs.run_summary import delete_run
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.storage.durable import storage_errors
from tests.compositions import composed
from tests.robot_rl.cli.tiny_run import ROOT
from tests.robot_rl.link.linked import until
from tests.wandb_file import WandbFile

TINY = (
    "task=reach", "driver=sim", "learner.batch_size=16", "learner.actor.hidden=[8]",
    "learner.critic.hidden=[8]", "learner.critic.members=2", "training.updates_per_step=1",
    "learner.actor_interval=2", "training.checkpoint_seconds=1", "training.replay_capacity=50000",
    "online.start_steps=20", "online.publish_seconds=0.3", "logging.interval_seconds=0.3",
    "logging.tensorboard=false",
)  # fmt: skip


@contextmanager
def learning(folder, *words):
    """The command in a process of its own; ended by Ctrl-C at the end, if it still runs."""
    output = (folder / "output.txt").open("ab")
    process = subprocess.Popen(
        [sys.executable, "-m", "robot_rl.cli", "learn", *words, f"runs={folder / 'runs'}"],
        stdout=output, stderr=subprocess.STDOUT, cwd=ROOT,
        env=clean_environ({"OMP_NUM_THREADS": "1"}),
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(60)
        output.close()


def only_run(folder):
    until(lambda: list((folder / "runs").glob("*/config.yaml")), 60)
    (config,) = (folder / "runs").glob("*/config.yaml")
    return config.parent


def children(process):
    """Processes that a supervisor has started: role -> id."""
    found = {}
    for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        with contextlib.suppress(OSError):  # it has just died
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            role = [word.partition("=")[2] for word in words if word.startswith("role=")]
            found |= dict.fromkeys(role, int(pid))
    return found


def is_alive(pid):
    return Path(f"/proc/{pid}").exists() and ") Z " not in Path(f"/proc/{pid}/stat").read_text()


def stored(run):
    """Frames that a run has, checked: each session without gaps, each frame once."""
    store, sessions, steps = ExperienceStore(run / "experience"), {}, 0
    assembler = TransitionAssembler()
    for _, entry in store.read(0):
        if isinstance(entry, Frame):
            sessions.setdefault(entry.session, []).append(entry)
        steps += sum(isinstance(event, Transition) for event in assembler.take(entry))
    position = store.position
    store.close()
    for frames in sessions.values():
        assert [one.seq for one in frames] == list(range(len(frames)))
        versions = [one.policy_version for one in frames if one.action is not None]
        assert versions == sorted(versions)
    return sessions, steps, position


def records(run):
    return read_metrics(run / "metrics.jsonl")


@pytest.mark.slow
def test_learning_survives_the_death_of_each_process_and_goes_on_where_it_was(tmp_path):
    # A name of its own: another test may have a robot that learns at the same time.
    with learning(tmp_path, *TINY, "logging.wandb=offline", "name=dies") as process:
        run = only_run(tmp_path)
        until(lambda: any(one.get("train/updates", 0) > 10 for one in records(run)), 90)
        for role in ("learner", "actor"):
            pid = children(process)[role]
            os.kill(pid, signal.SIGKILL)
            until(lambda role=role, pid=pid: children(process).get(role, pid) != pid, 30)
        before = len(records(run))
        until(lambda: len(records(run)) > before + 3, 90)
        pids = children(process)
        process.kill()  # the others notice
        process.wait()
        until(lambda: not any(is_alive(pid) for pid in pids.values()), 60)
    sessions, steps, _ = stored(run)
    assert len(sessions) == 2  # the killed robot's, and the one that took its place
    state = CheckpointStore(run / "checkpoints", read_only=True).load().state
    assert 20 < state["updates"] <= state["steps"] <= steps
    before_steps = steps

    with learning(tmp_path, f"run={run}", f"training.total_steps={steps + 100}") as process:
        assert process.wait(90) == 0  # the planned length ends both sides
    sessions, steps, position = stored(run)
    assert len(sessions) == 3
    state = CheckpointStore(run / "checkpoints", read_only=True).load().state
    assert state["position"] <= position
    assert before_steps + 100 <= state["steps"] <= steps
    assert RunFolder.open(run).status().state is RunState.FINISHED
    assert (run / "plots" / "learning_curve.png").is_file()
    assert [one["step"] for one in records(run)] == sorted({one["step"] for one in records(run)})
    said = (tmp_path / "output.txt").read_text()
    assert "the learner died (SIGKILL); it starts again" in said
    assert "the actor died (SIGKILL); it starts again" in said
    assert f"robot-rl learn run={run} training.total_steps=<more>" in said
    assert "Traceback" not in said
    mirrored = WandbFile(max(run.glob("wandb/offline-run-*/*.wandb"), key=os.path.getmtime))
    assert mirrored.is_whole
    assert list(mirrored.run.tags) == ["reach", "panda", "rlpd"]
    assert {artifact.type for artifact in mirrored.artifacts} >= {"model"}
    assert any("learning_curve" in media for media in mirrored.media)


@pytest.mark.slow
def test_learner_and_robot_start_alone_and_settings_that_do_not_fit_are_refused(tmp_path):
    address = "127.0.0.1:50163"
    places = {name: tmp_path / name for name in ("learner", "robot", "other", "scaled")}
    for place in places.values():
        place.mkdir()
    with (
        learning(places["learner"], *TINY, "role=learner", f"address={address}") as learner,
        learning(places["robot"], *TINY, "role=robot", f"address={address}", "name=alone") as robot,
        learning(
            places["other"], *TINY, "role=robot", f"address={address}", "name=other", "robot=ur5e"
        ),
        learning(
            places["scaled"], *TINY, "role=robot", f"address={address}", "name=scaled",
            "robot.action_scale=0.1",
        ),
    ):  # fmt: skip
        run = only_run(places["learner"])
        until(lambda: any(one.get("train/updates", 0) > 10 for one in records(run)), 90)
        output = places["other"] / "output.txt"
        until(lambda: "and this learner has" in output.read_text(), 60)
        scaled = places["scaled"] / "output.txt"
        until(lambda: "has meaning.action.low[0] " in scaled.read_text(), 60)
    assert (learner.returncode, robot.returncode) == (0, 0)  # after Ctrl-C
    sessions, steps, position = stored(run)
    assert len(sessions) == 1
    state = CheckpointStore(run / "checkpoints", read_only=True).load().state
    assert (state["position"], state["steps"]) == (position, steps)  # the learner ended last
    assert "start both with the same task" in output.read_text()
    assert RunFolder.open(run).status().reason == "stopped by a person"
    kept = json.loads((run / SAVED).read_text())
    assert "driver=sim" in kept, "what its actions mean, for whoever exports or goes on"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["role=learner", "address=0.0.0.0:50151"], "missing: a token, a certificate, a key"),
        (["role=robot", "address=10.0.0.5:50151"], "needs TLS and a token there"),
        (["address=0.0.0.0:50151"], "missing: a token, a certificate, a key"),
        (["certificate=absent", "key=absent"], "cannot read absent: No such file"),
        (["role=learner", "certificate=absent", "key=absent"], "cannot read absent: No such file"),
        (["address=127.0.0.1:99999"], "expected host:port with a port from 0 to 65535"),
        (["role=learner", "address=127.0.0.1"], "expected host:port with a port from 0 to 65535"),
        (["task=hover", "driver=twin"], "'crazyflie' flies"),
        (["task=hover", "driver=twin", "device=cpu"], "'crazyflie' flies"),
        (["task=peg", "learner=bc"], "learns from demonstrations alone"),
        (["task=peg", "training.offline.held_out=0.2"], "held_out=0.2 is for robot-rl tr"),
        (["task=peg", "training.random_steps=50"], "or set that"),
        (["task=peg", "learner=wsrl", "training.warm_up_steps=50"], "after online.start_steps: l"),
        (["task=peg", "training.start.acts=true"], "start.acts=true is for robot-rl tr"),
        (["task=velocity", "driver=twin"], "displace the end effector of 'go2', which has none"),
        (
            ["task=reach", "person=simulated"],
            "'reach' is unknown; known: peg; with person=console",
        ),
        (["task=lift"], "the task moves the gripper of 'panda', and none of these actions does"),
        (["task=peg", "learner=hil_serl"], "set learner.gripper.commands=[], or add that action"),
        (["task=peg", "driver=ros2", "person=none"], "who says that an episode succeeded?"),
        (["task=peg", "driver=ros2", "ros2.command=go"], "form of commands 'go' is unknown"),
        (["task=peg", "driver=ros2", "camera.wrist.tpic=/x"], "did you mean 'topic'"),
        (
            ["task=peg", "driver=ros2", "twin.reach=0.1"],
            "option of driver=twin, but driver=ros2",
        ),
        (["task=peg", "driver=sim", "direct.robot_file=x"], "option of a plug-in's driver, but"),
        (["task=peg", "camera.wrist.topic=/x"], "'camera.wrist' is an option of real robots, but"),
        (["task=reach", "num_envs=2"], "a robot is one: num_envs=1"),
        (["experiment=peg_with_person", "num_envs=2"], "a robot is one: num_envs=1"),
        (["token_file=absent"], "token_file=absent: No such file"),
        (["task=peg", "stick=joystick:/dev/x"], "'joystick:/dev/x' is no device; expected one"),
        (["task=peg", "stick=gamepad:absent"], "absent cannot be opened: No such file"),
        (["task=peg", "stick=gamepad:x", "person=none"], "person=none have none; leave it out"),
        (["task=peg", "training.symmetry=augment"], "training.symmetry=augment is for robot-rl tr"),
        (["task=peg", "training.snapshots.data=x"], "training.snapshots.data=x is for robot-rl tr"),
        (["task=peg", "cluster.collectors=2"], "cluster.collectors=2 is for robot-rl train; a l"),
        (["task=peg", "training.offline.held_out=0.1"], "held_out=0.1 is for robot-rl train"),
        (["task=peg", "training.snapshots.steps=9"], "without training.snapshots.data"),
        (["task=peg", "training.prior.run=absent"], "there is no 'absent'"),
        (["task=peg", "port=-1"], "port must lie in 0 to 65535, got -1"),
        (["task=peg", "host=192.0.2.1"], "cannot listen on 192.0.2.1:8765: Cannot assign"),
        (["role=pilot"], "pilot"),
        (["run=runs/none"], "is not a run"),
    ],
)
def test_what_cannot_be_is_one_sentence(words, reason, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["learn", *words])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words", [["learner=rlpd"], ["learner=expo"], ["learner=silri", "learner.gripper.commands=[]"]]
)
def test_a_preset_for_training_in_envs_is_no_wish_of_a_person(words):
    config, usual = composed(["task=peg", *words]).config, TrainerConfig()
    asked = [config.training.random_steps, config.training.warm_up_steps]
    assert asked != [usual.random_steps, usual.warm_up_steps]
    check_run(config, LearnOptions(person=Person.none), words)


TWIN = (
    "task=peg", "task.kind=sparse", "task.episode_length=3", "person=simulated",
    "twin.success_reward=1", "twin.patience=5", "learner=hil_serl", "learner.gripper.commands=[]",
    *(word for word in TINY if word.partition("=")[0] not in ("task", "driver", "pace")),
)  # fmt: skip


@pytest.mark.slow
def test_a_twin_with_a_person_goes_on_after_the_death_of_each_process(tmp_path):
    with learning(tmp_path, *TWIN) as process:
        run = only_run(tmp_path)
        until(lambda: any(one.get("train/updates", 0) > 10 for one in records(run)), 120)
        for role in ("loop", "person", "learner", "actor"):
            pid = children(process)[role]
            os.kill(pid, signal.SIGKILL)
            until(lambda role=role, pid=pid: children(process).get(role, pid) != pid, 30)
            before = len(records(run))
            until(lambda before=before: len(records(run)) > before + 3, 120)
        pids = children(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert not any(is_alive(pid) for pid in pids.values())
    sessions, _, _ = stored(run)
    assert len(sessions) == 2  # of the actor that was killed, and of the one after it
    frames = [one for frames in sessions.values() for one in frames if one.action is not None]
    assert any(one.intervened for one in frames)
    assert any(one.valid and not one.intervened for one in frames)
    said = (tmp_path / "output.txt").read_text()
    assert "Traceback" not in said
    assert RunFolder.open(run).status().reason == "stopped by a person"


@pytest.mark.slow
def test_a_console_whose_supervisor_is_killed_lets_its_port_go(tmp_path):
    words = [word for word in TWIN if not word.startswith("person=")]
    with learning(tmp_path, *words, "port=0", "name=orphans") as process:
        said = tmp_path / "output.txt"
        until(lambda: "console  http" in said.read_text(), 90)
        port = int(said.read_text().partition("console  http://127.0.0.1:")[2].partition("/")[0])
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        pids = children(process)
        process.kill()
        process.wait()
        until(lambda: not any(is_alive(pid) for pid in pids.values()), 60)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_run_that_goes_on_with_another_driver_leaves_options_of_the_first(tmp_path):
    begun = ["task=peg", "driver=twin", "twin.reach=0.1", "person=none"]
    (tmp_path / "learn.json").write_text(json.dumps(begun))
    run = f"run={tmp_path}"
    assert learn._with_saved([run]) == [*begun, run]
    moved = learn._with_saved([run, "driver=ros2", "ros2.source=/arm"])
    assert moved == [
        "task=peg",
        "driver=twin",
        "person=none",
        run,
        "driver=ros2",
        "ros2.source=/arm",
    ]
    wrong = learn._with_saved([run, "driver=ros2", "twin.reach=0.2"])
    assert wrong[-1] == "twin.reach=0.2", "what this call names is refused, not left out"


def test_a_stick_reaches_the_processes_of_a_call_and_is_not_kept(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "event0")
    started: dict[str, list[str]] = {}
    monkeypatch.setattr(
        "robot_rl.cli.learning.supervisor.supervise", lambda one: started.update(one)
    )
    stick = f"stick=gamepad:{tmp_path / 'event0'}"
    end = os.open(tmp_path / "event0", os.O_RDWR)  # the kernel's
    main(["learn", "task=peg", "twin.reach=0.15", stick, f"runs={tmp_path / 'runs'}"])
    os.close(end)
    assert stick in started["console"]
    (saved,) = (tmp_path / "runs").glob("*/learn.json")
    assert json.loads(saved.read_text()) == ["twin.reach=0.15"]


def test_of_two_commands_with_one_name_of_a_robot_the_second_is_refused(tmp_path, capsys):
    """Its processes met those of the first, and both went on with half of a robot."""
    channel = RobotChannels("shared.learn").launcher
    with contextlib.closing(SharedMemoryWriter(channel, 1)) as first:
        first.write([321], 0.0)
        words = ["task=peg", "person=none", "name=shared", f"runs={tmp_path / 'runs'}"]
        with pytest.raises(SystemExit):
            main(["learn", *words])
    assert capsys.readouterr().err.startswith(
        "error: another robot-rl learn (process 321) has the robot 'shared' on this computer; end "
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("supervised", "code"), [(True, EXIT_AGAIN), (False, 2)])
def test_a_full_disk_ends_the_learner_and_not_the_robot_beside_it(
    tmp_path, monkeypatch, capsys, supervised, code
):
    """It ended both sides."""

    def run_learner(folder, config, options, over):
        with storage_errors("save the checkpoint", folder.path):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("robot_rl.cli.learning.learner.run_learner", run_learner)
    monkeypatch.delenv(PARENT, raising=False)
    if supervised:
        monkeypatch.setenv(PARENT, str(os.getppid()))
    with pytest.raises(SystemExit) as ended:
        main(["learn", "task=reach", "driver=sim", "role=learner", f"runs={tmp_path / 'runs'}"])
    assert ended.value.code == code
    said = capsys.readouterr().err
    assert "no space is left on the disk; free some and try again" in said
    assert ("its steps wait in its spool" in said) == supervised


def test_what_may_succeed_later_starts_again(monkeypatch, capsys):
    started = []

    class Process:
        def __init__(self, command, **options):
            started.append(command)

        def poll(self):
            return (EXIT_AGAIN, 0)[len(started) - 1]

    monkeypatch.setattr("robot_rl.cli.learning.supervisor.subprocess.Popen", Process)
    assert supervise({"learner": ["learn", "role=learner"]}) == 0
    assert len(started) == 2
    assert "the learner died (exit code 75); it starts again in 0.5 s" in capsys.readouterr().out


def test_a_run_cannot_be_deleted_while_its_robot_lives(tmp_path, monkeypatch):
    """`runs clean` took the run of a live robot whose learner is elsewhere, or not begun yet."""
    states = []

    def supervise(commands):
        run = RunFolder.open(only_run(tmp_path))
        states.append(run.status().state)
        with pytest.raises(StorageError, match="is used by robot-rl learn"):
            delete_run(run.path)

    monkeypatch.setattr("robot_rl.cli.learning.supervisor.supervise", supervise)
    main(["learn", "task=reach", "driver=sim", "role=robot", f"runs={tmp_path / 'runs'}"])
    assert states == [RunState.RUNNING]
    assert RunFolder.open(only_run(tmp_path)).status().state is RunState.INTERRUPTED


def made_run(folder, name, **origin):
    """Folder of a run that nobody writes; `asked_sha256` is what `robot-rl train` notes."""
    config = composed(["task=reach", "learner=rlpd", "num_envs=1", "device=cpu"]).config
    said = RunName(task="reach", robot="panda", learner=name, seed=0)
    with RunFolder.create(folder, said, to_plain(config), origin) as run:
        return run.path


def test_a_run_of_training_is_refused_and_stays_as_it_was(tmp_path, monkeypatch, capsys):
    """Files of learn came into a finished run, whose processes died over and over again."""
    monkeypatch.chdir(tmp_path)
    run = made_run("runs", "trained", asked_sha256="ab")
    before = sorted(run.rglob("*"))
    for role in ("all", "robot", "learner", "actor"):
        with pytest.raises(SystemExit) as ended:
            main(["learn", f"run={run}", "driver=sim", f"role={role}"])
        assert ended.value.code == 2
        told = capsys.readouterr().err
        assert f"{run} is no run of robot-rl learn" in told
        assert told.count("\n") == 1
    assert sorted(run.rglob("*")) == before


def test_latest_is_the_newest_run_of_a_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"there is no run of robot-rl learn in runs"):
        run_path("latest", of_learn=True)
    runs = [made_run("runs", "learned"), made_run("runs", "trained", asked_sha256="ab")]
    for run in runs:  # an earlier version put it into runs of training too
        (run / SAVED).write_text("[]")
    assert run_path("latest", of_learn=True) == runs[0]
    newest = made_run("runs", "zz_learned")
    (newest / SAVED).write_text("[]")
    assert run_path("latest", of_learn=False) == runs[1]
    assert run_path("latest") == newest


def test_the_newest_run_of_another_folder_goes_on(tmp_path, monkeypatch):
    """`runs=` was read by a new run alone: the newest one of ./runs would have gone on."""
    monkeypatch.chdir(tmp_path)
    run = made_run("elsewhere", "learned")
    (run / SAVED).write_text('["driver=sim"]')
    words = learn._with_saved(["run=latest", "runs=elsewhere", "pace=false"])
    assert words == ["driver=sim", "pace=false", f"run={run}"]


def test_a_run_that_has_come_to_its_end_says_how_it_goes_on(tmp_path, monkeypatch, capsys):
    """All its processes started, and ended at once without a word."""
    run = made_run(tmp_path, "learned")
    (run / SAVED).write_text('["driver=sim"]')
    total = RunFolder.open(run).config()["training"]["total_steps"]
    with RunFolder.open(run, write=True) as folder:
        folder.mark(RunState.FINISHED, step=total, total_steps=total)
    started = []
    monkeypatch.setattr("robot_rl.cli.learning.supervisor.supervise", started.append)
    for role in ("all", "learner"):
        main(["learn", f"run={run}", f"role={role}"])
        said = capsys.readouterr().out
        assert "nothing to do; learn longer with training.total_steps=..." in said
    assert not started
    main(["learn", f"run={run}", f"training.total_steps={total + 1}"])
    assert len(started) == 1


def test_the_robots_side_says_with_which_words_it_goes_on(tmp_path, monkeypatch, capsys):
    """The printed words began a learner too, or were refused."""
    monkeypatch.setattr("robot_rl.cli.learning.supervisor.supervise", lambda one: 0)
    words = ["role=robot", "address=127.0.0.1:50177"]
    main(["learn", "task=reach", "driver=sim", *words, f"runs={tmp_path}"])
    said = capsys.readouterr().out
    assert "robot-rl learn role=robot address=127.0.0.1:50177 run=" in said
    again = said.split("robot-rl ")[-1].split()
    main(again)
    assert len(list(tmp_path.iterdir())) == 1, "the spool of the run is the same"


def test_a_run_that_learned_on_a_robot_is_not_resumed_by_training(tmp_path, capsys):
    """PyTorch said that a state has no such key."""
    run = made_run(tmp_path, "learned")
    (run / SAVED).write_text("[]")
    with pytest.raises(SystemExit) as ended:
        main(["train", f"resume={run}"])
    assert ended.value.code == 2
    assert f"go on with: robot-rl learn run={run}" in capsys.readouterr().err


def test_a_policy_that_displaces_an_end_effector_is_not_evaluated_in_other_envs(tmp_path, capsys):
    """The sentence asked for another checkpoint, and then spoke of another shape."""
    run = made_run(tmp_path, "learned")
    for said, reason in (
        (["driver=sim"], "there is no checkpoint in"),  # its actions are those of the task
        ([], "whose policy displaces an end effector"),
    ):
        (run / SAVED).write_text(json.dumps(said))
        with pytest.raises(SystemExit) as ended:
            main(["evaluate", f"run={run}", "checkpoint=latest", "episodes=1"])
        assert ended.value.code == 2
        assert reason in capsys.readouterr().err
