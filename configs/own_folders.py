"""Folders of `--config-dir`: what lies in them and would never be read.

A file of another name than a group's is passed by without a word when groups are composed, so that
a misspelt one has no effect. What is nearly right is refused; the rest is told, as a script or a
package that is not here may know it.
"""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from configs.catalog import CONFIGS, PAIRS, YAML_FOLDERS, config_file, config_folders
from robot_rl.core.errors import ConfigError

_NEAR = 0.75
"""Similarity from which a name is taken for a misspelt one."""
_FORMS = {
    "fitted": "<task>_<robot>.yaml",
    "tuned": "<task>_<learner>.yaml or <task>_<robot>_<learner>.yaml",
}


def own_folders() -> list[Path]:
    """Folders of `--config-dir`."""
    return [one.path for one in config_folders() if one.plugin is None and one.path != CONFIGS]


def check_own_folders(known: Mapping[str, Collection[str]]) -> list[str]:
    """Look for what would never be read.

    Args:
        known: Names of tasks, robots and learners, by group.

    Returns:
        Sentences about files and folders that are like nothing known.

    Raises:
        ConfigError: One is like something known; names the nearest.
    """
    pairs = {f"{task}_{robot}" for task in known["task"] for robot in known["robot"]}
    names = {
        "fitted": pairs,
        "tuned": {f"{a}_{b}" for a in {*known["task"], *pairs} for b in known["learner"]},
    }
    found = [told for path in own_folders() for told in (*_folders(path), *_files(path, names))]
    return [f"{told}: it has no effect" for told in found]


def _folders(path: Path) -> Iterator[str]:
    """Folders of YAML files that are no group."""
    for folder in sorted(path.iterdir()):
        name = folder.name
        if name in YAML_FOLDERS or name.startswith(".") or not any(folder.glob("*.y*ml")):
            continue
        told = f"{folder} is no folder of a group"
        expected = f"expected {', '.join(YAML_FOLDERS)}"
        near = difflib.get_close_matches(name.lower(), YAML_FOLDERS, n=1, cutoff=_NEAR)
        if near:
            raise ConfigError(f"{told} (did you mean '{near[0]}'?); {expected}")
        yield f"{told}; {expected}"


def _files(path: Path, names: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Files of fitted and tuned numbers for nothing that is known."""
    for group in PAIRS:
        for file in sorted((path / group).glob("*.y*ml")):
            if (file.stem in names[group] and file.suffix == ".yaml") or _is_named(file):
                continue
            told = f"{file} is for no names that are known"
            expected = f"expected {_FORMS[group]}"
            if near := _nearest(file, group, names):
                raise ConfigError(
                    f"{told} (did you mean '{near}'?); {expected}: rename it, or move it away"
                )
            yield f"{told}; {expected}"


def _is_named(file: Path) -> bool:
    """True of a file that another one beside it extends."""
    others = (one for one in file.parent.glob("*.yaml") if one != file)
    named = re.compile(rf"\b{re.escape(file.stem)}\b")
    return any(named.search(one.read_text(encoding="utf-8", errors="replace")) for one in others)


def _nearest(file: Path, group: str, names: Mapping[str, Collection[str]]) -> str:
    """Group and name that a file may be meant for; empty for none."""
    for other in (group, *PAIRS):
        if file.stem in names[other]:
            return f"{other}/{file.stem}.yaml"
    near = difflib.get_close_matches(file.stem, names[group], n=1, cutoff=_NEAR)
    return f"{group}/{near[0]}.yaml" if near else ""


def numbers_left_behind(task: str, robot: str, learner: str) -> str:
    """Sentence about numbers of the task that a task extends, which it does not take.

    Empty for a task of ours or of a package, and where there are none or it has its own.
    """
    found = config_file("task", task)
    if found is None or found[1].plugin is not None or found[1].path == CONFIGS:
        return ""
    base = task
    while base := _extended(base):
        left, lines = [], []
        for group, rest in (
            ("fitted", robot), ("tuned", learner), ("tuned", f"{robot}_{learner}"),
        ):  # fmt: skip
            theirs, own = f"{base}_{rest}", f"{task}_{rest}"
            if config_file(group, theirs) and not config_file(group, own):
                left.append(f"{group}/{theirs}.yaml")
                lines.append(f"{group}/{own}.yaml")
        if left:
            return (
                f"task={task} extends {base} and does not take its numbers in {', '.join(left)}; "
                f'to take them, write {", ".join(lines)} (see "Extending")'
            )
    return ""


def _extended(task: str) -> str:
    """Task that a task's file extends; empty where it extends a schema."""
    found = config_file("task", task)
    text = found[0].read_text(encoding="utf-8", errors="replace") if found else ""
    text = re.sub(r"#.*", "", text)
    listed = re.search(r"^defaults:(\s*\[[^\]]*\]|(?:\s*\n\s*-[^\n]*)+)", text, re.MULTILINE)
    names = re.findall(r"\w+", listed[1]) if listed else []
    return next((one for one in names if one != task and config_file("task", one)), "")
