"""The command `robot-rl`: finds the command that is asked for, and completes its line by Tab."""

import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from robot_rl.cli.command_line import exit_with_sentence, read_overrides
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.process import check_one_root, put_own_packages_first

COMMANDS = {
    # name: the flags it takes beside --help, and what it does
    "train": (("multirun", "cfg", "info"), "train a policy, or resume a run"),
    "evaluate": ((), "test a trained policy in simulation"),
    "export": ((), "write a policy as a bundle or as C99"),
    "deploy": ((), "run a bundle on a robot over ROS 2, or on a simulated one"),
    "learn": ((), "learn on a robot while it works, with help by persons"),
    "status": ((), "show the robots that are deployed on this computer"),
    "operate": ((), "watch and command a deployed robot by keys, in a second terminal"),
    "console": ((), "open a console in the browser beside a deployed robot"),
    "estop": ((), "stop every deployed robot at once"),
    "hold": ((), "let a deployed robot hold its pose"),
    "disarm": ((), "stop a deployed robot softly"),
    "arm": ((), "make a deployed robot stand up and be ready"),
    "policy": ((), "hand a deployed robot over to its policy"),
    "reset": ((), "end the stop of a deployed robot"),
    "collect": (("info",), "record episodes of scripted experts as a data set"),
    "teleop": ((), "record demonstrations of a person on the twin of an arm"),
    "data": ((), "describe (info), convert, merge, split, relabel, plot and repair data sets"),
    "reward": ((), "learn a reward from episodes, test it, find what fools it"),
    "runs": ((), "list, show, compare and clean runs"),
    "record": ((), "record a deployed robot as a rosbag2 folder"),
    "replay": ((), "run a policy over a recording"),
    "view": (("info",), "watch a task or a policy in the browser, or film it"),
    "zoo": ((), "list, show and copy the policies that ship"),
    "doctor": ((), "find what stands in the way of a deployment"),
    "urdf": ((), "print a robot's description for ROS, RViz and MoveIt"),
    "robot": ((), "import an arm or a walking robot from its URDF"),
    "secure": ((), "make keys and permissions for ROS 2 security (SROS 2)"),
    "critics": ((), "compare the critics of a run with the returns that were reached"),
    "new": ((), "write a project of your own: a package with a robot and a task"),
    "completion": ((), "print a script for bash or zsh that completes this command by Tab"),
}

_SHARED = {
    "policy": ("evaluate", "export", "critics"),
    "operate": ("status", "operate", "estop", "hold", "disarm", "arm", "policy", "reset"),
    "robot": ("deploy", "doctor", "record", "replay", "urdf", "secure"),
    "import_robot": ("robot",),
    "main": ("completion",),
}
"""Modules of several commands; every other command has one of its own."""


_ZOO = "zoo:"
"""As in `policies.zoo.catalog`, which takes time to import."""
_CONFIG_DIR = "ROBOT_RL_CONFIG_DIR"
"""As in `configs.catalog`, which is found only once the packages are."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the command line names.

    Raises:
        SystemExit: With the command's exit code, where it is not 0.
    """
    line = list(sys.argv[1:] if arguments is None else arguments)
    with exit_with_sentence("robot-rl"), _further_configs(line) as line:
        name, rest = (line[0], line[1:]) if line else ("--help", [])
        with exit_with_sentence(f"robot-rl {name}"):
            _run(name, rest)


def _run(name: str, rest: Sequence[str]) -> None:
    if name in ("-h", "--help"):
        print(_help())
        return
    if name == "--version":
        from robot_rl import __version__

        print(f"robot-rl {__version__}")
        return
    if name not in COMMANDS:
        raise ConfigError(f"{unknown_name('command', name, COMMANDS)}; see: robot-rl --help")
    put_own_packages_first(modules_too=True)
    check_one_root()
    help_text, run = _load(name)
    allowed = COMMANDS[name][0]
    if name != "zoo":
        rest = [_with_folder(word, name) for word in rest]
    words, flags = read_overrides(rest, lambda: _filled(help_text), *allowed)
    # Before torch is imported: threads that spin while they wait are slow on shared cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    code = run(words, flags) if allowed else run(words)
    if code:
        raise SystemExit(code)


def _with_folder(word: str, command: str) -> str:
    """A word of the command line, with the folder of a policy that it names as zoo:<name>."""
    option, equals, value = word.rpartition("=")
    if not value.startswith(_ZOO):
        return word
    from policies.zoo.catalog import bundle_folder

    option = option if equals else "agent" if command == "view" else "bundle"
    return f"{option}={bundle_folder(value)}"


@contextmanager
def _further_configs(words: Sequence[str]) -> Iterator[list[str]]:
    """Meanwhile the folders of `--config-dir` have YAML files too; yields the other words."""
    rest, folders, waiting = [], [], list(words)
    while waiting:
        flag, equals, value = waiting.pop(0).partition("=")
        if flag != "--config-dir":
            rest.append(flag + equals + value)
            continue
        if not equals:
            value = waiting.pop(0) if waiting else ""
        if not value:
            raise ConfigError("--config-dir names no folder; expected --config-dir <folder>")
        folders.append(os.path.abspath(value))
    before = os.environ.get(_CONFIG_DIR)
    if folders:
        os.environ[_CONFIG_DIR] = os.pathsep.join([*filter(None, [before]), *folders])
    try:
        yield rest
    finally:
        if folders:
            os.environ.pop(_CONFIG_DIR)
            os.environ.update({} if before is None else {_CONFIG_DIR: before})


def _load(command: str) -> tuple[str, Callable[..., int | None]]:
    """Help of a command, and what runs it."""
    name = next((home for home, names in _SHARED.items() if command in names), command)
    module = import_module(f"robot_rl.cli.{name}")
    if name == command:
        return module.HELP, module.run
    return getattr(module, f"{command.upper()}_HELP"), getattr(module, f"run_{command}")


def _filled(text: str) -> str:
    """The help of a command, with what can be chosen."""
    from configs.catalog import choices, describe_choices

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
        "       --config-dir <folder> adds YAML files of your own to those that can be chosen from",
        "",
        *lines,
        "",
        "Runs are written to the folder runs/ where you are; runs=<folder> chooses another.",
    ])  # fmt: skip


COMPLETION_HELP = """Prints a script by which a shell completes robot-rl: commands and choices.

usage: robot-rl completion bash|zsh

  bash: eval "$(robot-rl completion bash)"     put the line into ~/.bashrc (bash 4.3 or newer)
  zsh:  eval "$(robot-rl completion zsh)"      put the line into ~/.zshrc, behind compinit"""

_SCRIPTS = {
    "bash": r"""
_robot_rl() {
  local line="${COMP_LINE:0:COMP_POINT}" word
  local -a words
  read -ra words <<< "$line"
  [[ "$line" == *[[:space:]] ]] && words+=("")
  word="${words[-1]}"
  mapfile -t COMPREPLY < <(robot-rl completion words "${words[@]:1}" 2>/dev/null)
  # Bash completes what follows the last = of the word.
  local before="${word%"${word##*=}"}"
  [[ "$COMP_WORDBREAKS" == *=* ]] && COMPREPLY=("${COMPREPLY[@]#"$before"}")
  [[ "${#COMPREPLY[@]}" == 1 && "${COMPREPLY[0]}" == *[=/] ]] && compopt -o nospace
}
complete -o default -F _robot_rl robot-rl
""",
    "zsh": r"""
_robot_rl() {
  local -a found
  found=("${(@f)$(robot-rl completion words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  compadd -S '' -a found
}
compdef _robot_rl robot-rl
""",
}
_RUNS = ("run", "resume", "bundle", "data", "base", "teacher", "reward", "model")
"""Options that name a folder."""


def run_completion(words: Sequence[str]) -> None:
    """Print the script of a shell; or, for that script, the words that may stand at the end."""
    if words[:1] == ["words"]:
        print("\n".join(complete(words[1:])))
        return
    if len(words) != 1 or words[0] not in _SCRIPTS:
        raise ConfigError(f"for which shell? robot-rl completion {'|'.join(_SCRIPTS)}")
    print(_SCRIPTS[words[0]].strip())


def complete(words: Sequence[str]) -> list[str]:
    """Words that the last of these, which may be empty, may be the beginning of."""
    begun = words[-1] if words else ""
    if len(words) < 2:
        found: Iterator[str] = iter([*COMMANDS, "--help", "--version"])
    elif words[0] not in COMMANDS:
        found = iter(())
    else:
        found = _values(*begun.split("=", 1)) if "=" in begun else _options(words[0])
    return sorted({word for word in found if word.startswith(begun)})


def _options(command: str) -> Iterator[str]:
    """Options that the command's help names, and its flags."""
    from configs.catalog import GROUPS

    yield "--help"
    text, _ = _load(command)
    if any(f"{{{name}}}" in text for name in ("choices", "tasks")):
        yield from (f"{group}=" for group in GROUPS)
    yield from re.findall(rf"^(?:usage:|      ) robot-rl {command} ([a-z]+)\b", text, re.MULTILINE)
    for line in text.splitlines():
        if re.match(r"  \S", line):
            yield from (f"{name}=" for name in re.findall(r"(?<!\S)([a-z_]\w*(?:[./]\w+)*)=", line))
            yield from re.findall(r"(?<!\S)(--?[a-z]+)", line)
            if word := re.match(r"  ([a-z]+) +<", line):
                yield word[1]


def _values(name: str, begun: str) -> Iterator[str]:
    """Values of an option: choices of a group, or folders."""
    from configs.catalog import GROUPS, choices

    if name in GROUPS:
        yield from (f"{name}={choice}" for choice in choices(name))
        return
    if name in ("run", "resume"):
        yield f"{name}=latest"
    if name in ("agent", "bundle"):
        from policies.zoo.catalog import zoo_names

        yield from (f"{name}={_ZOO}{one}" for one in zoo_names())
    if name.rpartition(".")[2] in (*_RUNS, "out", "bag", "record", "runs"):
        above = Path(begun) if begun.endswith("/") else Path(begun).parent
        if above.is_dir():
            yield from (f"{name}={path}/" for path in above.iterdir() if path.is_dir())
