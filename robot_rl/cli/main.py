"""The command `robot-rl`: finds the command that is asked for and hands it the rest of the line."""

import os
import sys
import textwrap
from collections.abc import Sequence
from importlib import import_module

from configs.catalog import choices, describe_choices
from robot_rl.cli.command_line import exit_with_sentence, read_overrides
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.process import check_one_root

COMMANDS = {
    # name: the flags it takes beside --help, and what it does
    "train": (("multirun", "cfg", "info"), "train a policy, or resume a run"),
    "evaluate": ((), "test a trained policy in simulation"),
    "export": ((), "write a policy as a bundle or as C99"),
    "deploy": ((), "run a bundle on a robot over ROS 2, or on a simulated one"),
    "collect": (("info",), "record episodes of scripted experts as a data set"),
    "data": ((), "show, convert, merge, split, relabel, plot and repair data sets"),
    "runs": ((), "list, show, compare and clean runs"),
    "record": ((), "record a deployed robot as a rosbag2 folder"),
    "replay": ((), "run a policy over a recording"),
    "view": (("info",), "watch a task or a policy in the browser, or film it"),
    "doctor": ((), "find what stands in the way of a deployment"),
    "critics": ((), "compare the critics of a run with the returns that were reached"),
    "completion": ((), "print a script for bash or zsh that completes this command by Tab"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the command line names.

    Raises:
        SystemExit: With the command's exit code, where it is not 0.
    """
    line = list(sys.argv[1:] if arguments is None else arguments)
    name, rest = (line[0], line[1:]) if line else ("--help", [])
    with exit_with_sentence(f"robot-rl {name}"):
        if name in ("-h", "--help"):
            print(_help())
            return
        if name == "--version":
            from robot_rl import __version__

            print(f"robot-rl {__version__}")
            return
        if name not in COMMANDS:
            raise ConfigError(f"{unknown_name('command', name, COMMANDS)}; see: robot-rl --help")
        command = import_module(f"robot_rl.cli.{name}")
        allowed = COMMANDS[name][0]
        words, flags = read_overrides(rest, lambda: _filled(command.HELP), *allowed)
        check_one_root()
        # Before torch is imported: threads that spin while they wait are slow on shared cores.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        code = command.run(words, flags) if allowed else command.run(words)
        if code:
            raise SystemExit(code)


def _filled(text: str) -> str:
    """The help of a command, with what can be chosen."""
    names = {group: textwrap.fill(", ".join(choices(group)), 90) for group in ("task", "robot")}
    for group, found in names.items():
        text = text.replace(f"{{{group}s}}", found.replace("\n", "\n" + 7 * " "))
    return text.replace("{choices}", describe_choices()) if "{choices}" in text else text


def _help() -> str:
    lines = [f"  {name:<11} {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join([
        "Trains policies in simulation, runs them on robots, and keeps learning there.",
        "",
        "usage: robot-rl <command> [key=value ...]",
        "       robot-rl <command> --help",
        "       robot-rl --version",
        "",
        *lines,
        "",
        "Runs are written to the folder runs/ where you are; runs=<folder> chooses another.",
    ])  # fmt: skip
