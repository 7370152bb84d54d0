"""`robot-rl view`: any task as a film, and what it refuses."""

import math
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from configs.catalog import choices
from configs.schema import component_of
from policies.zoo.catalog import bundle_folder
from robot_rl.cli.viewing import config_of_bundle, configure, make_player
from robot_rl.core.process import clean_environ
from tests.constant_reward import reward_of
from tests.robot_rl.cli.tiny_run import ROOT
from tests.sim.rendering.shown import ROBOTS, pictures

SHOWN = (("gates", "random"), ("reach", "zero"))
"""A flight and a robot with joints that are filmed by default."""


def test_every_task_has_a_line_in_the_table_of_robots():
    assert ROBOTS.keys() == choices("task").keys()


@pytest.mark.slow
@pytest.mark.usefixtures("gl")
@pytest.mark.parametrize(
    ("task", "agent"),
    [
        pytest.param(task, agent, marks=() if (task, agent) in SHOWN else pytest.mark.full)
        for task in ROBOTS
        for agent in ("zero", "random")
    ],
)
def test_every_task_is_filmed_with_agents_that_know_nothing(command, here, task, agent):
    answer = command(
        "view", f"task={task}", f"robot={ROBOTS[task]}", f"agent={agent}", "video=out/film.mp4",
        "seconds=0.2", "num_envs=2",
    )  # fmt: skip
    assert "out/film.mp4" in answer.out
    frames = pictures(Path("out/film.mp4"))
    assert len(frames) == 6  # 0.2 s at 30 per second
    assert frames[0].shape == (480, 854, 3)
    (sheet,) = pictures(Path("out/film.png"))
    assert sheet.shape == (2 * 200, 5 * 320, 3)
    for row in range(2):
        for column in range(5):
            cell = sheet[200 * row : 200 * row + 165, 320 * column : 320 * column + 310]
            middle = cell[30:140, 60:250].astype(int)
            assert middle.std() > 8, f"nothing to be seen in row {row}, column {column}"
    assert sorted(path.name for path in Path("out").iterdir()) == ["film.mp4", "film.png"]


@pytest.mark.slow
def test_a_learned_reward_is_heard_beside_the_tasks_own(tmp_path, command, refused, here):
    task = ["task=reach", "robot=panda", "num_envs=2"]
    spec = make_player(configure("zero", task).config, "zero", evaluation=True).env.spec
    folder = reward_of(tmp_path / "yes", spec.groups["actor"].shape[0], 2.0, 2.0)
    words = [*task, f"reward.model={folder}"]
    player = make_player(configure("zero", words).config, "zero", evaluation=True)
    probability = 1 / (1 + math.exp(-2.0))
    for said in ([probability, 0.0], [probability, 1.0]):  # 2 of the last 3 frames
        step = player.step()
        assert player.trace.judged[-1].tolist() == pytest.approx(said)
    assert float(step.reward[0]) != 1.0, "the task pays as it does"
    player.reset()
    player.step()
    assert player.trace.judged[-1].tolist() == pytest.approx([probability, 0.0])
    assert "and a video does not" in refused("view", *words, "video=film.mp4")


@pytest.mark.slow
def test_bundle_brings_its_task_and_its_robot(command, refused, finished_run, here):
    shutil.copytree(finished_run / "bundle", "bundle")
    told = command("view", "agent=bundle", "--info", "fields").out
    assert "num_envs=4" in told
    assert "task.episode_length=0.5" in told
    config = configure("bundle", ["num_envs=1"]).config
    player = make_player(config, "bundle", evaluation=True)
    player.step()
    assert player.env.spec.num_envs == 1
    told = refused("view", "agent=bundle", "task=reach", "robot=panda", "video=film.mp4")
    assert "crazyflie" in told
    assert "panda" in told


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["robot=go2"], ("velocity", "go2")),
        (["robot=go1"], ("velocity", "go1")),
        (["task=stand_up"], ("stand_up", "go2")),
    ],
)
def test_what_is_not_named_is_the_bundles(words, shown):
    bundle = Path(bundle_folder("zoo:go2-velocity"))
    config = configure(str(bundle), words).config
    assert (component_of(config.task).name, config.robot.spec.name) == shown
    if words == ["robot=go2"]:  # all of it
        assert config.robot == config_of_bundle(bundle).robot


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["agent=randm"], "did you mean 'random'"),
        (["agnt=zero"], "did you mean 'agent'"),
        (["video=film.avi"], "video must end with .mp4, got 'film.avi'"),
        (["seconds=-1"], "seconds must be 0 or more"),
        (["starts=test"], "starts must be evaluation or training"),
        (["env=gymnasium", "env.id=Pendulum-v1"], "envs of env=gymnasium cannot be shown"),
        (["task=reach", "robot=crazyflie"], "end effector is measured; choose robot=panda or"),
        (["agent=runs"], "is not a policy bundle"),
    ],
)
def test_mistake_is_one_sentence(refused, here, arguments, told):
    Path("runs").mkdir()
    assert told in refused("view", *arguments)


@pytest.mark.browser
def test_port_that_is_taken_is_one_sentence(refused, here):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert f"choose another, such as port={port + 1}" in refused("view", f"port={port}")


@pytest.mark.slow
@pytest.mark.browser
def test_interrupt_closes_the_page_in_peace(tmp_path):
    viewer = subprocess.Popen(
        [sys.executable, "-m", "robot_rl.cli", "view", "port=0", "num_envs=1"],
        env=clean_environ({"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert viewer.stdout is not None
    lines = [viewer.stdout.readline(), viewer.stdout.readline()]
    assert lines[0] == "hover, crazyflie, zero\n"
    assert "open http://127.0.0.1:" in lines[1]
    viewer.send_signal(2)
    out, err = viewer.communicate(timeout=60)
    assert (viewer.returncode, out, err) == (0, "closed\n", "")
