"""Writes a project of one's own: a package with a robot, a task, tests and a Makefile."""

import importlib.util
import keyword
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from robot_rl.core.errors import ConfigError, StorageError, unknown_name

HELP = """Writes a project of your own: a package with a robot and a task, ready to train.

usage: robot-rl new project <name>

  <name>   of the package and of its folder, which is made here: small letters, digits and _

The package brings its parts to robot_rl by an entry point, so that nothing of robot_rl is changed.

examples:
  robot-rl new project my_arm && cd my_arm && make train"""

TEMPLATE = Path(__file__).parent / "project_template"
"""A project called `NAME`."""
NAME = "my_project"
_KINDS = ("project",)
_HIDDEN = "gitignore"
"""File whose name gets a dot in front; packages do not carry hidden files."""


def run(words: Sequence[str]) -> None:
    """Write what the command line says."""
    if len(words) != 2:
        raise ConfigError("what is it to be called? robot-rl new project <name>")
    kind, name = words
    if kind not in _KINDS:
        raise ConfigError(unknown_name("new", kind, _KINDS))
    folder = write_project(name)
    print(f"wrote {folder}/\n\n  cd {folder}\n  make train    # or: make test, make view")


def write_project(name: str, where: Path | str = ".") -> Path:
    """Write the template under another name; returns its folder.

    Raises:
        ConfigError: The name cannot be one of a package here, or the folder exists.
        StorageError: The folder cannot be written.
    """
    folder = Path(where) / name
    _check_name(name)
    if folder.exists():
        raise ConfigError(f"{folder} exists already; choose another name, or remove it first")
    if name in (taken := {path.name for path in TEMPLATE.iterdir() if path.is_dir()} - {NAME}):
        raise ConfigError(
            f"'{name}' is a folder of every project ({', '.join(taken)}); choose another"
        )
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise ConfigError(
            f"'{name}' is the name of a module that is there already; choose another one"
        )
    try:
        for source in sorted(TEMPLATE.rglob("*")):
            inside = source.relative_to(TEMPLATE)
            if source.is_dir() or "__pycache__" in inside.parts:
                continue
            target = folder / str(inside).replace(NAME, name)
            if target.name == _HIDDEN:
                target = target.with_name(f".{_HIDDEN}")
            target.parent.mkdir(parents=True, exist_ok=True)
            text = source.read_text(encoding="utf-8").replace(NAME, name)
            target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write {folder}: {error.strerror}") from error
    return folder


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        usable = re.sub(r"\W+", "_", name.strip().lower()).strip("_")
        hint = f", such as '{usable}'" if re.fullmatch(r"[a-z][a-z0-9_]+", usable) else ""
        raise ConfigError(
            f"'{name}' cannot be the name of a package; expected small letters, digits and _, with "
            f"a letter first, and no word of Python{hint if not keyword.iskeyword(usable) else ''}"
        )
