"""Choices, and the meaning of every field: read from the YAML files and the docstrings.

Needs the standard library only, so that `--help` is there at once.
"""

import ast
import inspect
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from robot_rl.core.errors import ConfigError
from robot_rl.core.plugins import Plugin, installed_plugins

CONFIGS = Path(__file__).parent
"""Folder of our own YAML groups."""
GROUPS = ("env", "task", "robot", "learner", "experiment")
"""Groups that a command line chooses from."""
FOLDERS_VARIABLE = "ROBOT_RL_CONFIG_DIR"
"""Variable of the environment with further folders, between colons; `--config-dir` sets it, so that
processes of a run know them too."""
PAIRS = ("fitted", "tuned")
"""Groups whose files are named by two or three choices."""
YAML_FOLDERS = (*GROUPS, *PAIRS, "robustness")
"""Folders whose YAML files are read."""


@dataclass(frozen=True, kw_only=True)
class ConfigFolder:
    """A folder of YAML groups."""

    path: Path
    plugin: Plugin | None = None
    """Plug-in that brings it; None for ours, or one of the user's."""

    def __str__(self) -> str:
        return str(self.plugin or ("robot_rl" if self.path == CONFIGS else self.path))


def config_folders() -> list[ConfigFolder]:
    """Folders of YAML groups: ours, those of plug-ins, those of `--config-dir`.

    Raises:
        ConfigError: One that was named is none.
    """
    brought: dict[Path, ConfigFolder] = {}
    for plugin in installed_plugins():
        if (path := plugin.folder) is not None and path not in brought:
            brought[path] = ConfigFolder(path=path, plugin=plugin)
    named = filter(None, os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep))
    own = [ConfigFolder(path=_checked(Path(name))) for name in named]
    return [ConfigFolder(path=CONFIGS), *brought.values(), *own]


def _checked(path: Path) -> Path:
    if not any((path / group).is_dir() for group in YAML_FOLDERS):
        what = "holds none of them" if path.is_dir() else "is no folder"
        raise ConfigError(
            f"--config-dir {path}: expected a folder with YAML files in folders called "
            f"{', '.join(YAML_FOLDERS)}; it {what}"
        )
    return path.absolute()


def config_file(group: str, name: str) -> tuple[Path, ConfigFolder] | None:
    """YAML file of a choice, and the folder that it is from; None where there is none.

    Raises:
        ConfigError: There are several.
    """
    found = [
        (path, folder)
        for folder in config_folders()
        if (path := folder.path / group / f"{name}.yaml").is_file()
    ]
    if len(found) > 1:
        raise ConfigError(
            f"{group}={name} is a file of {' and of '.join(str(of) for _, of in found)}: give one "
            "of them another name"
        )
    return found[0] if found else None


def choices(group: str) -> dict[str, str]:
    """Names in a group with a line about each: the first comment of its YAML file."""
    paths = (path for one in config_folders() for path in (one.path / group).glob("*.yaml"))
    return {path.stem: _first_comment(path) for path in sorted(paths, key=lambda path: path.stem)}


def task_robot(task: str) -> str:
    """Robot that a task is made for, where its YAML file says so: `# @robot panda`; else empty."""
    found = config_file("task", task)
    text = found[0].read_text(encoding="utf-8", errors="replace") if found else ""
    named = re.search(r"^# @robot (\w+)$", text, re.MULTILINE)
    return named[1] if named else ""


def experiment_groups(experiment: str) -> set[str]:
    """Groups of which an experiment makes the choice, such as its task and its learner."""
    found = config_file("experiment", experiment)
    text = found[0].read_text(encoding="utf-8", errors="replace") if found else ""
    return set(re.findall(r"^ *- override /(\w+):", text, re.MULTILINE))


def describe_choices() -> str:
    """The choices of all groups, one line each; of a task also the robot that it brings."""
    lines: list[str] = []
    for group in GROUPS:
        found = choices(group)
        lines.append(f"{group}:")
        width = max(map(len, found), default=0)
        if group == "task":
            found = {name: f"{text}{_brings(name)}" for name, text in found.items()}
        lines += [f"  {name:<{width}}  {text}" for name, text in found.items()]
    return "\n".join(lines)


@dataclass(frozen=True)
class Field:
    """One field that can be overridden."""

    path: str
    """Dotted name, as on the command line."""
    kind: str
    """Its type in words."""
    value: Any
    """Its present value."""
    meaning: str
    """Its docstring."""


def walk_fields(config: Any, prefix: str = "") -> Iterator[Field]:
    """Every field of a typed config, nested ones included."""
    meanings = _field_docstrings(type(config))
    for entry in fields(config):
        value, path = getattr(config, entry.name), f"{prefix}{entry.name}"
        if is_dataclass(value):
            yield from walk_fields(value, f"{path}.")
        elif isinstance(value, dict) and value and all(map(is_dataclass, value.values())):
            for name, item in value.items():
                yield from walk_fields(item, f"{path}.{name}.")
        else:
            yield Field(path, _kind(entry.type), value, meanings.get(entry.name, ""))


def describe_fields(config: Any) -> str:
    """All fields of a typed config with type, value and meaning."""
    lines: list[str] = []
    for entry in walk_fields(config):
        lines.append(f"{entry.path}={_written(entry.value)}  ({entry.kind})")
        if entry.meaning:
            lines.append(f"    {entry.meaning}")
    return "\n".join(lines)


def _brings(task: str) -> str:
    robot = task_robot(task)
    return f" Brings robot={robot}." if robot else ""


def _first_comment(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    comments = (line.removeprefix("#").strip() for line in lines if line.startswith("#"))
    return next((text for text in comments if not text.startswith("@")), "")


@cache
def _field_docstrings(config: type) -> dict[str, str]:
    """Docstring of every field: the string that follows it in the source."""
    found: dict[str, str] = {}
    for owner in reversed(config.__mro__):
        if not is_dataclass(owner):
            continue
        try:
            tree = ast.parse(inspect.cleandoc(inspect.getsource(owner)))
        except (OSError, SyntaxError, TypeError):  # of a program that was typed in
            continue
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for entry, after in pairwise(body):
            if (
                isinstance(entry, ast.AnnAssign)
                and isinstance(entry.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                found[entry.target.id] = " ".join(str(after.value.value).split())
    return found


def _kind(annotation: Any) -> str:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return f"one of {', '.join(member.name for member in annotation)}"
    words = {int: "whole number", float: "number", bool: "true or false", str: "text"}
    name = annotation if isinstance(annotation, str) else str(annotation)
    return words.get(annotation) or re.sub(r"[a-z_.]+\.(?=[A-Z])|<class '|'>", "", name)


def _written(value: Any) -> str:
    """A value as the command line writes it."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_written(item)}" for key, item in value.items()) + "}"
    if is_dataclass(value):
        content = {entry.name: getattr(value, entry.name) for entry in fields(value)}
        return _written(content)
    return str(value)
