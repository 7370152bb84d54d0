"""Commands of the pages: the program takes each, with fields that exist and values that fit."""

import re
from pathlib import Path

import pytest

from configs.compose import changed_keys, compose, read_only_options, read_options
from policies.zoo.catalog import zoo_names
from robot_rl.cli import command_line, main
from robot_rl.cli.collection.experts import CollectOptions
from robot_rl.cli.console import ConsoleOptions
from robot_rl.cli.data import PlotOptions
from robot_rl.cli.data_sets import ConvertOptions
from robot_rl.cli.deployment.options import DeployOptions, DoctorOptions, RecordOptions
from robot_rl.cli.deployment.replaying import ReplayOptions
from robot_rl.cli.deployment.security import SecureOptions
from robot_rl.cli.evaluation import EvaluateOptions
from robot_rl.cli.import_robot import ImportOptions
from robot_rl.cli.learning.options import LearnOptions
from robot_rl.cli.operate import OperateOptions, StatusOptions
from robot_rl.cli.policy import ExportOptions
from robot_rl.cli.robot import UrdfOptions
from robot_rl.cli.runs import AnyOptions, CompareOptions, ListOptions
from robot_rl.cli.teleoperation.options import TeleopOptions
from robot_rl.cli.train import TrainOptions
from robot_rl.cli.view import ViewOptions
from robot_rl.cli.viewing import SIMPLE, config_of_bundle
from robot_rl.core.errors import ConfigError
from tests.page_commands import NOT_RUN, commands, spans, words_of
from tests.test_docs import READ_THROUGH, ROOT

WITH_FIELDS = {
    "train": TrainOptions, "collect": CollectOptions, "teleop": TeleopOptions,
    "learn": LearnOptions, "view": ViewOptions, "evaluate": EvaluateOptions,
}  # fmt: skip
"""Options of commands that take fields of a run too."""
ALONE = {
    "deploy": DeployOptions, "doctor": DoctorOptions, "record": RecordOptions,
    "replay": ReplayOptions, "secure": SecureOptions, "urdf": UrdfOptions,
    "export": ExportOptions, "robot import": ImportOptions,
}  # fmt: skip
"""Options, written as fields of a run are."""
PLAIN = {
    "console": ConsoleOptions, "status": StatusOptions, "operate": OperateOptions,
    "estop": OperateOptions, "hold": OperateOptions, "reset": OperateOptions,
    "arm": OperateOptions, "disarm": OperateOptions, "policy": OperateOptions,
    "data convert": ConvertOptions,
    "data plot": PlotOptions, "runs compare": CompareOptions, "runs list": ListOptions,
    "runs show": AnyOptions,
}  # fmt: skip
"""Options that are no fields."""
UNREAD = {
    "data", "data info", "data merge", "data relabel", "runs", "runs clean", "critics", "reward",
    "reward train", "reward evaluate", "reward mine", "new project", "record repair", "zoo",
    "zoo list", "zoo show", "zoo fetch",
}  # fmt: skip
"""Names of what reads its words in its own way; the tests of each run it."""
GIVEN = ("run", "resume", "bundle", "agent")
"""Options that bring a run of one's own, whose fields are not known here."""
WITH_PLACES = {"data convert", "data plot", "runs compare", "runs show", "robot import"}
"""Names of what is given files or folders beside options."""
OWN_FOLDER = "--config-dir"
"""Files of one's own: tests/robot_rl/cli/test_pages.py runs these lines, with files."""


def check(line: str) -> None:
    """Raise where the program would refuse a command before it does anything."""
    name, *words = words_of(line)
    assert name.startswith("-") or name in main.COMMANDS, f"{name} is no command"
    if name.startswith("-") or OWN_FOLDER in words or {"--help", "--ros-args"} & set(words):
        return
    words = [main._with_folder(word, name) for word in words if name != "zoo"] or words
    words, flags = command_line.read_overrides(words, "", *main.COMMANDS[name][0])
    if name == "record" and words[:1] == ["repair"]:
        name, words = "record repair", words[1:]
    elif words and name in ("data", "runs", "reward", "zoo", "robot", "new"):
        name, words = f"{name} {words[0]}", words[1:]
    alone = [word for word in words if "=" not in word]
    if name in PLAIN:
        assert not alone or name in WITH_PLACES, f"nothing reads {alone}"
        command_line.read_options(PLAIN[name], [word for word in words if "=" in word])
    elif name in ALONE:
        assert not alone or name in WITH_PLACES, f"nothing reads {alone}"
        read_only_options(ALONE[name], [word for word in words if "=" in word])
    elif name in WITH_FIELDS:
        options, rest = read_options(WITH_FIELDS[name], words)
        if flags.multirun:  # one of the jobs
            rest = [re.sub(r"=([^\[{(,]*),.*", r"=\1", word) for word in rest]
            rest = [re.sub(r"=range\(.*\)", "=0", word) for word in rest]
            rest = [word for word in rest if not word.startswith("hydra")]
        brings = any(getattr(options, one, "") not in ("", *SIMPLE) for one in GIVEN)
        folder = Path(getattr(options, "bundle", "") or getattr(options, "agent", ""))
        if (folder / "provenance.json").is_file():
            config_of_bundle(folder, rest)
        elif not brings:
            task = [] if {"task", "env", "experiment"} & set(changed_keys(rest)) else ["task=peg"]
            compose([*task, *rest])
    else:
        assert name in UNREAD, f"nothing here reads {name}"


TEXTS = [(ROOT / page).read_text() for page in READ_THROUGH]
LINES = dict.fromkeys(line for text in TEXTS for line in commands(text))
SPANS = dict.fromkeys(span for text in TEXTS for span in spans(text))
UNIQUE = {" ".join(words_of(line)): line for line in [*SPANS, *LINES]}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_commands_of_the_pages_are_taken(part):
    refused: dict[str, str] = {}
    for line in list(UNIQUE.values())[part::8]:
        try:
            check(line)
        except ConfigError as error:
            named = len(words_of(line)) == 1  # what a command lacks is no fault of a sentence
            refused |= {} if named and line in SPANS else {line: str(error)}
    assert not refused


@pytest.mark.parametrize("part", NOT_RUN)
def test_what_is_not_run_is_on_a_page(part):
    assert any(re.search(part, line.partition("  #")[0].strip()) for line in [*LINES, *SPANS])


def test_commands_in_sentences_are_found_but_for_those_that_leave_something_out():
    assert len(SPANS) > 40
    page = "Run `robot-rl train\ntask=hover`, then `robot-rl view ... seed=1`; not `train`.\n"
    page += "```sh\nrobot-rl no `robot-rl neither`\n```\n`robot-rl train task=<name>`"
    assert list(spans(page)) == ["robot-rl train task=hover"]
    with pytest.raises(AssertionError, match="flyy is no command"):
        check("robot-rl flyy")


def test_fences_of_other_languages_hide_no_command():
    page = "```python\nrobot-rl no\n```\n\n```sh\nMUJOCO_GL=egl robot-rl train task=hover\n```\n"
    assert [words_of(line) for line in commands(page)] == [["train", "task=hover"]]


def test_most_pages_have_commands_and_they_are_found():
    assert len(LINES) > 150
    page = (
        "Do:\n\n    X='task=reach'   # a task\n    robot-rl train $X seed=1   # so\n\n"
        "```sh\nrobot-rl runs list\n```\n"
    )
    assert [words_of(line) for line in commands(page)] == [
        ["train", "task=reach", "seed=1"], ["runs", "list"]
    ]  # fmt: skip
    assert {name for line in LINES for name in words_of(line)[1:2] if "zoo" in line} <= {
        "list", "show", "fetch", *(f"zoo:{name}" for name in zoo_names())
    } | {"num_envs=1"}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("robot-rl train task=hover learner.gama=0.9", "did you mean 'learner.gamma'"),
        ("robot-rl collect task=reach out=x episods=3", "did you mean 'episodes'"),
        ("robot-rl deploy bundle=x mod=shadow", "did you mean 'mode'"),
        ("robot-rl train task=hoover", "did you mean 'hover'"),
        ("robot-rl status followw=true", "did you mean 'follow'"),
        ("robot-rl evaluate zoo:go2-velocity robot.engin3=warp", "did you mean 'robot.engine'"),
    ],
)
def test_a_command_that_is_not_taken_is_found(line, told):
    with pytest.raises(ConfigError, match=told):
        check(line)
