"""`robot-rl zoo`, and zoo:<name> wherever a bundle is named."""

import contextlib
import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from configs.compose import robot_description
from policies.bundle import bundle_digest
from policies.zoo.catalog import PREFIX, ROOT, read_card, zoo_names
from robot_rl.cli import bundling
from robot_rl.cli import main as command_line
from robot_rl.cli.deployment.options import DeployOptions
from robot_rl.cli.deployment.plan import Deployment
from robot_rl.cli.viewing import config_of_bundle
from robot_rl.core.errors import BundleError
from sim.physics.mujoco_engine import MujocoEngine
from sim.robots.joint_robot import PhysicsEngine
from sim.robots.joint_simulation import MujocoSimulation

REPOSITORY = Path(__file__).resolve().parents[3]


def test_list_has_a_line_for_every_policy_and_show_its_card(command):
    lines = command("zoo", "list").out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == zoo_names()
    for name in zoo_names():
        told, card = command("zoo", "show", name).out, read_card(name)
        for part in (card.title, card.training, card.evaluation, f"of {card.episodes:,} episodes"):
            assert part in told


def test_fetch_copies_a_bundle_that_is_the_same_and_never_overwrites(command, refused, here):
    name = zoo_names()[0]
    assert command("zoo", "fetch", f"zoo:{name}").out == f"bundle  {name}\n"
    assert bundle_digest(name) == bundle_digest(ROOT / name)
    command("zoo", "fetch", name, "to=mine/policy")
    assert bundle_digest("mine/policy") == bundle_digest(ROOT / name)
    assert f"{name} exists; name another folder" in refused("zoo", "fetch", name)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["zoo", "shw"], "expected list or show or fetch, got 'shw'"),
        (["zoo", "show"], "which one? robot-rl zoo show <name>"),
        (["zoo", "show", "go1-velocity", "go2-velocity"], "got 'go1-velocity', 'go2-velocity'"),
        (["zoo", "fetch", "go2-velocity", "mine"], "its folder is to=<folder>"),
        (["view", "go2-velocity"], "a policy that ships is zoo:go2-velocity"),
        (["zoo", "show", "go2"], "policy of the zoo 'go2' is unknown"),
        (["zoo", "list", "to=x"], "to=x is an option of robot-rl zoo fetch, not of list"),
        (["zoo", "fetch", "go2-velocity", "too=x"], "did you mean 'to'"),
        (["view", "zoo:hover"], "policy of the zoo 'hover' is unknown"),
        (["evaluate", "bundle=zoo:hover"], "policy of the zoo 'hover' is unknown"),
    ],
)
def test_mistake_is_one_sentence(refused, here, words, told):
    assert told in refused(*words)


def test_a_policy_that_ships_is_evaluated_by_its_name_alone(command, here):
    told = command("evaluate", "zoo:crazyflie-hover", "episodes=4", "video=false").out
    assert "of 4 episodes" in told
    assert "torch differ" not in told
    assert Path("runs/evaluations/crazyflie-hover").is_dir()


@pytest.mark.parametrize("command_name", ["view", "evaluate"])
def test_a_policy_of_a_robot_that_has_changed_since_is_refused(
    refused, here, monkeypatch, command_name
):
    def described(name):
        spec = robot_description(name)
        assert spec is not None
        return replace(spec, version=spec.version + 1)

    monkeypatch.setattr("robot_rl.cli.viewing.robot_description", described)
    told = refused(command_name, "zoo:panda-reach")
    assert "made for robot 'panda' with version 1, but the robot at hand has version 2" in told


def test_word_of_the_command_line_becomes_the_folder():
    assert command_line._ZOO == PREFIX
    folder = ROOT / "panda-reach"
    for word, command, expected in (
        ("zoo:panda-reach", "view", f"agent={folder}"),
        ("zoo:panda-reach", "deploy", f"bundle={folder}"),
        ("agent=zoo:panda-reach", "view", f"agent={folder}"),
        ("bundle=zoo:panda-reach", "doctor", f"bundle={folder}"),
        ("seed=3", "view", "seed=3"),
    ):
        assert command_line._with_folder(word, command) == expected


def test_demo_of_the_makefile_is_a_command_that_is_taken(command, here):
    text = (REPOSITORY / "Makefile").read_text()
    (options,) = re.findall(r"^DEMO := (.*)$", text, re.MULTILINE)
    told = command("view", "zoo:go2-velocity", *shlex.split(options), "--info", "fields").out
    assert "task.episode_length=600" in told


def test_a_policy_of_a_gpu_is_played_on_any_machine_unless_its_engine_is_asked_for():
    folder = ROOT / "go2-velocity"
    trained = json.loads((folder / "provenance.json").read_text())["config"]
    assert (trained["device"], trained["robot"]["engine"]) == ("cuda", "warp")
    played = config_of_bundle(folder)
    assert (played.device, played.robot.engine) == ("auto", PhysicsEngine.batch)
    asked = config_of_bundle(folder, ["robot.engine=warp", "device=cpu"])
    assert (asked.device, asked.robot.engine) == ("cpu", PhysicsEngine.warp)


def test_a_policy_of_warp_is_tried_in_mujoco_itself_when_it_is_exported():
    config = config_of_bundle(ROOT / "go2-velocity", ["robot.engine=warp"])
    with contextlib.closing(bundling._trial_env(config, evaluation=True)) as env:
        assert isinstance(env.simulation, MujocoSimulation)
        assert isinstance(env.simulation.engine, MujocoEngine)


@pytest.mark.parametrize("reads", ["evaluate", "deploy"])
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "lacks a readable provenance.json (No such file"),
        (b"", "is damaged: provenance.json is not what was exported"),
        (b'{"config": {}}', "is damaged: provenance.json is not what was exported"),
    ],
)
def test_a_damaged_origin_is_called_so(tmp_path, reads, content, told):
    """The sentence said that it does not tell a task, and asked for another export or task."""
    run = tmp_path / "run"
    folder = Path(shutil.copytree(ROOT / "crazyflie-landing", run / "bundle"))
    (folder / "provenance.json").unlink()
    if content is not None:
        (folder / "provenance.json").write_bytes(content)

    def read(bundle: Path) -> None:
        if reads == "evaluate":
            config_of_bundle(bundle)
        else:
            _ = Deployment(DeployOptions(bundle=str(bundle))).config

    with pytest.raises(BundleError, match=re.escape(told)):
        read(folder)
    # The folder of the run, by a slip.
    with pytest.raises(BundleError, match=rf"has no spec\.json; give {folder}$"):
        read(run)
