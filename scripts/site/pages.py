"""Pages of the site: those of the repository where they lie, and a reference made of docstrings.

repository ---> pages/ (the same folders, so that links stay as they are) ---> MkDocs
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from robot_rl.core.errors import RobotRLError

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = Path(__file__).with_name("mkdocs.yml")
_SOURCES = ("*.md", "docs/**/*.md", "[a-z]*/README.md")
_LINK = re.compile(r"\]\(([^)\s#]+)")
REFERENCE = {
    "python": ("From Python", ["robot_rl.cli.api"]),
    "robots": ("Robots", ["robot_rl.core.robot", "robot_rl.core.robot_command"]),
    "observations": ("Observations and actions", [
        "robot_rl.core.observation", "robot_rl.core.action", "robot_rl.core.pose_target",
    ]),
    "environments": ("Environments", ["robot_rl.core.env", "robot_rl.core.transition"]),
    "learners": ("Learners", ["robot_rl.core.learner", "robot_rl.core.episodic"]),
    "replay": ("Replay", ["robot_rl.buffers.replay"]),
    "bundles": ("Bundles", [
        "policies.bundle", "policies.runner", "policies.export", "policies.env_policy",
    ]),
    "tasks": ("Tasks", ["sim.task", "sim.experts"]),
    "plugins": ("Plug-ins", ["configs.schema", "robot_rl.core.plugins", "hardware.registry"]),
    "drivers": ("Drivers", ["robot_rl.core.robot_driver"]),
    "safety": ("Safety", ["hardware.control.safety", "hardware.control.monitors"]),
    "learning_on_robots": ("Learning on robots", [
        "hardware.learning.hardware_env", "hardware.learning.rewards", "hardware.learning.reset",
    ]),
    "errors": ("Errors", ["robot_rl.core.errors"]),
}  # fmt: skip
"""Page -> its title, and the modules whose docstrings it shows."""


class SiteError(RobotRLError):
    """The site cannot be built."""


def stage(folder: Path, out: Path) -> Path:
    """Copy every page and what it links to, write the reference and the settings.

    Args:
        folder: An empty folder.
        out: Where the site is to be written.

    Returns:
        File of settings for MkDocs.

    Raises:
        SiteError: A page links to a file that is not there.
    """
    pages = folder / "pages"
    for page in sources():
        _copy(page, pages)
        for linked in _links(page):
            _copy(linked, pages)
    for name, (title, modules) in REFERENCE.items():
        text = "\n\n".join([f"# {title}", *(f"::: {module}" for module in modules)])
        path = pages / "reference" / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    settings: dict[str, Any] = yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))
    settings |= {
        "docs_dir": str(pages), "site_dir": str(out.absolute()),
        "nav": _filled(settings["nav"], pages),
    }  # fmt: skip
    handler: dict[str, Any] = settings["plugins"][1]["mkdocstrings"]["handlers"]["python"]
    handler["paths"] = [str(ROOT)]
    file = folder / "mkdocs.yml"
    file.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return file


def sources() -> list[Path]:
    """Every page of the repository."""
    return sorted({path for pattern in _SOURCES for path in ROOT.glob(pattern)})


def _links(page: Path) -> Iterator[Path]:
    """Files of the repository, pages left out, that a page links to."""
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path = (page.parent / target).resolve()
        if path.is_dir() or path.suffix == ".md":
            continue
        if not path.is_file() or not path.is_relative_to(ROOT):
            raise SiteError(f"{page.relative_to(ROOT)} links to {target}, which is not there")
        yield path


def _copy(path: Path, pages: Path) -> None:
    to = pages / path.relative_to(ROOT)
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)


def _filled(entries: Sequence[Any], pages: Path) -> list[Any]:
    """Navigation in which a folder stands for its pages, the page README.md first."""
    filled: list[Any] = []
    for entry in entries:
        ((title, value),) = entry.items()
        if isinstance(value, list):
            filled.append({title: _filled(value, pages)})
        elif (pages / value).is_dir():
            found = [path.relative_to(pages).as_posix() for path in (pages / value).glob("*.md")]
            found.sort(key=lambda name: (not name.endswith("README.md"), name))
            filled.append({title: found})
        else:
            filled.append({title: value})
    return filled
