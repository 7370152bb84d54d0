"""Plug-ins with mistakes: a sentence where their parts are asked for, nothing elsewhere."""

import importlib
import re
import textwrap
from pathlib import Path
from typing import Any

import mujoco
import pytest
import torch

import configs.compose
import robot_rl
from configs.catalog import CONFIGS
from configs.compose import compose, robot_description
from robot_rl.core.errors import ConfigError
from robot_rl.core.plugins import forget_plugins

ROOT = Path(__file__).parents[3]
TASK = """
from dataclasses import dataclass
from configs.schema import Component, register
from sim.tasks.flights.hover import HoverConfig, HoverTask

@dataclass(kw_only=True)
class OddConfig(HoverConfig):
    pass

register(Component("task", "odd", OddConfig, HoverTask))
"""
YAML = "# Odd.\ndefaults:\n  - odd_schema\n  - _self_\n"
MODULES = {
    # what the module says: what a person is told who asks for its task
    "import nothing_like_it": "No module named 'nothing_like_it'; see where with python -c "
    "'import {package}.plugin', or remove it with pip uninstall {package}",
    "def broken(:": "could not be imported: SyntaxError: invalid syntax",
    "raise RuntimeError('the server\\nis away')": "RuntimeError: the server is away",
    "import sys; sys.exit(3)": "could not be imported: SystemExit: 3",
    "from configs.schema import nobody": "ImportError: cannot import name 'nobody'",
    TASK.replace('"task", "odd"', '"tsak", "odd"'): "'tsak' is unknown (did you mean 'task'?)",
    TASK.replace("(kw_only=True)\n", "(kw_only=True)\n").replace("@dataclass(kw_only=True)\n", "")
    .replace("(HoverConfig)", ""): "task 'odd': expected a dataclass as config",
    TASK.replace(", HoverTask)", ", 'HoverTask')"): "expected what builds it, got 'HoverTask'",
    TASK.replace('"odd"', '"hover"'): "task 'hover' exists already, from robot_rl; give yours",
    TASK.replace('"odd"', '"od d"'): "task 'od d' cannot be called so",
    TASK.replace("OddConfig, HoverTask", "HoverConfig, HoverTask"):
    "its config HoverConfig is that of task 'hover'",
    "from robot_rl.core.observation import Mirrored, actor_term\n"
    "@actor_term(Mirrored.vector)\ndef position_error_w(inputs): return inputs\n":
    "observation term 'position_error_w' exists already, from robot_rl",
    "from hardware.registry import register_driver\nregister_driver('twin', print)":
    "driver 'twin' exists already, from robot_rl",
    "from sim.experts import register_expert\nregister_expert('reach', int, print)":
    "expert 'reach' exists already, from robot_rl",
}  # fmt: skip


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package: `install("odd_one", module, {"task/odd.yaml": text})`."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)

    def write(package, module, files, entry=""):
        for name, text in {"__init__.py": "", "plugin.py": module}.items():
            path = site / package / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        for name, text in files.items():
            path = site / package / "configs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        info = site / f"{package}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
        line = f"{package} = {entry or f'{package}.plugin'}\n"
        (info / "entry_points.txt").write_text(f"[robot_rl.plugins]\n{line}")
        importlib.invalidate_caches()
        forget_plugins()

    yield write
    monkeypatch.undo()
    forget_plugins()


@pytest.mark.parametrize("number", range(len(MODULES)))
def test_broken_module_is_one_sentence_where_it_is_needed(install, command, refused, number):
    module, told = list(MODULES.items())[number]
    package = f"broken_{number}"
    install(package, module, {"task/odd.yaml": YAML})
    said = refused("train", "task=odd", "--cfg", "job")
    assert f"plug-in '{package}' ({package} 1.5)" in said
    assert told.format(package=package) in said
    assert refused("train", "task=hoover").count("did you mean 'hover'") == 1
    command("train", "task=hover", "--cfg", "job")
    command("train", "--help")


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"task/odd.yaml": "defaults: [odd_schema"}, "while parsing"),
        ({"task/odd.yaml": "defaults:\n  - odder_schema\n"},
         "odd.yaml: task 'odder_schema' is unknown (did you mean 'odd_schema'?); known: ball"),
        ({"task/odd.yaml": "defaults:\n  - hover_shema\n"}, "(did you mean 'hover_schema'?)"),
        ({"task/odd.yaml": "defaults: [hoverr]\n"},
         "odd.yaml: task 'hoverr' is unknown (did you mean 'hover'?); known: ball_in_cup, "),
        ({"task/odd.yaml": YAML + "radios: 2.0\n"},
         "field of OddConfig 'radios' is unknown (did you mean 'radius'?)"),
        ({"task/odd.yaml": YAML + "radius: wide\n"}, "wide"),
        ({"task/odd.yaml": YAML + "radius: -1\n"}, "radius"),
        ({"task/odd.yaml": "# @robot odd_robot\n" + YAML}, "odd_robot"),
        ({"task/odd.yaml": YAML, "fitted/odd_crazyflie.yaml": "task: {radios: 1}\n"},
         "odd_crazyflie.yaml is put into 'fitted'"),
        ({"task/odd.yaml": "- a\n- list\n"}, "extends no schema of a task"),
        ({"task/odd.yaml": "radius: 2.0\n"}, "extends no schema of a task"),
        ({"task/odd.yaml": "\x00\x01"}, "odd"),
    ],
)  # fmt: skip
def test_broken_yaml_is_one_sentence(install, command, refused, files, told):
    install("broken_yaml", TASK, files)
    assert told in refused("train", "task=odd", "--cfg", "job")
    command("train", "task=hover", "--cfg", "job")


def test_file_of_the_name_of_ours_is_refused_when_it_is_asked_for(install, command, refused):
    install("alike", TASK.replace('"odd"', '"lone"'), {"task/hover.yaml": YAML})
    told = refused("train", "task=hover", "--cfg", "job")
    assert "task=hover is a file of robot_rl and of plug-in 'alike' (alike 1.5)" in told
    command("train", "task=tracking", "--cfg", "job")


def test_two_packages_with_a_part_of_one_name(install, refused):
    install("first_one", TASK, {})
    install("second_one", TASK, {"task/odd.yaml": YAML, "task/other.yaml": YAML})
    command_line = ("train", "task=other_one", "--cfg", "job")
    told = refused(*command_line)
    assert (
        "plug-in 'second_one' (second_one 1.5) was left out: task 'odd' exists already, from "
        in (told)
    )
    assert "plug-in 'first_one' (first_one 1.5); give yours another name" in told


def test_entry_that_is_no_module(install, refused):
    install("astray", TASK, {"task/odd.yaml": YAML}, entry="astray.plug")
    assert "No module named 'astray.plug'" in refused("train", "task=odd")


def test_part_without_a_file_is_chosen_by_its_name(install, command):
    install("no_files", TASK.replace('"odd"', '"alone"'), {})
    assert "task: alone" in command("train", "task=alone", "--cfg", "job").out


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("nowhere", "it is no folder"),
        ("", "names no folder"),
        ("empty", "it holds none of them"),
    ],
)
def test_folder_of_no_configs(here, refused, where, told):
    (here / "empty").mkdir()
    assert told in refused("train", "--config-dir", where, "task=hover", "--cfg", "job")


def test_folder_adds_choices_and_models_beside_its_files(here, command, refused, monkeypatch):
    for group, name, text in (
        ("task", "near", "defaults:\n  - hover\n  - _self_\nradius: 0.7\n"),
        (
            "robot",
            "mine",
            "defaults:\n  - panda\n  - _self_\nmodel: mine.xml\ngripper_model: claw.xml\n",
        ),
    ):
        (here / "mine" / group).mkdir(parents=True)
        (here / "mine" / group / f"{name}.yaml").write_text(text)
    for file in ("mine.xml", "claw.xml"):
        (here / "mine" / "robot" / file).write_text("<mujoco/>")
    said = command("train", "--config-dir", "mine", "task=near", "--cfg", "job").out
    assert "radius: 0.7" in said
    said = command("train", "--config-dir=mine", "task=reach", "robot=mine", "--cfg", "job").out
    assert f" model: {here / 'mine' / 'robot' / 'mine.xml'}" in said
    assert f"gripper_model: {here / 'mine' / 'robot' / 'claw.xml'}" in said
    monkeypatch.setenv("ROBOT_RL_CONFIG_DIR", "mine")
    described = robot_description("mine")
    assert described is not None
    assert described.name == "panda"
    monkeypatch.delenv("ROBOT_RL_CONFIG_DIR")
    assert "near" in refused("train", "--config-dir", "mine", "task=neer")
    assert "did you mean" in refused("train", "task=hver")
    assert "near" not in refused("train", "task=hver").replace("nearest", "")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"start: {attitude_deg: twenty}", ": task.start.attitude_deg must be a number, got 'twen"),
        (b"reward: {initial: {alive: high}}", ": task.reward.initial.alive must be a number, got"),
        (b"actor: 5", ": task.actor: Invalid value assigned"),
        (b"start: {attitude_deg: [1,2}", ", line 5, column 27: expected ',' or ']', but got '}'"),
        (b"radius: 1 # \xe9", " is no UTF-8 (invalid continuation byte); save it as UTF-8"),
    ],
)
def test_mistake_in_a_file_names_file_field_and_problem(here, refused, line, told):
    """A value was told without its field, a bracket without the problem, bytes by a traceback."""
    file = here / "mine" / "task" / "odd.yaml"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"defaults:\n  - hover\n  - _self_\n\n" + line + b"\n")
    said = refused("train", "--config-dir", "mine", "task=odd", "--cfg", "job")
    assert f"{file}{told}" in said


def write_files_of_the_page(here: Path) -> None:
    """Every block of the page that begins with the name of a file (after its `# @package`)."""
    page = (ROOT / "docs" / "extending.md").read_text()
    for block in page.split("\n\n"):
        lines = textwrap.dedent(block)
        if named := re.match(r"(?:# @package .*\n)?# (my_configs/[^:\n]+)", lines):
            (here / named[1]).parent.mkdir(parents=True, exist_ok=True)
            (here / named[1]).write_text(lines)


def test_folder_of_the_page_serves_commands_and_programs(here, command, monkeypatch):
    write_files_of_the_page(here)
    line = ("train", "--config-dir", "my_configs", "task=calm_hover")
    assert "attitude_deg: 20" in command(*line, "--cfg", "job").out
    assert "calm_hover" in command("train", "--config-dir", "my_configs", "--help").out
    assert "calm_hover" not in command("train", "--help").out
    monkeypatch.setenv("ROBOT_RL_CONFIG_DIR", "my_configs")
    assert compose(["task=calm_hover"]).config.task.start.attitude_deg == 20


def test_files_of_the_page_take_all_numbers_of_the_task_that_is_extended(here, monkeypatch, caplog):
    """A task that extended hover lost its fitted and tuned numbers without a word."""
    write_files_of_the_page(here)
    monkeypatch.setenv("ROBOT_RL_CONFIG_DIR", "my_configs")
    for learner in ("sac", "iql"):
        calm, ours = (
            compose([f"task={task}", f"learner={learner}"]).config
            for task in ("calm_hover", "hover")
        )
        assert calm.task.start != ours.task.start
        calm.task.start = ours.task.start
        assert calm == ours, learner
    assert caplog.text == ""


def test_numbers_that_an_extended_task_has_and_this_one_does_not_take_are_told_once(
    here, monkeypatch, caplog
):
    write_files_of_the_page(here)
    (here / "my_configs/tuned/calm_hover_sac.yaml").unlink()
    (here / "my_configs/task/calmer_hover.yaml").write_text("defaults: [calm_hover]\nradius: 2\n")
    monkeypatch.setenv("ROBOT_RL_CONFIG_DIR", "my_configs")
    configs.compose._told.clear()
    compose(["task=hover"])
    assert caplog.text == ""
    for _ in range(2):
        compose(["task=calm_hover"])
    assert caplog.messages == [
        "task=calm_hover extends hover and does not take its numbers in tuned/hover_sac.yaml; to "
        'take them, write tuned/calm_hover_sac.yaml (see "Extending")'
    ]
    compose(["task=calmer_hover"])
    assert "calmer_hover extends calm_hover and does not take its numbers in fitted/calm_hover_cr" \
        in caplog.messages[1]  # fmt: skip
    compose(["task=calm_hover", "robot=x500", "learner=iql"])
    assert "its numbers in fitted/hover_x500.yaml; to take" in caplog.messages[2]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("fitted/reach_my_amr.yaml", "is for no names that are known (did you mean "
         "'fitted/reach_my_arm.yaml'?); expected <task>_<robot>.yaml: rename it"),
        ("tuned/reach_my_arm_sca.yaml", "(did you mean 'tuned/reach_my_arm_sac.yaml'?); expected "
         "<task>_<learner>.yaml or <task>_<robot>_<learner>.yaml"),
        ("tuned/reach_my_arm.yaml", "(did you mean 'fitted/reach_my_arm.yaml'?)"),
        ("fitted/reach_my_arm.yml", "(did you mean 'fitted/reach_my_arm.yaml'?)"),
        ("tasks/near.yaml", "is no folder of a group (did you mean 'task'?); expected env, task, "),
    ],
)  # fmt: skip
def test_a_misspelt_file_or_folder_that_would_never_be_read_is_refused(here, refused, name, told):
    """Such a file had no effect, and nobody said so."""
    for file in ("robot/my_arm.yaml", name):
        (here / "mine" / file).parent.mkdir(parents=True, exist_ok=True)
        (here / "mine" / file).write_text("defaults: [panda]\n")
    said = refused("train", "--config-dir", "mine", "task=reach", "--cfg", "job")
    assert told in said
    assert str(here / "mine" / name.split("/")[0]) in said


def test_files_like_nothing_that_is_known_are_told_and_others_are_passed_by(
    here, command, monkeypatch, caplog
):
    configs.compose._told.clear()
    for file in (
        "robot/my_arm.yaml", "robot/meshes/link.stl", "fitted/reach_my_arm.yaml", "README.md",
        "fitted/shared.yaml", "tuned/circle_sac_of_a_script.yaml", "notes/a.yaml", ".hydra/b.yaml",
        "runs/one/config.yaml",
    ):  # fmt: skip
        (here / "mine" / file).parent.mkdir(parents=True, exist_ok=True)
        (here / "mine" / file).write_text("defaults: [panda]\n" if "robot/" in file else "")
    numbers = "# @package _global_\ndefaults: [shared]\n"
    (here / "mine/fitted/reach_my_arm.yaml").write_text(numbers)
    (here / "mine/fitted/shared.yaml").write_text("# @package _global_\nseed: 7\n")
    line = ("train", "--config-dir", "mine", "task=reach", "robot=my_arm", "--cfg", "job")
    assert "seed: 7" in command(*line).out
    folder, file = caplog.messages
    assert folder.startswith(f"{here / 'mine' / 'notes'} is no folder of a group; expected env, ")
    assert file.startswith(str(here / "mine" / "tuned" / "circle_sac_of_a_script.yaml"))
    assert file.endswith("expected <task>_<learner>.yaml or <task>_<robot>_<learner>.yaml: it has "
                         "no effect")  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("spec: {joints: [{name: j, stiffnes_: 3}]}", "bad.yaml: field of JointSpec 'stiffnes_' is "
         "unknown (did you mean 'stiffness'?); known: actuator_delay, armature"),
        ("spec: {gripper: {joints: [j], opn: 1}}", "field of GripperSpec 'opn' is unknown (did"),
        ("cameras: {front: {polition: [0, 0, 1]}}", "field of CameraConfig 'polition' is unknown"),
    ],
)  # fmt: skip
def test_misspelt_field_of_a_part_of_a_robot_names_the_nearest(here, refused, lines, told):
    """Only fields of the whole robot did."""
    (here / "mine" / "robot").mkdir(parents=True)
    text = f"defaults: [joint_robot_schema, _self_]\n{lines}\n"
    (here / "mine" / "robot" / "bad.yaml").write_text(text)
    assert told in refused("train", "--config-dir", "mine", "task=reach", "robot=bad")


def test_misspelt_model_names_the_folder_of_the_file_and_what_is_there(here, monkeypatch):
    """The models that ship were listed, and no file of the user's."""
    folder = here / "mine" / "robot"
    folder.mkdir(parents=True)
    (folder / "bad.yaml").write_text("defaults: [panda, _self_]\nmodel: minarmm.xml\n")
    (folder / "min_arm.xml").write_text("<mujoco/>")
    monkeypatch.setenv("ROBOT_RL_CONFIG_DIR", "mine")
    with pytest.raises(ConfigError) as missed:
        robot_rl.make_env("task=reach", "robot=bad")
    assert (
        f"no model file {folder}/minarmm.xml (did you mean 'min_arm.xml'?); in {folder}: "
        "min_arm.xml; known: allegro.xml, "
    ) in str(missed.value)


def test_robot_of_the_page_is_simulated_as_the_page_says(here, monkeypatch):
    """The spec as printed was refused by the page's own command: it had no payload_body."""
    page = (ROOT / "docs" / "own_robot.md").read_text()
    blocks = re.findall(
        r"```yaml\n((?:# @package .*\n)?# (my_configs/\S+)\n.*?)```", page, re.DOTALL
    )
    files = {name: text for text, name in blocks}
    assert list(files) == ["my_configs/robot/my_arm.yaml", "my_configs/fitted/reach_my_arm.yaml"]
    panda = (CONFIGS / "robot" / "panda.yaml").read_text()
    others = re.findall(r"^    - \{name: joint[2-7],.*\n", panda, re.MULTILINE)
    for name, text in files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text.replace("    # ...\n", "".join(others)))
    engine: Any = mujoco  # without type information
    tree = engine.MjSpec.from_file(str(ROOT / "sim" / "robots" / "panda.xml"))
    for part in (*tree.equalities, *(one for one in tree.bodies if "finger" in one.name)):
        tree.delete(part)
    (here / "my_configs" / "robot" / "my_arm.xml").write_text(tree.to_xml())
    monkeypatch.setenv("ROBOT_RL_CONFIG_DIR", "my_configs")
    env = robot_rl.make_env("task=reach", "robot=my_arm", num_envs=2)
    env.reset()
    for _ in range(3):
        step = env.step(torch.zeros(2, 7))
        assert step.reward.isfinite().all()
    config = compose(["task=reach", "robot=my_arm"]).config
    assert (config.task.goal_low, config.robot.payload_body) == ([0.3, -0.3, 0.2], "hand")
    assert [joint.velocity_limit for joint in config.robot.spec.joints][:2] == [2.175, 2.175]
